"""Failed and lost attempts, and jobs on hold."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import Integer, bindparam, select, update

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
    close_attempt,
    close_open_items,
    item_counts,
    open_unresolved_investigation,
    write_terminal,
)
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import items, jobs

# With these the result certainly stands nowhere: nothing is left to look up (R100).
PUBLICATION_FAILURES = frozenset({UPLOAD_FAILED, RESULT_MISMATCH})


# A rejected item, a quarantine and a yield have writes of their own.
_NO_FAILURE_OF_AN_ATTEMPT = frozenset({FailureClass.VALIDATION, FailureClass.DIVERGENT, FailureClass.YIELDED})


_OF_JOB = update(jobs).where(jobs.c.job_id == bindparam("of_job"))


_SET_FREE = _OF_JOB.where(jobs.c.state == JobState.RUNNING).where(
    jobs.c.lease_epoch == bindparam("seen_epoch")
)


_RELEASE = _SET_FREE.values(lease_epoch=jobs.c.lease_epoch + 1)


_TAKE_AWAY = _RELEASE.where(jobs.c.lease_owner.is_not(None)).where(
    jobs.c.lease_expires_at <= bindparam("now")
)


_FREE: dict[str, Any] = {"lease_owner": None, "lease_expires_at": None, "wave_id": None}


_BEGUN = (
    select(items)
    .where(items.c.job_id == bindparam("of_job"))
    .where(items.c.item_class.is_(None))
    .where(items.c.begun_epoch == bindparam("of_epoch"))
    .order_by(items.c.ordinal)
)


_UNFINISHED_ITEM = (
    update(items)
    .where(items.c.job_id == bindparam("of_job"))
    .where(items.c.ordinal == bindparam("of_ordinal"))
    .where(items.c.item_class.is_(None))
)


def fail_attempt(
    tx: LedgerTransaction,
    token: FencingToken,
    *,
    failure_class: FailureClass,
    reason: Reason,
    limits: Limits,
) -> None:
    """Release the lease after a failure and count it by the rules of its class.

    Raises:
        LeaseLost: a later epoch holds the job; nothing was charged.
    """
    # None of these would ever come to an end here: what validation refuses is an item's outcome.
    assert failure_class not in _NO_FAILURE_OF_AN_ATTEMPT, failure_class
    job = read_job(tx, token.job_id, lock=True)
    if job is None or not _release(tx, token, phase=Phase.RETRY_WAIT):
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    count_failure(
        tx, job, failure_class=failure_class, reason=reason, outcome=AttemptOutcome.FAILED, limits=limits
    )


def yield_job(tx: LedgerTransaction, token: FencingToken) -> None:
    """Give the job back at an item boundary: ready at once, no budget spent (R078 stays intact)."""
    job = read_job(tx, token.job_id, lock=True)
    if job is None or not _release(tx, token, phase=Phase.QUEUED):
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    tx.execute(
        update(items)
        .where(items.c.job_id == token.job_id)
        .where(items.c.item_class.is_(None))
        .values(begun_epoch=None, begun_at=None)
    )
    tx.execute(_OF_JOB, {"of_job": token.job_id, "retry_at": None, "wave_id": None})
    close_attempt(tx, token.job_id, lease_epoch=token.lease_epoch, outcome=AttemptOutcome.YIELDED)


def lose_lease(tx: LedgerTransaction, *, job_id: str, seen_epoch: int, limits: Limits) -> bool:
    """Take an expired lease away and count the lost attempt; False when a renewal or another came first."""
    job = read_job(tx, job_id, lock=True)
    if job is None:
        return False
    now = tx.now()
    seen = {"of_job": job_id, "seen_epoch": seen_epoch, "now": now}
    written = tx.execute(_TAKE_AWAY, seen | _FREE | {"phase": _kept_phase(job, Phase.RETRY_WAIT)})
    if written.rowcount == 0:
        return False
    count_failure(
        tx,
        job,
        failure_class=FailureClass.WORKER_LOST,
        reason=WORKER_LOST,
        outcome=AttemptOutcome.LOST,
        limits=limits,
    )
    return True


def _kept_phase(job: dict[str, Any], otherwise: Phase) -> Phase:
    held = {Phase.QUARANTINED, Phase.RECONCILING, Phase.CLOSING}
    return Phase(job["phase"]) if job["phase"] in held else otherwise


def _release(tx: LedgerTransaction, token: FencingToken, *, phase: Phase) -> bool:
    seen = {"of_job": token.job_id, "seen_epoch": token.lease_epoch}
    written = tx.execute(_RELEASE, seen | _FREE | {"phase": phase})
    return written.rowcount == 1


def count_failure(
    tx: LedgerTransaction,
    job: dict[str, Any],
    *,
    failure_class: FailureClass,
    reason: Reason,
    outcome: AttemptOutcome,
    limits: Limits,
) -> None:
    """Close the attempt and decide what its failure costs: an item's loss, budget, or nothing.

    `job` is the row as it stood while the attempt held it.
    """
    job_id, epoch = job["job_id"], job["lease_epoch"]
    begun = tx.row(_BEGUN, {"of_job": job_id, "of_epoch": epoch})
    closing = job["close_cause"] is not None
    rule = FAILURE_RULES[failure_class]
    spends = rule.spends_budget and begun is None and not closing
    close_attempt(
        tx,
        job_id,
        lease_epoch=epoch,
        outcome=outcome,
        failure_class=failure_class.value,
        reason_code=reason.code,
        spent_budget=spends,
    )
    spent = job["attempts_spent"] + (1 if spends else 0)
    tries = spent if begun is None else begun["losses"] + 1
    pause = retry_delay_s(
        job_id=job_id, spent=max(1, tries), base_s=limits.work.retry_base_s, cap_s=limits.work.retry_cap_s
    )
    retry_at = tx.now() + dt.timedelta(seconds=pause)
    tx.execute(_OF_JOB, {"of_job": job_id, "attempts_spent": spent, "retry_at": retry_at})
    if rule.answer is Answer.STOP:
        close_for_identity(tx, job_id, reason=reason, limits=limits)
    elif begun is not None:
        _count_item_failure(tx, begun, failure_class=failure_class, reason=reason, limits=limits)
    elif spends and spent >= job["max_attempts"]:
        exhaust(tx, job_id, failure_class=failure_class, reason=reason, limits=limits)


def _count_item_failure(
    tx: LedgerTransaction,
    item: dict[str, Any],
    *,
    failure_class: FailureClass,
    reason: Reason,
    limits: Limits,
) -> None:
    """Count a loss against the begun item; isolate it once it has spent its bound."""
    losses = item["losses"] + 1
    isolated = losses >= limits.work.item_losses_max
    values: dict[str, Any] = {"losses": losses, "begun_epoch": None, "begun_at": None}
    if isolated:
        values |= {
            "item_class": ItemClass.UNRESOLVED,
            "reason_code": reason.code,
            "finished_at": tx.now(),
        }
    tx.execute(_UNFINISHED_ITEM, {"of_job": item["job_id"], "of_ordinal": item["ordinal"]} | values)
    append_event(
        tx,
        EventKind.ITEM_LOST,
        job_id=item["job_id"],
        ordinal=item["ordinal"],
        losses=losses,
        isolated=isolated,
        failure_class=failure_class.value,
        reason=reason.code,
    )
    if isolated:
        open_unresolved_investigation(tx, item["job_id"], limits=limits)


def exhaust(
    tx: LedgerTransaction, job_id: str, *, failure_class: FailureClass, reason: Reason, limits: Limits
) -> None:
    """End retries: hold an unknown effect, close what failed for certain, else leave a closing attempt."""
    job = read_job(tx, job_id)
    assert job is not None
    if FAILURE_RULES[failure_class].at_bound is AtBound.HOLD:
        hold_unknown_effect(tx, job, limits=limits)
        return
    close_open_items(tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.UNRESOLVED, reason=reason)
    counts = item_counts(tx, job_id)
    kept = any(counts[item_class] for item_class in KEPT_CLASSES)
    certain = reason in PUBLICATION_FAILURES
    if kept and not certain:
        begin_closing(tx, job_id, cause=CloseCause.EXHAUSTED)
        return
    cause = CloseCause.PUBLICATION if certain else CloseCause.EXHAUSTED
    still_open = (jobs.c.state == JobState.RUNNING) & jobs.c.lease_owner.is_(None)
    given = reason if certain else None
    closed = write_terminal(tx, job=job, guard=still_open, cause=cause, reason=given, limits=limits)
    assert closed, "the row was locked"


def begin_closing(tx: LedgerTransaction, job_id: str, *, cause: CloseCause) -> None:
    """Mark that from now on only closing attempts may claim the job; they compute nothing."""
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.close_cause.is_(None))
        .values(close_cause=cause, phase=Phase.CLOSING, retry_at=None)
    )
    if written.rowcount == 1:
        append_event(tx, EventKind.CLOSING, job_id=job_id, cause=cause.value)


def hold_unknown_effect(tx: LedgerTransaction, job: dict[str, Any], *, limits: Limits) -> None:
    """Put the running job in phase `reconciling` with an owned investigation (D2); no one holds it."""
    if not hold_for_reconciliation(tx, job):
        return
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNKNOWN_EFFECT,
            subject=job["job_id"],
            reopened_as=str(job["lease_epoch"]),
            job_id=job["job_id"],
            reason=UPLOAD_UNKNOWN,
            suspected_effect="a result object may exist under a key of this job",
            allowed_repair="look the keys up with `receipts reconcile`; never generate again",
        ),
        limits=limits,
    )


def hold_for_reconciliation(tx: LedgerTransaction, job: dict[str, Any]) -> bool:
    """Take a running job out of work, its lease included; False when it is held already or closed."""
    owned = job["lease_owner"] is not None
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job["job_id"])
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.lease_epoch == job["lease_epoch"])
        .where(jobs.c.phase.not_in(HELD_PHASES))
        .values(
            phase=Phase.RECONCILING,
            lease_epoch=jobs.c.lease_epoch + (1 if owned else 0),
            lease_owner=None,
            lease_expires_at=None,
            retry_at=None,
            wave_id=None,
        )
    )
    if written.rowcount == 0:
        return False
    close_attempt(tx, job["job_id"], lease_epoch=job["lease_epoch"], outcome=AttemptOutcome.HELD)
    append_event(tx, EventKind.PHASE_CHANGED, job_id=job["job_id"], phase=Phase.RECONCILING.value)
    return True


def close_for_identity(tx: LedgerTransaction, job_id: str, *, reason: Reason, limits: Limits) -> bool:
    """Close an open, unowned job as `failed/identity_failed`; False when it is owned or closed."""
    job = read_job(tx, job_id, lock=True)
    if job is None or job["lease_owner"] is not None:
        return False
    if job["state"] not in (JobState.ACCEPTED, JobState.RUNNING):
        return False
    close_open_items(tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.UNRESOLVED, reason=reason)
    guard = (jobs.c.state == job["state"]) & jobs.c.lease_owner.is_(None)
    return write_terminal(tx, job=job, guard=guard, cause=CloseCause.IDENTITY, reason=reason, limits=limits)


_LIMIT = bindparam("limit", type_=Integer())


_RECONCILING = (
    select(jobs.c.job_id, jobs.c.lease_epoch)
    .where(jobs.c.state == JobState.RUNNING)
    .where(jobs.c.phase == Phase.RECONCILING)
    .where(jobs.c.lease_owner.is_(None))
    .order_by(jobs.c.latest_seq)
    .limit(_LIMIT)
)


def reconciling_jobs(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return the jobs in phase `reconciling`, longest held first: id and epoch."""
    return tx.rows(_RECONCILING, {"limit": limit})


def release_held(
    tx: LedgerTransaction, *, job_id: str, seen_epoch: int, granted: bool, limits: Limits
) -> bool:
    """Let a held job go on to closing attempts; False when it moved on or its closing bound is spent.

    A closing attempt computes nothing: it publishes what the checkpoints hold, under an object that is
    already there where one is. Only a person's grant gives a new bound (R112).
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job["phase"] != Phase.RECONCILING or job["lease_epoch"] != seen_epoch:
        return False
    spent = job["closing_attempts"] >= limits.work.closing_attempts_max
    if spent and not granted:
        return False
    close_open_items(
        tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.UNRESOLVED, reason=ATTEMPTS_EXHAUSTED
    )
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.phase == Phase.RECONCILING)
        .where(jobs.c.lease_epoch == seen_epoch)
        .values(
            phase=Phase.CLOSING,
            close_cause=job["close_cause"] or CloseCause.FINISHED,
            closing_attempts=0 if spent else job["closing_attempts"],
            retry_at=None,
            wave_id=None,
        )
    )
    if written.rowcount == 1:
        append_event(tx, EventKind.CLOSING, job_id=job_id, cause="effect_known", granted=granted or None)
    return written.rowcount == 1


_EXPIRED_LEASES = (
    select(jobs.c.job_id, jobs.c.lease_epoch)
    .where(jobs.c.state == JobState.RUNNING)
    .where(jobs.c.lease_owner.is_not(None))
    .where(jobs.c.lease_expires_at <= bindparam("now"))
    .order_by(jobs.c.lease_expires_at)
    .limit(_LIMIT)
)


def expired_leases(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return running jobs whose lease ended without a release."""
    return tx.rows(_EXPIRED_LEASES, {"now": tx.now(), "limit": limit})
