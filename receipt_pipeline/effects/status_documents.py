"""Status documents for submitters who can only read files."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock, Timeout
from sqlalchemy import or_, select

from receipt_pipeline.core.errors import data_directory_fault
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.durable_files import status_path, write_whole
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.outbox import mark_status_shown, stale_status_jobs
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.ledger.status import read_status

REWRITES_MAX = 5
LOCK_WAIT_S = 30.0


def send_status_documents(context: EffectContext, *, limit: int, job_id: str | None = None) -> int:
    """Write the documents that show less than the ledger knows; returns how many were written.

    With a job id exactly that job's document is written, stale or not. Only this module writes
    status documents; deleting one loses nothing. One that cannot be written keeps no other from it.

    Raises:
        InputRefused: SETTING.INVALID.v1 with the first place that cannot be written, after all others are.
        ObjectFault: STORAGE.FULL.v1, likewise.
    """
    with context.ledger.reading() as tx:
        due = [job_id] if job_id is not None else stale_status_jobs(tx, limit=limit)
    return _write_each(context, due)


def restore_status_documents(context: EffectContext, *, limit: int, recent_s: float) -> int:
    """Write again the missing documents of open jobs and of those closed within `recent_s` seconds."""
    with context.ledger.reading() as tx:
        since = tx.now() - dt.timedelta(seconds=recent_s)
        rows = tx.rows(
            select(jobs.c.job_id, jobs.c.tenant)
            .where(or_(jobs.c.state.not_in(list(TERMINAL_STATES)), jobs.c.terminal_at >= since))
            .order_by(jobs.c.submitted_at.desc())
        )
    missing = [
        row["job_id"]
        for row in rows
        if not status_path(context.outbox_root, tenant=row["tenant"], job_id=row["job_id"]).exists()
    ]
    return _write_each(context, missing[:limit])


def _write_each(context: EffectContext, job_ids: Iterable[str]) -> int:
    """Write documents, past those that cannot be written; a folder whose lock is held is left for later."""
    written, first, held = 0, None, set()
    for job_id in job_ids:
        with context.ledger.reading() as tx:
            job = read_job(tx, job_id)
        if job is None:
            continue
        path = status_path(context.outbox_root, tenant=job.tenant, job_id=job_id)
        if path.parent in held:
            continue
        try:
            _write(context, job_id, path)
            written += 1
        except OSError as error:
            first = first or (path, error)
            if isinstance(error, Timeout):
                held.add(path.parent)
    if first is not None:
        place, fault = first
        raise data_directory_fault(fault, place) from fault
    return written


def _write(context: EffectContext, job_id: str, path: Path) -> None:
    """Read, write, rename, read the sequence again; repeat while the job moved on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the lock a slow writer could put its older document over a newer one, and then be killed.
    with FileLock(path.parent / ".status.lock", timeout=LOCK_WAIT_S):
        for _ in range(REWRITES_MAX):
            with context.ledger.reading() as tx:
                document = read_status(tx, job_id)
            text = json.dumps(document, ensure_ascii=False, indent=2, sort_keys=False)
            write_whole(path, text.encode() + b"\n")
            with context.ledger.transaction() as tx:
                if mark_status_shown(tx, job_id, seq=document["seq"]):
                    break
