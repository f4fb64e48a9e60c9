"""Claim, renew and requeue a job."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import bindparam, func, insert, or_, select, update

from receipt_pipeline.core.attempts import AttemptOutcome, FencingToken
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, CloseCause, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    ATTEMPTS_EXHAUSTED,
    NOT_CLAIMABLE,
    QUEUE_AGE_REACHED,
    RESULT_QUARANTINED,
    STATE_REFUSES,
    UPLOAD_UNKNOWN,
    Reason,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import InvestigationKind, InvestigationRequest, open_investigation
from receipt_pipeline.ledger.jobs.expire import close_overdue_job, expire_job
from receipt_pipeline.ledger.jobs.failures import hold_for_reconciliation, lose_lease
from receipt_pipeline.ledger.jobs.finalize import close_attempt
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs


class AttemptKind(StrEnum):
    """A work attempt may invoke the model; a closing attempt computes nothing."""

    WORK = "work"
    CLOSING = "closing"


# Built once, as every claim begins with one of them.
_NEXT_EPOCH = (
    update(jobs).where(jobs.c.job_id == bindparam("of_job")).values(lease_epoch=jobs.c.lease_epoch + 1)
)
_CLAIM_FIRST = _NEXT_EPOCH.where(jobs.c.state == JobState.ACCEPTED).where(
    jobs.c.queue_deadline >= bindparam("now")
)
_CLAIM_AGAIN = (
    _NEXT_EPOCH.where(jobs.c.state == JobState.RUNNING)
    .where(jobs.c.lease_epoch == bindparam("seen_epoch"))
    .where(jobs.c.lease_owner.is_(None))
    .where(or_(jobs.c.retry_at.is_(None), jobs.c.retry_at <= bindparam("now")))
    .where(jobs.c.phase.not_in(HELD_PHASES))
)
_COUNT_ATTEMPTS = select(func.count()).select_from(attempts).where(attempts.c.job_id == bindparam("of_job"))
_ITEMS = select(items).where(items.c.job_id == bindparam("of_job")).order_by(items.c.ordinal)


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job in hand: the token for every write, its row, and its items in order."""

    token: FencingToken
    kind: AttemptKind
    job: dict[str, Any]
    items: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """Why the claim was not granted; the worker goes on to its next job."""

    job_id: str
    reason: Reason


def claim_job(
    tx: LedgerTransaction, *, job_id: str, owner: str, run_id: str, limits: Limits
) -> ClaimedJob | ClaimRefused:
    """Claim one job, or say why not. A first claim past the queue deadline expires the job here.

    Taking over from an expired lease first charges the loss, then claims in the same transaction
    when the job is ready at once (closing) and otherwise leaves it to its retry time.
    """
    job = read_job(tx, job_id, lock=True)
    if job is None:
        return ClaimRefused(job_id, NOT_CLAIMABLE)
    if job["state"] == JobState.ACCEPTED:
        return _first_claim(tx, job, owner=owner, run_id=run_id, limits=limits)
    if job["state"] == JobState.RUNNING:
        return _later_claim(tx, job, owner=owner, run_id=run_id, limits=limits)
    return ClaimRefused(job_id, NOT_CLAIMABLE)


def _first_claim(
    tx: LedgerTransaction, job: dict[str, Any], *, owner: str, run_id: str, limits: Limits
) -> ClaimedJob | ClaimRefused:
    now = tx.now()
    written = tx.execute(
        _CLAIM_FIRST,
        {
            "of_job": job["job_id"],
            "now": now,
            "state": JobState.RUNNING,
            "phase": Phase.WORKING,
            "lease_owner": owner,
            "lease_expires_at": now + dt.timedelta(seconds=limits.work.lease_ttl_s),
            "claimed_at": now,
            "checkpoint_at": now,
            "processing_deadline": now + dt.timedelta(seconds=job["processing_timeout_s"]),
        },
    )
    if written.rowcount == 0:
        if expire_job(tx, job_id=job["job_id"], limits=limits):
            return ClaimRefused(job["job_id"], QUEUE_AGE_REACHED)
        return ClaimRefused(job["job_id"], NOT_CLAIMABLE)
    return _open_attempt(tx, job["job_id"], kind=AttemptKind.WORK, owner=owner, run_id=run_id)


def _later_claim(
    tx: LedgerTransaction, job: dict[str, Any], *, owner: str, run_id: str, limits: Limits
) -> ClaimedJob | ClaimRefused:
    job_id = job["job_id"]
    if job["lease_owner"] is not None and not lose_lease(
        tx, job_id=job_id, seen_epoch=job["lease_epoch"], limits=limits
    ):
        return ClaimRefused(job_id, NOT_CLAIMABLE)
    now = tx.now()
    job = read_job(tx, job_id) or job
    if not _ready(job, now):
        return ClaimRefused(job_id, NOT_CLAIMABLE)
    cause = limit_reached(job, now)
    if job["close_cause"] is None and cause is not None:
        close_overdue_job(tx, job_id=job_id, cause=cause)
        job = read_job(tx, job_id) or job
    kind = AttemptKind.CLOSING if job["close_cause"] is not None else AttemptKind.WORK
    if kind is AttemptKind.CLOSING and job["closing_attempts"] >= limits.work.closing_attempts_max:
        _hold_unclosable(tx, job, limits=limits)
        return ClaimRefused(job_id, ATTEMPTS_EXHAUSTED)
    closing = kind is AttemptKind.CLOSING
    written = tx.execute(
        _CLAIM_AGAIN,
        {
            "of_job": job_id,
            "seen_epoch": job["lease_epoch"],
            "now": now,
            "phase": Phase.CLOSING if closing else Phase.WORKING,
            "lease_owner": owner,
            "lease_expires_at": now + dt.timedelta(seconds=limits.work.lease_ttl_s),
            "checkpoint_at": now,
            "retry_at": None,
            "closing_attempts": job["closing_attempts"] + (1 if closing else 0),
        },
    )
    if written.rowcount == 0:
        return ClaimRefused(job_id, NOT_CLAIMABLE)
    return _open_attempt(tx, job_id, kind=kind, owner=owner, run_id=run_id)


def _ready(job: dict[str, Any], now: dt.datetime) -> bool:
    return (
        job["state"] == JobState.RUNNING
        and job["lease_owner"] is None
        and (job["retry_at"] is None or job["retry_at"] <= now)
        and job["phase"] not in HELD_PHASES
    )


def limit_reached(job: dict[str, Any], now: dt.datetime) -> CloseCause | None:
    """Return which limit forbids any further model invocation, None while work may go on (D3)."""
    if job["cutoff_at"] is not None and job["cutoff_at"] <= now:
        return CloseCause.CUTOFF
    if job["processing_deadline"] is not None and job["processing_deadline"] <= now:
        return CloseCause.TIMEOUT
    return None


def _open_attempt(
    tx: LedgerTransaction, job_id: str, *, kind: AttemptKind, owner: str, run_id: str
) -> ClaimedJob:
    job = read_job(tx, job_id)
    assert job is not None
    number = tx.scalar(_COUNT_ATTEMPTS, {"of_job": job_id})
    tx.execute(
        insert(attempts),
        {
            "job_id": job_id,
            "lease_epoch": job["lease_epoch"],
            "attempt_no": int(number or 0) + 1,
            "kind": kind,
            "owner": owner,
            "run_id": run_id,
            "opened_at": tx.now(),
            "facts": {},
        },
    )
    append_event(
        tx,
        EventKind.CLAIMED,
        job_id=job_id,
        tenant=job["tenant"],
        lease_epoch=job["lease_epoch"],
        attempt_kind=kind.value,
        owner=owner,
        run_id=run_id or None,
    )
    listed = tx.rows(_ITEMS, {"of_job": job_id})
    return ClaimedJob(FencingToken(job_id, job["lease_epoch"]), kind, job, listed)


def _hold_unclosable(tx: LedgerTransaction, job: dict[str, Any], *, limits: Limits) -> None:
    if not hold_for_reconciliation(tx, job):
        return
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNKNOWN_EFFECT,
            subject=f"{job['job_id']}:closing",
            reopened_as=str(job["lease_epoch"]),
            job_id=job["job_id"],
            reason=ATTEMPTS_EXHAUSTED,
            suspected_effect="the checkpointed outcomes could not be published within the closing bound",
            allowed_repair="mend the object store, then `receipts reconcile`",
        ),
        limits=limits,
    )


def renew_lease(tx: LedgerTransaction, token: FencingToken, *, lease_ttl_s: float) -> bool:
    """Extend the lease of a live worker; False when a later epoch holds the job (R063)."""
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == token.job_id)
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.lease_epoch == token.lease_epoch)
        .where(jobs.c.lease_owner.is_not(None))
        .values(lease_expires_at=tx.now() + dt.timedelta(seconds=lease_ttl_s))
    )
    return written.rowcount == 1


@dataclass(frozen=True, slots=True)
class Requeued:
    """What a requeue did: who was fenced (None for nobody), from which epoch to which."""

    job_id: str
    changed: bool
    fenced: str | None
    epoch_before: int
    epoch: int
    phase: Phase


def requeue_job(tx: LedgerTransaction, *, job_id: str, actor: str) -> Requeued:
    """Take a running job from whoever holds it and make it ready at once, under the next epoch (R070).

    It spends no budget and charges no item; finished items stay. A job that waits for its first claim
    has no writer, so nothing is changed.

    Raises:
        NotAllowed: STATE.REFUSES.v1 for a closed job; RESULT.QUARANTINED.v1 or UPLOAD.UNKNOWN.v1 while
            it is held: only the decision or the look-up lets it go on.
    """
    job = read_job(tx, job_id, lock=True)
    assert job is not None, job_id
    if job["state"] in TERMINAL_STATES:
        raise NotAllowed(STATE_REFUSES, job_id=job_id, state=job["state"])
    for phase, reason in ((Phase.QUARANTINED, RESULT_QUARANTINED), (Phase.RECONCILING, UPLOAD_UNKNOWN)):
        if job["phase"] == phase:
            raise NotAllowed(reason, job_id=job_id, phase=phase.value)
    if job["state"] == JobState.ACCEPTED:
        epoch = int(job["lease_epoch"])
        return Requeued(job_id, False, None, epoch, epoch, Phase(job["phase"]))
    return _fence(tx, job, actor=actor)


def _fence(tx: LedgerTransaction, job: dict[str, Any], *, actor: str) -> Requeued:
    job_id, epoch = job["job_id"], int(job["lease_epoch"])
    phase = Phase.CLOSING if job["close_cause"] is not None else Phase.QUEUED
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.lease_epoch == epoch)
        .values(
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=None,
            lease_expires_at=None,
            retry_at=None,
            wave_id=None,
            phase=phase,
        )
    )
    assert written.rowcount == 1, "the row was locked"
    close_attempt(tx, job_id, lease_epoch=epoch, outcome=AttemptOutcome.REQUEUED)
    append_event(
        tx,
        EventKind.REQUEUED,
        job_id=job_id,
        tenant=job["tenant"],
        lease_epoch=epoch + 1,
        fenced=job["lease_owner"],
        by=actor,
    )
    return Requeued(job_id, True, job["lease_owner"], epoch, epoch + 1, phase)
