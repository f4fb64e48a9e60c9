"""Brings a ledger's schema to this version with Alembic."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

_ADVISORY_LOCK = 7_204_411


def upgrade(engine: sa.Engine) -> None:
    """Run the migrations up to head, one process at a time."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    # SQLite: the engine's BEGIN IMMEDIATE is the lock. PostgreSQL is asked for one.
    with engine.connect() as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
