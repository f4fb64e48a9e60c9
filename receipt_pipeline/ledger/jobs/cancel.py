"""Cancel and supersede jobs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from receipt_pipeline.core.attempts import AttemptOutcome
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, CloseCause
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    CANCELED_BY_CALLER,
    STATE_REFUSES,
    SUPERSEDED_BY_JOB,
    Reason,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.finalize import close_attempt, close_open_items, write_terminal
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import items, jobs


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


def link_replacement(tx: LedgerTransaction, *, job_id: str, by_job_id: str, actor: str) -> None:
    """Journal on the replacing job whose place it takes; the replaced one names it in its row."""
    abandoned = select(items.c.item_id).where(items.c.job_id == job_id)
    rows = tx.rows(abandoned.where(items.c.item_class == ItemClass.SUPERSEDED).order_by(items.c.ordinal))
    append_event(
        tx,
        EventKind.SUPERSEDES,
        job_id=by_job_id,
        replaced=job_id,
        abandoned=[row["item_id"] for row in rows],
        by=actor,
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
    close_open_items(tx, job_id, begun=item_class, waiting=item_class, reason=reason)
    guard = (jobs.c.state == job["state"]) & (jobs.c.lease_epoch == job["lease_epoch"])
    closed = write_terminal(tx, job=job, guard=guard, cause=cause, reason=reason, limits=limits)
    assert closed, "the row was locked"
    outcome = AttemptOutcome.SUPERSEDED if cause is CloseCause.SUPERSEDED else AttemptOutcome.CANCELED
    close_attempt(tx, job_id, lease_epoch=job["lease_epoch"], outcome=outcome, reason_code=reason.code)
    return job
