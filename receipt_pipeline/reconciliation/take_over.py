"""Take over expired leases and look up unknown uploads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.effects import EffectState
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.reasons import RESULT_MISMATCH, RESULT_MISSING, Reason
from receipt_pipeline.ledger.effects.outbox import apply_lookup
from receipt_pipeline.ledger.jobs.failures import expired_leases, lose_lease, reconciling_jobs, release_held
from receipt_pipeline.ledger.jobs.publication import record_upload_state, undecided_uploads
from receipt_pipeline.reconciliation.context import JOBS_BATCH_MAX, ReconciliationContext


@dataclass(frozen=True, slots=True)
class UploadLookups:
    """What looking up unknown uploads led to: keys decided, keys without answer, jobs released."""

    decided: tuple[str, ...]
    unanswered: tuple[str, ...]
    released: tuple[str, ...]


def take_over_expired_leases(context: ReconciliationContext) -> list[str]:
    """Count a lost attempt for every lease that ended without a release; a renewal in between wins."""
    with context.ledger.reading() as tx:
        expired = expired_leases(tx, limit=JOBS_BATCH_MAX)
    taken_over = []
    for row in expired:
        point("takeover.before")
        with context.ledger.transaction() as tx:
            if lose_lease(tx, job_id=row["job_id"], seen_epoch=row["lease_epoch"], limits=context.limits):
                taken_over.append(row["job_id"])
        point("takeover.after")
    return taken_over


def look_up_uploads(context: ReconciliationContext, *, granted: bool = False) -> UploadLookups:
    """Look up uploads whose outcome is unknown, then release their jobs.

    An upload that is present with its digest stays as it is: the closing attempt publishes it without a
    second put. One that is certainly absent, or that left other bytes, is abandoned, and the closing
    attempt stores the result under its own key. Without an answer the job stays held.

    Args:
        granted: a person requested it, so jobs whose closing bound is spent get a new one.
    """
    with context.ledger.reading() as tx:
        uploads = undecided_uploads(tx, limit=JOBS_BATCH_MAX)
    decided, unanswered = [], []
    blocked: set[str] = set()
    for row in uploads:
        key = row["idempotency_key"]
        try:
            verdict = _verdict(context, row)
        except ObjectFault:
            unanswered.append(key)
            blocked.add(row["job_id"])
            continue
        if _record(context, row, verdict):
            decided.append(key)
    return UploadLookups(tuple(decided), tuple(unanswered), _release(context, blocked, granted=granted))


def abandon_decided_messages(context: ReconciliationContext) -> list[str]:
    """Abandon unknown notifications about which a person has recorded an answer; returns message ids."""
    with context.ledger.transaction() as tx:
        return apply_lookup(tx, limit=JOBS_BATCH_MAX)


def _verdict(context: ReconciliationContext, row: Mapping[str, Any]) -> Reason | None:
    """Return None when the object is present and right, else what is wrong with it."""
    found = context.objects.digest(row["idempotency_key"])
    if found is None:
        return RESULT_MISSING
    return None if found == (row["expected_digest"], row["size_bytes"]) else RESULT_MISMATCH


def _record(context: ReconciliationContext, row: Mapping[str, Any], verdict: Reason | None) -> bool:
    """Abandon what is absent, and what a closed job does not name; True when that is new."""
    if verdict is None and not row["closed"]:
        return False
    with context.ledger.transaction() as tx:
        record_upload_state(tx, key=row["idempotency_key"], state=EffectState.ABANDONED, reason=verdict)
    return True


def _release(context: ReconciliationContext, blocked: set[str], *, granted: bool) -> tuple[str, ...]:
    with context.ledger.reading() as tx:
        held = reconciling_jobs(tx, limit=JOBS_BATCH_MAX)
    released = []
    for row in held:
        if row["job_id"] in blocked:
            continue
        with context.ledger.transaction() as tx:
            if release_held(
                tx, job_id=row["job_id"], seen_epoch=row["lease_epoch"], granted=granted, limits=context.limits
            ):
                released.append(row["job_id"])
    return tuple(released)
