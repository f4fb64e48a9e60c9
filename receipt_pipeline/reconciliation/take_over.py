"""Take over expired leases and look up unknown uploads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.effects import EffectState
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.reasons import RESULT_MISMATCH, RESULT_MISSING, Reason
from receipt_pipeline.ledger.effects.outbox import settle_answered
from receipt_pipeline.ledger.jobs.failures import expired_leases, lose_lease, reconciling_jobs, release_held
from receipt_pipeline.ledger.jobs.publication import record_upload_state, undecided_uploads
from receipt_pipeline.reconciliation.context import JOBS_BATCH_MAX, Reconciler


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What looking up unknown uploads led to: keys decided, keys without answer, jobs released."""

    decided: tuple[str, ...]
    unanswered: tuple[str, ...]
    released: tuple[str, ...]


def take_expired_leases(services: Reconciler) -> list[str]:
    """Charge every lease that ended without a release; a renewal in between wins."""
    with services.ledger.reading() as tx:
        expired = expired_leases(tx, limit=JOBS_BATCH_MAX)
    taken = []
    for row in expired:
        point("takeover.before")
        with services.ledger.transaction() as tx:
            if lose_lease(tx, job_id=row["job_id"], seen_epoch=row["lease_epoch"], limits=services.limits):
                taken.append(row["job_id"])
        point("takeover.after")
    return taken


def look_up_uploads(services: Reconciler, *, granted: bool = False) -> LookedUp:
    """Ask the store about uploads nobody knows the end of, then let their jobs go on (R091, R104).

    An upload that is there with its digest stays as it is: the closing attempt publishes it without a
    second put. One that is certainly absent, or that left other bytes, is abandoned, and the closing
    attempt stores the result under its own key. Without an answer the job stays held.

    Args:
        granted: a person asked, so jobs whose closing bound is spent get a new one.
    """
    with services.ledger.reading() as tx:
        uploads = undecided_uploads(tx, limit=JOBS_BATCH_MAX)
    decided, unanswered = [], []
    blocked: set[str] = set()
    for row in uploads:
        key = row["idempotency_key"]
        try:
            verdict = _verdict(services, row)
        except ObjectFault:
            unanswered.append(key)
            blocked.add(row["job_id"])
            continue
        if _record(services, row, verdict):
            decided.append(key)
    return LookedUp(tuple(decided), tuple(unanswered), _release(services, blocked, granted=granted))


def settle_answered_messages(services: Reconciler) -> list[str]:
    """Give up unknown notifications about which a person has recorded an answer; returns message ids."""
    with services.ledger.transaction() as tx:
        return settle_answered(tx, limit=JOBS_BATCH_MAX)


def _verdict(services: Reconciler, row: Mapping[str, Any]) -> Reason | None:
    """Return None when the object is there and right, else what is wrong with it."""
    found = services.objects.digest(row["idempotency_key"])
    if found is None:
        return RESULT_MISSING
    return None if found == (row["expected_digest"], row["size_bytes"]) else RESULT_MISMATCH


def _record(services: Reconciler, row: Mapping[str, Any], verdict: Reason | None) -> bool:
    """Abandon what is not there, and what a closed job does not name; True when that is new."""
    if verdict is None and not row["closed"]:
        return False
    with services.ledger.transaction() as tx:
        record_upload_state(tx, key=row["idempotency_key"], state=EffectState.ABANDONED, reason=verdict)
    return True


def _release(services: Reconciler, blocked: set[str], *, granted: bool) -> tuple[str, ...]:
    with services.ledger.reading() as tx:
        held = reconciling_jobs(tx, limit=JOBS_BATCH_MAX)
    released = []
    for row in held:
        if row["job_id"] in blocked:
            continue
        with services.ledger.transaction() as tx:
            if release_held(
                tx,
                job_id=row["job_id"],
                seen_epoch=row["lease_epoch"],
                granted=granted,
                limits=services.limits,
            ):
                released.append(row["job_id"])
    return tuple(released)
