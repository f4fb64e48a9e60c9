"""Cancel and supersede jobs."""

from __future__ import annotations

from sqlalchemy import select, update

from receipt_pipeline.core.attempts import AttemptOutcome
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, CloseCause
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import CANCELED_BY_CALLER, STATE_REFUSES, SUPERSEDED_BY_JOB
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.finalize import AttemptEnd, Closing, close_attempt, close_open_items, write_terminal
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.ledger.schema.jobs import items, jobs


def cancel_job(tx: LedgerTransaction, *, job_id: str, limits: Limits) -> JobRow | None:
    """Cancel an open job and fence its worker; what was finished keeps its class.

    Returns the job's row before the cancellation, None when it was already terminal.

    Raises:
        NotAllowed: STATE.REFUSES.v1 while the job is held: only its investigation closes it.
    """
    return _close_on_request(tx, job_id, CloseCause.CANCELED, limits=limits)


def supersede_job(tx: LedgerTransaction, *, job_id: str, superseded_by: str, limits: Limits) -> JobRow | None:
    """Close an open job in favor of one that replaces it, which the caller accepted in its lineage.

    Returns the job's row before it was superseded, None when it was already terminal.

    Raises:
        NotAllowed: STATE.REFUSES.v1 while the job is held: only its investigation closes it.
    """
    before = _close_on_request(tx, job_id, CloseCause.SUPERSEDED, limits=limits)
    if before is not None:
        tx.execute(update(jobs).where(jobs.c.job_id == job_id).values(superseded_by=superseded_by))
    return before


def _close_on_request(tx: LedgerTransaction, job_id: str, cause: CloseCause, *, limits: Limits) -> JobRow | None:
    job = read_job(tx, job_id, lock=True)
    if job is None or job.state in TERMINAL_STATES:
        return None
    if job.phase in HELD_PHASES:
        raise NotAllowed(STATE_REFUSES, job_id=job_id, phase=job.phase)
    superseded = cause is CloseCause.SUPERSEDED
    reason = SUPERSEDED_BY_JOB if superseded else CANCELED_BY_CALLER
    item_class = ItemClass.SUPERSEDED if superseded else ItemClass.CANCELLED
    close_open_items(tx, job_id, begun=item_class, waiting=item_class, reason=reason)
    guard = (jobs.c.state == job.state) & (jobs.c.lease_epoch == job.lease_epoch)
    closed = write_terminal(tx, job, Closing(cause, reason), guard=guard, limits=limits)
    assert closed, "the row was locked"
    outcome = AttemptOutcome.SUPERSEDED if superseded else AttemptOutcome.CANCELED
    close_attempt(tx, job.token, AttemptEnd(outcome, reason_code=reason.code))
    return job


def link_replacement(tx: LedgerTransaction, *, job_id: str, by_job_id: str, actor: str) -> None:
    """Journal on the replacing job which one it replaces; the replaced one names it in its row."""
    abandoned = (
        select(items.c.item_id)
        .where(items.c.job_id == job_id, items.c.item_class == ItemClass.SUPERSEDED)
        .order_by(items.c.ordinal)
    )
    append_event(
        tx,
        EventKind.SUPERSEDES,
        job_id=by_job_id,
        replaced=job_id,
        abandoned=[row["item_id"] for row in tx.rows(abandoned)],
        by=actor,
    )
