"""Verify pins, then claim a job."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, func, select

from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.lifecycle import HELD_PHASES, JobState
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.reasons import IDENTITY_MISSING, IDENTITY_RETIRED, Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, ClaimRefused, claim_job, limit_reached
from receipt_pipeline.ledger.jobs.failures import close_for_identity, lose_lease
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.ledger.schema.jobs import items, releases
from receipt_pipeline.worker.attempt import host_skew_s
from receipt_pipeline.worker.context import Classifier, Outcome, Worker

# These pins name the installation itself: another worker may carry them, so nothing is closed for them.
INSTALLATION_PINS = frozenset({"image_digest", "chain_revision"})


@dataclass(frozen=True, slots=True)
class VerifiedClaim:
    """A claimed job, the loaded chain of its pins (None where nothing will be computed), the clock skew."""

    claimed: ClaimedJob
    chain: Classifier | None
    clock_skew_s: float


def claim_verified_job(worker: Worker, job_id: str) -> VerifiedClaim | Outcome:
    """Claim the job under proven identities, or say why not; business answers are never raised.

    A release that is retired, or whose artefact is missing or altered, closes the job as
    `failed/identity_failed` before any claim. A job that computes nothing any more (its items are
    finished, or a limit has overtaken it) needs no chain and is claimed without one.
    """
    with worker.ledger.reading() as tx:
        pins = _pins_to_prove(tx, job_id)
    chain: Classifier | None = None
    if pins is not None:
        try:
            chain = worker.chains(pins)
        except IdentityMismatch as error:
            return _refuse_identity(worker, job_id, error)
    point("claim.before")
    with worker.ledger.transaction() as tx:
        if pins is not None and _is_retired(tx, pins):
            return _close(tx, worker, job_id, reason=IDENTITY_RETIRED)
        skew_s = host_skew_s(tx.now())
        claimed = claim_job(tx, job_id=job_id, owner=worker.owner, run_id=worker.run_id, limits=worker.limits)
    point("claim.after")
    if isinstance(claimed, ClaimRefused):
        return Outcome.REFUSED
    return VerifiedClaim(claimed, chain, skew_s)


def _pins_to_prove(tx: LedgerTransaction, job_id: str) -> Pins | None:
    """Return the pins of a job that a claim at this moment would compute for, else None."""
    job = read_job(tx, job_id)
    if job is None or not _would_compute(tx, job):
        return None
    return job.pins


_COUNT_WAITING = (
    select(func.count())
    .select_from(items)
    .where(items.c.job_id == bindparam("of_job"))
    .where(items.c.item_class.is_(None))
)
_RETIRED_AT = select(releases.c.retired_at).where(releases.c.release_id == bindparam("release"))


def _would_compute(tx: LedgerTransaction, job: JobRow) -> bool:
    now = tx.now()
    if job.state == JobState.ACCEPTED:
        return bool(job.queue_deadline >= now)
    if job.state != JobState.RUNNING or job.phase in HELD_PHASES:
        return False
    if job.close_cause is not None or limit_reached(job, now) is not None:
        return False
    return bool(tx.scalar(_COUNT_WAITING, {"of_job": job.job_id}))


def _is_retired(tx: LedgerTransaction, pins: Pins) -> bool:
    return tx.scalar(_RETIRED_AT, {"release": pins.release_id}) is not None


def _refuse_identity(worker: Worker, job_id: str, error: IdentityMismatch) -> Outcome:
    artefact = error.facts.get("artefact")
    # A contract this code does not know is the installation's lack; one that the model contradicts is not.
    foreign = artefact == "feature_contract" and error.reason == IDENTITY_MISSING
    if artefact in INSTALLATION_PINS or foreign:
        return Outcome.NOT_CARRIED
    with worker.ledger.transaction() as tx:
        return _close(tx, worker, job_id, reason=error.reason)


def _close(tx: LedgerTransaction, worker: Worker, job_id: str, *, reason: Reason) -> Outcome:
    """Close for identity unless somebody holds the job; an expired lease is charged first."""
    job = read_job(tx, job_id, lock=True)
    if job is not None and job.lease_owner is not None:
        lose_lease(tx, job_id=job_id, seen_epoch=job.lease_epoch, limits=worker.limits)
    closed = close_for_identity(tx, job_id, reason=reason, limits=worker.limits)
    return Outcome.CLOSED if closed else Outcome.REFUSED
