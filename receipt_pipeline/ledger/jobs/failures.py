"""Failed and lost attempts, and jobs on hold."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import select, update

from receipt_pipeline.core.attempts import (
    FAILURE_RULES,
    Answer,
    AtBound,
    AttemptOutcome,
    FailureClass,
    FencingToken,
    retry_delay_s,
)
from receipt_pipeline.core.errors import LeaseLost
from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass
from receipt_pipeline.core.lifecycle import HELD_PHASES, CloseCause, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    ATTEMPTS_EXHAUSTED,
    RESULT_MISMATCH,
    STALE_LEASE,
    UPLOAD_FAILED,
    UPLOAD_UNKNOWN,
    WORKER_LOST,
    Reason,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import InvestigationKind, InvestigationRequest, open_investigation
from receipt_pipeline.ledger.jobs.finalize import (
    AttemptEnd,
    Closing,
    close_attempt,
    close_open_items,
    item_counts,
    open_unresolved_investigation,
    write_terminal,
)
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import ItemRow, JobRow, read_job
from receipt_pipeline.ledger.schema.jobs import items, jobs

# With these the result is certainly not stored: nothing is left to look up.
PUBLICATION_FAILURES = frozenset({UPLOAD_FAILED, RESULT_MISMATCH})

# A rejected item, a quarantine and a yield have writes of their own.
_NO_FAILURE_OF_AN_ATTEMPT = frozenset({FailureClass.VALIDATION, FailureClass.DIVERGENT, FailureClass.YIELDED})


def fail_attempt(
    tx: LedgerTransaction, token: FencingToken, *, failure_class: FailureClass, reason: Reason, limits: Limits
) -> None:
    """Release the lease after a failure and count it by the rules of its class.

    Raises:
        LeaseLost: a later epoch holds the job; nothing was counted.
    """
    # None of these would ever end here: what validation rejects is an item's outcome.
    assert failure_class not in _NO_FAILURE_OF_AN_ATTEMPT, failure_class
    job = _release_lease(tx, token, phase=Phase.RETRY_WAIT)
    count_failure(tx, job, failure_class, reason, outcome=AttemptOutcome.FAILED, limits=limits)


def yield_job(tx: LedgerTransaction, token: FencingToken) -> None:
    """Return the job at a checkpoint: it is ready immediately, and no budget is spent.

    Raises:
        LeaseLost: a later epoch holds the job.
    """
    _release_lease(tx, token, phase=Phase.QUEUED)
    tx.execute(
        update(items)
        .where(items.c.job_id == token.job_id, items.c.item_class.is_(None))
        .values(begun_epoch=None, begun_at=None)
    )
    tx.execute(update(jobs).where(jobs.c.job_id == token.job_id).values(retry_at=None))
    close_attempt(tx, token, AttemptEnd(AttemptOutcome.YIELDED))


def _release_lease(tx: LedgerTransaction, token: FencingToken, *, phase: Phase) -> JobRow:
    """Release the worker's own lease; returns the row as it was while the attempt held it."""
    job = read_job(tx, token.job_id, lock=True)
    released = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == token.job_id,
            jobs.c.state == JobState.RUNNING,  # edge (RUNNING, RELEASE_LEASE)
            jobs.c.lease_epoch == token.lease_epoch,
        )
        .values(phase=phase, wave_id=None, lease_epoch=jobs.c.lease_epoch + 1, lease_owner=None, lease_expires_at=None)
    )
    if job is None or released.rowcount == 0:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    return job


def expired_leases(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return running jobs whose lease ended without a release: id and epoch, longest expired first."""
    return tx.rows(
        select(jobs.c.job_id, jobs.c.lease_epoch)
        .where(jobs.c.state == JobState.RUNNING, jobs.c.lease_owner.is_not(None), jobs.c.lease_expires_at <= tx.now())
        .order_by(jobs.c.lease_expires_at)
        .limit(limit)
    )


def lose_lease(tx: LedgerTransaction, *, job_id: str, seen_epoch: int, limits: Limits) -> bool:
    """Take an expired lease away and count the lost attempt; False when a renewal or another came first."""
    job = read_job(tx, job_id, lock=True)
    if job is None:
        return False
    keeps_phase = job.phase in HELD_PHASES or job.phase is Phase.CLOSING
    taken = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == job_id,
            jobs.c.state == JobState.RUNNING,  # edge (RUNNING, TAKE_OVER)
            jobs.c.lease_epoch == seen_epoch,
            jobs.c.lease_owner.is_not(None),
            jobs.c.lease_expires_at <= tx.now(),
        )
        .values(
            phase=job.phase if keeps_phase else Phase.RETRY_WAIT,
            wave_id=None,
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=None,
            lease_expires_at=None,
        )
    )
    if taken.rowcount == 0:
        return False
    count_failure(tx, job, FailureClass.WORKER_LOST, WORKER_LOST, outcome=AttemptOutcome.LOST, limits=limits)
    return True


def count_failure(
    tx: LedgerTransaction,
    job: JobRow,
    failure_class: FailureClass,
    reason: Reason,
    *,
    outcome: AttemptOutcome,
    limits: Limits,
) -> None:
    """Close the attempt and count its failure: against the begun item, against the budget, or not at all.

    `job` is the row as it was while the attempt held it.
    """
    begun = _begun_item(tx, job)
    rule = FAILURE_RULES[failure_class]
    spends = rule.spends_budget and begun is None and job.close_cause is None
    close_attempt(tx, job.token, AttemptEnd(outcome, failure_class, reason.code, spends))
    spent = job.attempts_spent + (1 if spends else 0)
    pause_s = retry_delay_s(
        job_id=job.job_id,
        spent=max(1, spent if begun is None else begun.losses + 1),
        base_s=limits.work.retry_base_s,
        cap_s=limits.work.retry_cap_s,
    )
    tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job.job_id)
        .values(attempts_spent=spent, retry_at=tx.now() + dt.timedelta(seconds=pause_s))
    )
    if rule.answer is Answer.STOP:
        close_for_identity(tx, job.job_id, reason=reason, limits=limits)
    elif begun is not None:
        _count_item_failure(tx, begun, failure_class, reason, limits=limits)
    elif spends and spent >= job.max_attempts:
        exhaust(tx, job.job_id, failure_class=failure_class, reason=reason, limits=limits)


def _begun_item(tx: LedgerTransaction, job: JobRow) -> ItemRow | None:
    row = tx.row(
        select(items)
        .where(items.c.job_id == job.job_id, items.c.item_class.is_(None), items.c.begun_epoch == job.lease_epoch)
        .order_by(items.c.ordinal)
    )
    return None if row is None else ItemRow.from_row(row)


def _count_item_failure(
    tx: LedgerTransaction, item: ItemRow, failure_class: FailureClass, reason: Reason, *, limits: Limits
) -> None:
    """Count a failure against the begun item; at its limit the item becomes unresolved."""
    losses = item.losses + 1
    isolated = losses >= limits.work.item_losses_max
    final: dict[str, Any] = {}
    if isolated:
        final = {"item_class": ItemClass.UNRESOLVED, "reason_code": reason.code, "finished_at": tx.now()}
    tx.execute(
        update(items)
        .where(items.c.job_id == item.job_id, items.c.ordinal == item.ordinal, items.c.item_class.is_(None))
        .values(losses=losses, begun_epoch=None, begun_at=None, **final)
    )
    append_event(
        tx,
        EventKind.ITEM_LOST,
        job_id=item.job_id,
        ordinal=item.ordinal,
        losses=losses,
        isolated=isolated,
        failure_class=failure_class.value,
        reason=reason.code,
    )
    if isolated:
        open_unresolved_investigation(tx, item.job_id, limits=limits)


def exhaust(tx: LedgerTransaction, job_id: str, *, failure_class: FailureClass, reason: Reason, limits: Limits) -> None:
    """End retries: hold an unknown effect, close what failed for certain, else leave a closing attempt."""
    job = read_job(tx, job_id)
    assert job is not None
    if FAILURE_RULES[failure_class].at_bound is AtBound.HOLD:
        hold_unknown_effect(tx, job, limits=limits)
        return
    close_open_items(tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.UNRESOLVED, reason=reason)
    counts = item_counts(tx, job_id)
    certain = reason in PUBLICATION_FAILURES
    if not certain and any(counts[item_class] for item_class in KEPT_CLASSES):
        begin_closing(tx, job_id, cause=CloseCause.EXHAUSTED)
        return
    closing = Closing(CloseCause.PUBLICATION, reason) if certain else Closing(CloseCause.EXHAUSTED)
    guard = (jobs.c.state == JobState.RUNNING) & jobs.c.lease_owner.is_(None)
    closed = write_terminal(tx, job, closing, guard=guard, limits=limits)
    assert closed, "the row was locked"


def begin_closing(tx: LedgerTransaction, job_id: str, *, cause: CloseCause) -> None:
    """Mark that from now on only closing attempts may claim the job; they compute nothing."""
    marked = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id, jobs.c.state == JobState.RUNNING, jobs.c.close_cause.is_(None))
        .values(close_cause=cause, phase=Phase.CLOSING, retry_at=None)
    )
    if marked.rowcount == 1:
        append_event(tx, EventKind.CLOSING, job_id=job_id, cause=cause.value)


def hold_unknown_effect(tx: LedgerTransaction, job: JobRow, *, limits: Limits) -> None:
    """Put the running job in phase `reconciling` with an owned investigation; no worker holds it."""
    if not hold_for_reconciliation(tx, job):
        return
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNKNOWN_EFFECT,
            subject=job.job_id,
            reopened_as=str(job.lease_epoch),
            job_id=job.job_id,
            reason=UPLOAD_UNKNOWN,
            suspected_effect="a result object may exist under a key of this job",
            allowed_repair="look the keys up with `receipts reconcile`; never generate again",
        ),
        limits=limits,
    )


def hold_for_reconciliation(tx: LedgerTransaction, job: JobRow) -> bool:
    """Take a running job out of work, with its lease; False when it is held already or closed."""
    held = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == job.job_id,
            jobs.c.state == JobState.RUNNING,  # edge (RUNNING, HOLD)
            jobs.c.lease_epoch == job.lease_epoch,
            jobs.c.phase.not_in(HELD_PHASES),
        )
        .values(
            phase=Phase.RECONCILING,
            retry_at=None,
            wave_id=None,
            lease_epoch=jobs.c.lease_epoch + (0 if job.lease_owner is None else 1),
            lease_owner=None,
            lease_expires_at=None,
        )
    )
    if held.rowcount == 0:
        return False
    close_attempt(tx, job.token, AttemptEnd(AttemptOutcome.HELD))
    append_event(tx, EventKind.PHASE_CHANGED, job_id=job.job_id, phase=Phase.RECONCILING.value)
    return True


def close_for_identity(tx: LedgerTransaction, job_id: str, *, reason: Reason, limits: Limits) -> bool:
    """Close an open, unowned job as `failed/identity_failed`; False when it is owned or closed."""
    job = read_job(tx, job_id, lock=True)
    if job is None or job.lease_owner is not None:
        return False
    if job.state not in (JobState.ACCEPTED, JobState.RUNNING):
        return False
    close_open_items(tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.UNRESOLVED, reason=reason)
    guard = (jobs.c.state == job.state) & jobs.c.lease_owner.is_(None)
    return write_terminal(tx, job, Closing(CloseCause.IDENTITY, reason), guard=guard, limits=limits)


def reconciling_jobs(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return the jobs in phase `reconciling`, longest held first: id and epoch."""
    return tx.rows(
        select(jobs.c.job_id, jobs.c.lease_epoch)
        .where(jobs.c.state == JobState.RUNNING, jobs.c.phase == Phase.RECONCILING, jobs.c.lease_owner.is_(None))
        .order_by(jobs.c.latest_seq)
        .limit(limit)
    )


def release_held(tx: LedgerTransaction, *, job_id: str, seen_epoch: int, granted: bool, limits: Limits) -> bool:
    """Let a held job continue with closing attempts; False when it moved on or its closing bound is spent.

    A closing attempt computes nothing: it publishes what the checkpoints hold, under an object that is
    already there where one is. Only a person's grant gives a new bound.
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job.phase is not Phase.RECONCILING or job.lease_epoch != seen_epoch:
        return False
    spent = job.closing_attempts >= limits.work.closing_attempts_max
    if spent and not granted:
        return False
    close_open_items(tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.UNRESOLVED, reason=ATTEMPTS_EXHAUSTED)
    released = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == job_id,
            jobs.c.state == JobState.RUNNING,
            jobs.c.phase == Phase.RECONCILING,
            jobs.c.lease_epoch == seen_epoch,
        )
        .values(
            phase=Phase.CLOSING,
            close_cause=job.close_cause or CloseCause.FINISHED,
            closing_attempts=0 if spent else job.closing_attempts,
            retry_at=None,
            wave_id=None,
        )
    )
    if released.rowcount == 1:
        append_event(tx, EventKind.CLOSING, job_id=job_id, cause="effect_known", granted=granted or None)
    return released.rowcount == 1
