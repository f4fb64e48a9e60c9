"""Brings a ledger's schema to this version, or back to an earlier one, with Alembic."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from receipt_pipeline.core.errors import InputRefused, LedgerUnavailable
from receipt_pipeline.core.reasons import FIELD_INVALID, LEDGER_NEWER

_ADVISORY_LOCK = 7_204_411


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def is_current(connection: sa.Connection) -> bool:
    """Tell whether the schema is this version's; reads only, so that a busy writer delays nobody.

    Raises:
        LedgerUnavailable: LEDGER.NEWER.v1 when no migration of this version leads there.
    """
    scripts = ScriptDirectory.from_config(_config())
    found = set(MigrationContext.configure(connection).get_current_heads())
    unknown = found - {script.revision for script in scripts.walk_revisions()}
    if unknown:
        raise LedgerUnavailable(LEDGER_NEWER, revision=", ".join(sorted(unknown)))
    return found == set(scripts.get_heads())


def downgrade(connection: sa.Connection, revision: str) -> None:
    """Undo the migrations after a revision in the caller's transaction, one process at a time.

    Raises:
        InputRefused: FIELD.INVALID.v1 for what is no earlier revision.
    """
    scripts = ScriptDirectory.from_config(_config())
    earlier = sorted({script.revision for script in scripts.walk_revisions()} - set(scripts.get_heads()))
    if revision not in earlier:
        raise InputRefused(FIELD_INVALID, pointer="REVISION", allowed=", ".join(earlier))
    command.downgrade(_alone(connection), revision)


def upgrade(connection: sa.Connection) -> None:
    """Run the migrations up to head in the caller's transaction, one process at a time."""
    command.upgrade(_alone(connection), "head")


def _alone(connection: sa.Connection) -> Config:
    """Return the configuration over a connection whose transaction migrates alone."""
    config = _config()
    # SQLite: the transaction's BEGIN IMMEDIATE is the lock. PostgreSQL is asked for one.
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
    config.attributes["connection"] = connection
    return config
