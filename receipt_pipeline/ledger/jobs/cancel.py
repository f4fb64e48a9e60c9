"""Cancel, supersede and expire jobs."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Integer, bindparam, or_, select, update

from receipt_pipeline.core.attempts import AttemptOutcome
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, CloseCause, JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    CANCELED_BY_CALLER,
    ITEM_OVERTAKEN,
    QUEUE_AGE_REACHED,
    STATE_REFUSES,
    SUPERSEDED_BY_JOB,
    Reason,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.failures import begin_closing, read_job
from receipt_pipeline.ledger.jobs.finalize import close_attempt, settle_open_items, write_terminal
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.jobs import items, jobs

# What every pass looks for is built once.
_AT_MOST = bindparam("at_most", type_=Integer())
_OVERRUNNING = (
    select(jobs.c.job_id, jobs.c.lease_epoch, jobs.c.processing_deadline, jobs.c.cutoff_at)
    .where(jobs.c.state == JobState.RUNNING)
    .where(jobs.c.close_cause.is_(None))
    .where(jobs.c.phase.not_in(HELD_PHASES))
    .where(or_(jobs.c.processing_deadline <= bindparam("latest"), jobs.c.cutoff_at <= bindparam("latest")))
    .limit(_AT_MOST)
)
_OVERDUE = (
    select(jobs.c.job_id)
    .where(jobs.c.state == JobState.ACCEPTED)
    .where(jobs.c.queue_deadline < bindparam("now"))
    .order_by(jobs.c.queue_deadline)
    .limit(_AT_MOST)
)
_EXPIRED_LEASES = (
    select(jobs.c.job_id, jobs.c.lease_epoch)
    .where(jobs.c.state == JobState.RUNNING)
    .where(jobs.c.lease_owner.is_not(None))
    .where(jobs.c.lease_expires_at <= bindparam("now"))
    .order_by(jobs.c.lease_expires_at)
    .limit(_AT_MOST)
)


def expire_job(tx: LedgerTransaction, *, job_id: str, limits: Limits) -> bool:
    """Expire a job that waited past its queue deadline; False when it was claimed or closed first.

    The guard is the exact complement of the first claim's: 47 is accepted, 48 expires.
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job["state"] != JobState.ACCEPTED or job["queue_deadline"] >= tx.now():
        return False
    settle_open_items(
        tx, job_id, begun=ItemClass.EXPIRED, waiting=ItemClass.EXPIRED, reason=QUEUE_AGE_REACHED
    )
    guard = (jobs.c.state == JobState.ACCEPTED) & (jobs.c.queue_deadline < tx.now())
    return write_terminal(tx, job=job, guard=guard, cause=CloseCause.QUEUE_AGE, limits=limits)


def overdue_job_ids(tx: LedgerTransaction, *, at_most: int) -> list[str]:
    """Return accepted jobs past their queue deadline, oldest deadline first."""
    return [row["job_id"] for row in tx.rows(_OVERDUE, {"now": tx.now(), "at_most": at_most})]


def cancel_job(tx: LedgerTransaction, *, job_id: str, limits: Limits) -> dict[str, Any] | None:
    """Cancel an open job and fence its worker; what was finished keeps its class.

    Returns the job's row before the cancellation, None when it was already terminal.

    Raises:
        NotAllowed: STATE.REFUSES.v1 while the job is held: only its investigation closes it (D2).
    """
    ending = (CloseCause.CANCELED, ItemClass.CANCELLED, CANCELED_BY_CALLER)
    return _end_on_request(tx, job_id, ending, limits=limits)


def supersede_job(
    tx: LedgerTransaction, *, job_id: str, superseded_by: str, limits: Limits
) -> dict[str, Any] | None:
    """Close an open job in favour of one that replaces it, which the caller accepted in its lineage.

    Returns the job's row before it was superseded, None when it was already terminal.

    Raises:
        NotAllowed: STATE.REFUSES.v1 while the job is held: only its investigation closes it (D2).
    """
    ending = (CloseCause.SUPERSEDED, ItemClass.SUPERSEDED, SUPERSEDED_BY_JOB)
    before = _end_on_request(tx, job_id, ending, limits=limits)
    if before is not None:
        tx.execute(update(jobs).where(jobs.c.job_id == job_id).values(superseded_by=superseded_by))
    return before


def link_replacement(tx: LedgerTransaction, *, job_id: str, by_job_id: str, by: str) -> None:
    """Journal on the replacing job whose place it takes; the replaced one names it in its row."""
    abandoned = select(items.c.item_id).where(items.c.job_id == job_id)
    rows = tx.rows(abandoned.where(items.c.item_class == ItemClass.SUPERSEDED).order_by(items.c.ordinal))
    append_event(
        tx,
        EventKind.SUPERSEDES,
        job_id=by_job_id,
        replaced=job_id,
        abandoned=[row["item_id"] for row in rows],
        by=by,
    )


def _end_on_request(
    tx: LedgerTransaction,
    job_id: str,
    ending: tuple[CloseCause, ItemClass, Reason],
    *,
    limits: Limits,
) -> dict[str, Any] | None:
    cause, item_class, reason = ending
    job = read_job(tx, job_id, lock=True)
    if job is None or job["state"] in TERMINAL_STATES:
        return None
    if job["phase"] in HELD_PHASES:
        raise NotAllowed(STATE_REFUSES, job_id=job_id, phase=job["phase"])
    settle_open_items(tx, job_id, begun=item_class, waiting=item_class, reason=reason)
    guard = (jobs.c.state == job["state"]) & (jobs.c.lease_epoch == job["lease_epoch"])
    closed = write_terminal(tx, job=job, guard=guard, cause=cause, reason=reason, limits=limits)
    assert closed, "the row was locked"
    outcome = AttemptOutcome.SUPERSEDED if cause is CloseCause.SUPERSEDED else AttemptOutcome.CANCELED
    close_attempt(tx, job_id, lease_epoch=job["lease_epoch"], outcome=outcome, reason_code=reason.code)
    return job


def overtake_items(tx: LedgerTransaction, job_id: str) -> None:
    """Class what a limit overtook: begun items are unresolved, never begun ones expired (D4)."""
    settle_open_items(
        tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.EXPIRED, reason=ITEM_OVERTAKEN
    )


def overtake_job(tx: LedgerTransaction, *, job_id: str, cause: CloseCause) -> None:
    """Leave an unowned running job to closing attempts."""
    overtake_items(tx, job_id)
    begin_closing(tx, job_id, cause=cause)


def overrun_job(
    tx: LedgerTransaction, *, job_id: str, seen_epoch: int, cause: CloseCause, grace_s: float
) -> bool:
    """Take a job away from a worker that did not close within the grace; False when it moved on."""
    limit = tx.now() - dt.timedelta(seconds=grace_s)
    job = read_job(tx, job_id, lock=True)
    if job is None:
        return False
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.lease_epoch == seen_epoch)
        .where(jobs.c.close_cause.is_(None))
        .where(jobs.c.phase.not_in(HELD_PHASES))
        .where(or_(jobs.c.processing_deadline <= limit, jobs.c.cutoff_at <= limit))
        .values(lease_epoch=jobs.c.lease_epoch + 1, lease_owner=None, lease_expires_at=None, wave_id=None)
    )
    if written.rowcount == 0:
        return False
    close_attempt(
        tx, job_id, lease_epoch=seen_epoch, outcome=AttemptOutcome.OVERRUN, reason_code=ITEM_OVERTAKEN.code
    )
    overtake_job(tx, job_id=job_id, cause=cause)
    return True


def overrunning_jobs(tx: LedgerTransaction, *, grace_s: float, at_most: int) -> list[dict[str, Any]]:
    """Return running jobs whose worker is past a limit and its grace."""
    limit = tx.now() - dt.timedelta(seconds=grace_s)
    return tx.rows(_OVERRUNNING, {"latest": limit, "at_most": at_most})


def expired_leases(tx: LedgerTransaction, *, at_most: int) -> list[dict[str, Any]]:
    """Return running jobs whose lease ended without a release."""
    return tx.rows(_EXPIRED_LEASES, {"now": tx.now(), "at_most": at_most})


def unfinished_items(tx: LedgerTransaction, job_id: str) -> list[dict[str, Any]]:
    """Return the job's items that have no class yet, in order."""
    query = select(items).where(items.c.job_id == job_id).where(items.c.item_class.is_(None))
    return tx.rows(query.order_by(items.c.ordinal))
