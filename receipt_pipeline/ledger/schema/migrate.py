"""Upgrade and downgrade the schema, and say whether a ledger is unused."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import exists, or_, select
from sqlalchemy.schema import SetColumnComment, SetTableComment

from receipt_pipeline.core.errors import InputRefused, LedgerUnavailable
from receipt_pipeline.core.reasons import FIELD_INVALID, LEDGER_NEWER
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.admin import alerts
from receipt_pipeline.ledger.schema.effects import object_refs
from receipt_pipeline.ledger.schema.jobs import jobs, submissions

_ADVISORY_LOCK = 7_204_411


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def is_current(connection: sa.Connection) -> bool:
    """Return whether the schema is this version's; reads only, so that a busy writer delays nobody.

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
    if connection.dialect.supports_comments:
        # Texts are no schema: PostgreSQL takes today's, and no migration is written for a better wording.
        for table in alerts.metadata.sorted_tables:
            connection.execute(SetTableComment(table))
            for column in table.columns:
                connection.execute(SetColumnComment(column))


def _alone(connection: sa.Connection) -> Config:
    """Return the configuration over a connection whose transaction migrates alone."""
    config = _config()
    # SQLite: the transaction's BEGIN IMMEDIATE is the lock. PostgreSQL is asked for one.
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
    config.attributes["connection"] = connection
    return config


def is_unused(ledger: Ledger) -> bool:
    """Return whether the ledger has no schema yet, or no record of a delivery, a job or a stored object.

    A file that is not there is not created: a backup may be about to take its place.
    """
    name = ledger.engine.url.database
    if ledger.engine.dialect.name == "sqlite" and name and not _has_content(Path(name)):
        return True
    if jobs.name not in ledger.table_names():
        return True
    used = or_(
        exists(select(jobs.c.job_id)), exists(select(submissions.c.submission_id)), exists(select(object_refs.c.holder))
    )
    with ledger.reading() as tx:
        return not tx.scalar(select(used))


def _has_content(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0
