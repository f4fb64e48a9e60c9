"""Hold divergent outputs that were found late, and apply the decision about held ones."""

from __future__ import annotations

from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import NotFound, ObjectFault
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.reasons import NOT_FOUND
from receipt_pipeline.core.result_document import parse_result
from receipt_pipeline.ledger.invariants.invariant import find
from receipt_pipeline.ledger.invariants.objects import DIVERGENCE_IS_HELD, RESULT
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult
from receipt_pipeline.ledger.jobs.publication import uploads_of
from receipt_pipeline.ledger.jobs.quarantine import (
    DecisionNote,
    competing_digests,
    hold_divergent,
    keep_output,
    open_quarantines,
    withdraw_output,
)
from receipt_pipeline.ledger.rows import ItemRow, JobRow, read_items, read_job
from receipt_pipeline.reconciliation.context import ReconciliationContext


def hold_divergence(context: ReconciliationContext) -> list[str]:
    """Quarantine every subject whose digests differ and that nothing holds yet; returns the job ids."""
    with context.ledger.reading() as tx:
        found = find(tx, DIVERGENCE_IS_HELD, context.bounds()).rows
    subjects: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in found:
        subjects.setdefault((row["job_id"], row["subject"]), []).append(row)
    held = []
    for (job_id, subject), rows in subjects.items():
        point("quarantine.before")
        with context.ledger.transaction() as tx:
            listed = {entry["digest"] for entry in competing_digests(tx, job_id=job_id, subject=subject)}
            further = _further(rows, listed)
            if hold_divergent(tx, job_id=job_id, subject=subject, limits=context.limits, further=further):
                held.append(job_id)
        point("quarantine.after")
    return held


def _further(rows: list[dict[str, Any]], listed: set[str]) -> list[dict[str, Any]]:
    """Return the digests that only this comparison knows, each once, with who wrote it."""
    entries: dict[str, dict[str, Any]] = {}
    for row in rows:
        for digest, source in ((row["other_digest"], row["source"]), (row["known_digest"], "intent")):
            if digest not in listed:
                entries.setdefault(digest, {"digest": digest, "source": source, "lease_epoch": row["lease_epoch"]})
    return list(entries.values())


def resolve_quarantine(
    context: ReconciliationContext,
    *,
    job_id: str,
    actor: str,
    keep: str | None = None,
    withdraw: bool = False,
    note: str = "",
) -> None:
    """Record the decision about a job's divergent outputs; both outputs stay readable under their keys.

    Args:
        keep: the full digest of the output to keep; give it or `withdraw`, not both.
        note: what the person found; the investigation records it with the decision.
    Raises:
        NotFound: no such job. InputRefused: QUARANTINE.DIGEST_UNKNOWN.v1. NotAllowed:
            QUARANTINE.OUTPUT_NOT_HELD.v1 or STATE.REFUSES.v1, see `keep_output`.
    """
    assert (keep is None) == withdraw, "either a digest is kept or the result is withdrawn"
    verified = _verified(context, job_id, keep) if keep is not None else None
    point("quarantine.before")
    with context.ledger.transaction() as tx:
        if read_job(tx, job_id) is None:
            raise NotFound(NOT_FOUND, job_id=job_id)
        if keep is None:
            withdraw_output(tx, job_id=job_id, note=DecisionNote(actor, note), limits=context.limits)
        else:
            keep_output(
                tx, job_id=job_id, digest=keep, note=DecisionNote(actor, note), limits=context.limits, verified=verified
            )
    point("quarantine.after")


def _verified(context: ReconciliationContext, job_id: str, digest: str) -> VerifiedResult | None:
    """Read the stored upload of an open job that has this digest and says what the ledger's items say."""
    with context.ledger.reading() as tx:
        job = read_job(tx, job_id)
        if job is None or job.state in TERMINAL_STATES:
            return None
        if not any(row["subject"] == RESULT for row in open_quarantines(tx, job_id)):
            return None
        rows = read_items(tx, job_id)
        uploads = [row for row in uploads_of(tx, job_id) if row.expected_digest == digest]
    for upload in uploads:
        key = upload.idempotency_key
        try:
            data = context.objects.read(key)
            if digest_of_bytes(data) == digest and _agrees(data, job, rows):
                return VerifiedResult(key=key, digest=digest, size_bytes=len(data))
        except ObjectFault:
            # Bytes that cannot be read, or are no result, are not held.
            continue
    return None


def _agrees(data: bytes, job: JobRow, rows: list[ItemRow]) -> bool:
    document = parse_result(data)
    stated = [
        (item.ordinal, item.decision_id, item.outcome.item_class.value, item.outcome_digest) for item in document.items
    ]
    committed = [(row.ordinal, row.decision_id, row.item_class, row.outcome_digest) for row in rows]
    pins = job.pins
    return (document.job_id, document.pins, stated) == (job.job_id, pins, committed)
