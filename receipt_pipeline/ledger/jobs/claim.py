"""Claim, renew and requeue a job."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import func, insert, or_, select, update

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
from receipt_pipeline.ledger.jobs.finalize import AttemptEnd, close_attempt
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import ItemRow, JobRow, read_items, read_job
from receipt_pipeline.ledger.schema.jobs import attempts, jobs


class AttemptKind(StrEnum):
    """A work attempt may invoke the model; a closing attempt computes nothing."""

    WORK = "work"
    CLOSING = "closing"


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A claimed job: the token for every write, its row, and its items in order."""

    token: FencingToken
    kind: AttemptKind
    job: JobRow
    items: list[ItemRow]


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """Why the claim was not granted; the worker continues with its next job."""

    job_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Claimant:
    """The worker that asks for a job, and the Dagster run it works in ("" for none)."""

    owner: str
    run_id: str


def claim_job(
    tx: LedgerTransaction, *, job_id: str, owner: str, run_id: str, limits: Limits
) -> ClaimedJob | ClaimRefused:
    """Claim one job, or return why not. A first claim past the queue deadline expires the job here.

    Taking over an expired lease counts the lost attempt first, then claims in the same transaction
    when the job is ready immediately (closing) and otherwise leaves it to its retry time.
    """
    job = read_job(tx, job_id, lock=True)
    claimant = Claimant(owner, run_id)
    if job is not None and job.state is JobState.ACCEPTED:
        return _first_claim(tx, job, claimant, limits=limits)
    if job is not None and job.state is JobState.RUNNING:
        return _later_claim(tx, job, claimant, limits=limits)
    return ClaimRefused(job_id, NOT_CLAIMABLE)


def _first_claim(
    tx: LedgerTransaction, job: JobRow, claimant: Claimant, *, limits: Limits
) -> ClaimedJob | ClaimRefused:
    now = tx.now()
    claimed = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == job.job_id,
            jobs.c.state == JobState.ACCEPTED,  # edge (ACCEPTED, CLAIM)
            jobs.c.queue_deadline >= now,  # the exact complement of expiry
        )
        .values(
            state=JobState.RUNNING,
            phase=Phase.WORKING,
            claimed_at=now,
            checkpoint_at=now,
            processing_deadline=now + dt.timedelta(seconds=job.processing_timeout_s),
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=claimant.owner,
            lease_expires_at=now + dt.timedelta(seconds=limits.work.lease_ttl_s),
        )
    )
    if claimed.rowcount == 1:
        return _open_attempt(tx, job.job_id, AttemptKind.WORK, claimant)
    expired = expire_job(tx, job_id=job.job_id, limits=limits)
    return ClaimRefused(job.job_id, QUEUE_AGE_REACHED if expired else NOT_CLAIMABLE)


def _later_claim(
    tx: LedgerTransaction, job: JobRow, claimant: Claimant, *, limits: Limits
) -> ClaimedJob | ClaimRefused:
    job_id = job.job_id
    if job.lease_owner is not None and not lose_lease(tx, job_id=job_id, seen_epoch=job.lease_epoch, limits=limits):
        return ClaimRefused(job_id, NOT_CLAIMABLE)
    now = tx.now()
    job = read_job(tx, job_id) or job
    if not _is_ready(job, now):
        return ClaimRefused(job_id, NOT_CLAIMABLE)
    cause = limit_reached(job, now)
    if job.close_cause is None and cause is not None:
        close_overdue_job(tx, job_id=job_id, cause=cause)
        job = read_job(tx, job_id) or job
    closing = job.close_cause is not None
    if closing and job.closing_attempts >= limits.work.closing_attempts_max:
        _hold_unclosable(tx, job, limits=limits)
        return ClaimRefused(job_id, ATTEMPTS_EXHAUSTED)
    claimed = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == job_id,
            jobs.c.state == JobState.RUNNING,  # edge (RUNNING, CLAIM)
            jobs.c.lease_epoch == job.lease_epoch,
            jobs.c.lease_owner.is_(None),
            jobs.c.phase.not_in(HELD_PHASES),
            or_(jobs.c.retry_at.is_(None), jobs.c.retry_at <= now),
        )
        .values(
            phase=Phase.CLOSING if closing else Phase.WORKING,
            checkpoint_at=now,
            retry_at=None,
            closing_attempts=job.closing_attempts + (1 if closing else 0),
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=claimant.owner,
            lease_expires_at=now + dt.timedelta(seconds=limits.work.lease_ttl_s),
        )
    )
    if claimed.rowcount == 0:
        return ClaimRefused(job_id, NOT_CLAIMABLE)
    return _open_attempt(tx, job_id, AttemptKind.CLOSING if closing else AttemptKind.WORK, claimant)


def _is_ready(job: JobRow, now: dt.datetime) -> bool:
    return (
        job.state is JobState.RUNNING
        and job.lease_owner is None
        and (job.retry_at is None or job.retry_at <= now)
        and job.phase not in HELD_PHASES
    )


def limit_reached(job: JobRow, now: dt.datetime) -> CloseCause | None:
    """Return which limit forbids any further model invocation, None while work may continue."""
    if job.cutoff_at is not None and job.cutoff_at <= now:
        return CloseCause.CUTOFF
    if job.processing_deadline is not None and job.processing_deadline <= now:
        return CloseCause.TIMEOUT
    return None


def _open_attempt(tx: LedgerTransaction, job_id: str, kind: AttemptKind, claimant: Claimant) -> ClaimedJob:
    job = read_job(tx, job_id)
    assert job is not None
    earlier = tx.scalar(select(func.count()).select_from(attempts).where(attempts.c.job_id == job_id))
    tx.execute(
        insert(attempts).values(
            job_id=job_id,
            lease_epoch=job.lease_epoch,
            attempt_no=int(earlier or 0) + 1,
            kind=kind,
            owner=claimant.owner,
            run_id=claimant.run_id,
            opened_at=tx.now(),
            facts={},
        )
    )
    append_event(
        tx,
        EventKind.CLAIMED,
        job_id=job_id,
        tenant=job.tenant,
        lease_epoch=job.lease_epoch,
        attempt_kind=kind.value,
        owner=claimant.owner,
        run_id=claimant.run_id or None,
    )
    return ClaimedJob(job.token, kind, job, read_items(tx, job_id))


def _hold_unclosable(tx: LedgerTransaction, job: JobRow, *, limits: Limits) -> None:
    if not hold_for_reconciliation(tx, job):
        return
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNKNOWN_EFFECT,
            subject=f"{job.job_id}:closing",
            reopened_as=str(job.lease_epoch),
            job_id=job.job_id,
            reason=ATTEMPTS_EXHAUSTED,
            suspected_effect="the checkpointed outcomes could not be published within the closing bound",
            allowed_repair="repair the object store, then `receipts reconcile`",
        ),
        limits=limits,
    )


def renew_lease(tx: LedgerTransaction, token: FencingToken, *, lease_ttl_s: float) -> bool:
    """Extend the lease of a live worker; False when a later epoch holds the job."""
    renewed = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == token.job_id,
            jobs.c.state == JobState.RUNNING,
            jobs.c.lease_epoch == token.lease_epoch,
            jobs.c.lease_owner.is_not(None),
        )
        .values(lease_expires_at=tx.now() + dt.timedelta(seconds=lease_ttl_s))
    )
    return renewed.rowcount == 1


@dataclass(frozen=True, slots=True)
class Requeued:
    """What a requeue did: which worker lost the job (None for none), from which epoch to which."""

    job_id: str
    changed: bool
    fenced: str | None
    epoch_before: int
    epoch: int
    phase: Phase


def requeue_job(tx: LedgerTransaction, *, job_id: str, actor: str) -> Requeued:
    """Take a running job from its worker and make it ready immediately, under the next epoch.

    It spends no budget and counts no failure; finished items stay. A job that waits for its first claim
    has no writer, so nothing is changed.

    Raises:
        NotAllowed: STATE.REFUSES.v1 for a closed job; RESULT.QUARANTINED.v1 or UPLOAD.UNKNOWN.v1 while
            it is held: only the decision or the look-up lets it continue.
    """
    job = read_job(tx, job_id, lock=True)
    assert job is not None, job_id
    if job.state in TERMINAL_STATES:
        raise NotAllowed(STATE_REFUSES, job_id=job_id, state=job.state)
    for phase, reason in ((Phase.QUARANTINED, RESULT_QUARANTINED), (Phase.RECONCILING, UPLOAD_UNKNOWN)):
        if job.phase is phase:
            raise NotAllowed(reason, job_id=job_id, phase=phase.value)
    if job.state is JobState.ACCEPTED:
        return Requeued(job_id, False, None, job.lease_epoch, job.lease_epoch, job.phase)
    phase = Phase.CLOSING if job.close_cause is not None else Phase.QUEUED
    fenced = tx.execute(
        update(jobs)
        .where(
            jobs.c.job_id == job_id,
            jobs.c.state == JobState.RUNNING,  # edge (RUNNING, REQUEUE)
            jobs.c.lease_epoch == job.lease_epoch,
        )
        .values(
            phase=phase,
            retry_at=None,
            wave_id=None,
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=None,
            lease_expires_at=None,
        )
    )
    assert fenced.rowcount == 1, "the row was locked"
    close_attempt(tx, job.token, AttemptEnd(AttemptOutcome.REQUEUED))
    append_event(
        tx,
        EventKind.REQUEUED,
        job_id=job_id,
        tenant=job.tenant,
        lease_epoch=job.lease_epoch + 1,
        fenced=job.lease_owner,
        by=actor,
    )
    return Requeued(job_id, True, job.lease_owner, job.lease_epoch, job.lease_epoch + 1, phase)
