"""Whether a ledger was ever used: an empty one beside what jobs left behind is a lost one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import exists, or_, select

from receipt_pipeline.ledger.effect_tables import object_refs
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.tables import jobs, submissions


def is_unused(ledger: Ledger) -> bool:
    """Tell whether the ledger has no schema yet, or no record of a delivery, a job or a stored object.

    A file that is not there is not created: a backup may be about to take its place.
    """
    name = ledger.engine.url.database
    if ledger.engine.dialect.name == "sqlite" and name and not _has_content(Path(name)):
        return True
    if jobs.name not in ledger.table_names():
        return True
    used = or_(
        exists(select(jobs.c.job_id)),
        exists(select(submissions.c.submission_id)),
        exists(select(object_refs.c.holder)),
    )
    with ledger.reading() as tx:
        return not tx.scalar(select(used))


def _has_content(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0
