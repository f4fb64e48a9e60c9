"""Expire jobs that waited too long, and close those past a deadline."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import or_, select, update

from receipt_pipeline.core.attempts import AttemptOutcome, FencingToken
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import HELD_PHASES, CloseCause, JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import ITEM_OVERTAKEN, QUEUE_AGE_REACHED
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.failures import begin_closing
from receipt_pipeline.ledger.jobs.finalize import AttemptEnd, Closing, close_attempt, close_open_items, write_terminal
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import jobs


def expire_job(tx: LedgerTransaction, *, job_id: str, limits: Limits) -> bool:
    """Expire a job that waited past its queue deadline; False when it was claimed or closed first.

    The guard is the exact complement of the first claim's: with a deadline of 47 s, a job is claimed
    at 47 s and expires at 48 s.
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job.state is not JobState.ACCEPTED or job.queue_deadline >= tx.now():
        return False
    close_open_items(tx, job_id, begun=ItemClass.EXPIRED, waiting=ItemClass.EXPIRED, reason=QUEUE_AGE_REACHED)
    guard = (jobs.c.state == JobState.ACCEPTED) & (jobs.c.queue_deadline < tx.now())
    return write_terminal(tx, job, Closing(CloseCause.QUEUE_AGE), guard=guard, limits=limits)


def overdue_job_ids(tx: LedgerTransaction, *, limit: int) -> list[str]:
    """Return accepted jobs past their queue deadline, oldest deadline first."""
    overdue = (
        select(jobs.c.job_id)
        .where(jobs.c.state == JobState.ACCEPTED, jobs.c.queue_deadline < tx.now())
        .order_by(jobs.c.queue_deadline)
        .limit(limit)
    )
    return [row["job_id"] for row in tx.rows(overdue)]


def close_overdue_items(tx: LedgerTransaction, job_id: str) -> None:
    """Class the items that a limit left open: begun ones are unresolved, all others expired."""
    close_open_items(tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.EXPIRED, reason=ITEM_OVERTAKEN)


def close_overdue_job(tx: LedgerTransaction, *, job_id: str, cause: CloseCause) -> None:
    """Leave an unowned running job to closing attempts."""
    close_overdue_items(tx, job_id)
    begin_closing(tx, job_id, cause=cause)


def overrun_job(tx: LedgerTransaction, *, job_id: str, seen_epoch: int, cause: CloseCause, grace_s: float) -> bool:
    """Take a job from a worker that did not close it within the grace; False when it moved on."""
    latest = tx.now() - dt.timedelta(seconds=grace_s)
    if read_job(tx, job_id, lock=True) is None:
        return False
    taken = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == job_id,
            jobs.c.state == JobState.RUNNING,  # edge (RUNNING, RELEASE_LEASE)
            jobs.c.lease_epoch == seen_epoch,
            jobs.c.close_cause.is_(None),
            jobs.c.phase.not_in(HELD_PHASES),
            or_(jobs.c.processing_deadline <= latest, jobs.c.cutoff_at <= latest),
        )
        .values(lease_epoch=jobs.c.lease_epoch + 1, lease_owner=None, lease_expires_at=None, wave_id=None)
    )
    if taken.rowcount == 0:
        return False
    end = AttemptEnd(AttemptOutcome.OVERRUN, reason_code=ITEM_OVERTAKEN.code)
    close_attempt(tx, FencingToken(job_id, seen_epoch), end)
    close_overdue_job(tx, job_id=job_id, cause=cause)
    return True


def overrunning_jobs(tx: LedgerTransaction, *, grace_s: float, limit: int) -> list[dict[str, Any]]:
    """Return running jobs whose worker is past a limit and its grace: id, epoch, deadline and cutoff."""
    latest = tx.now() - dt.timedelta(seconds=grace_s)
    return tx.rows(
        select(jobs.c.job_id, jobs.c.lease_epoch, jobs.c.processing_deadline, jobs.c.cutoff_at)
        .where(
            jobs.c.state == JobState.RUNNING,
            jobs.c.close_cause.is_(None),
            jobs.c.phase.not_in(HELD_PHASES),
            or_(jobs.c.processing_deadline <= latest, jobs.c.cutoff_at <= latest),
        )
        .limit(limit)
    )
