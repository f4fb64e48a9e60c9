"""Publishes what the checkpoints hold: intent, upload, read-back, then the terminal record."""

from __future__ import annotations

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.effects import EffectState
from receipt_pipeline.core.errors import ObjectFault, PipelineError
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass
from receipt_pipeline.core.reasons import RESULT_MISMATCH, UPLOAD_FAILED, UPLOAD_UNKNOWN, Reason
from receipt_pipeline.core.result_document import ResultDocument, ResultItem
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult, close_without_result, commit_result
from receipt_pipeline.ledger.jobs.publication import record_intent, record_upload_state, uploads_of
from receipt_pipeline.ledger.rows import ItemRow, read_items
from receipt_pipeline.objects.store import result_key
from receipt_pipeline.worker.attempt import Attempt, Stop


def publish(attempt: Attempt) -> Stop:
    """Close the job on a verified object, or without one where no item was kept.

    The policy for what an earlier attempt left behind: its keys are looked up first, and an
    object there that hashes to the very result is published under its own key instead of a second
    upload; anything else stays unnamed under its intent row. An intent for other bytes is a divergence
    and holds the job. Within one attempt there is one put: when it fails, the key is looked up; the
    right object there counts as stored, certain absence fails the attempt, and a look-up that gives no
    answer leaves the effect unknown for a later attempt, which looks up before it puts.

    Returns:
        CLOSED, or HELD when divergent outputs quarantined the job.
    Raises:
        ObjectFault: UPLOAD.FAILED.v1, UPLOAD.UNKNOWN.v1 or RESULT.MISMATCH.v1, as recorded on the effect.
        LeaseLost: a later epoch holds the job; no object of this attempt is named by the ledger.
    """
    document = read_result_document(attempt)
    if not any(document.counts[kept] for kept in KEPT_CLASSES):
        return _close_without_result(attempt)
    data = document.encode()
    result = VerifiedResult(key="", digest=digest_of_bytes(data), size_bytes=len(data))
    stored_key = _stored_earlier(attempt, result)
    key = stored_key or result_key(attempt.token.job_id, attempt.token.lease_epoch, result.digest)
    result = VerifiedResult(key=key, digest=result.digest, size_bytes=result.size_bytes)
    if not _intend(attempt, result):
        return Stop.HELD
    if stored_key is None:
        _upload(attempt, result, data)
    _read_back(attempt, result)
    point("commit.before")
    with attempt.writing("commit", digest=result.digest) as tx:
        attempt.record_facts(tx)
        commit_result(tx, attempt.token, result, limits=attempt.worker.limits)
    point("commit.after")
    return Stop.CLOSED


def read_result_document(attempt: Attempt) -> ResultDocument:
    """Return the result from the ledger's rows: every item of the accepted scope has its class."""
    job = attempt.claimed.job
    with attempt.worker.ledger.reading() as tx:
        rows = read_items(tx, job.job_id)
    return ResultDocument(job_id=job.job_id, pins=job.pins, items=tuple(_result_item(row) for row in rows))


def _result_item(row: ItemRow) -> ResultItem:
    return ResultItem(
        ordinal=row.ordinal,
        item_id=row.item_id,
        decision_id=row.decision_id,
        sha256=row.sha256,
        outcome=row.outcome,
        outcome_digest=row.outcome_digest,
        unchanged_from=row.earlier_job_id if row.item_class is ItemClass.UNCHANGED else None,
    )


def _close_without_result(attempt: Attempt) -> Stop:
    point("commit.before")
    with attempt.writing("close") as tx:
        attempt.record_facts(tx)
        close_without_result(tx, attempt.token, limits=attempt.worker.limits)
    point("commit.after")
    return Stop.CLOSED


def _stored_earlier(attempt: Attempt, result: VerifiedResult) -> str | None:
    """Return the key under which an earlier attempt stored these very bytes, None when none did.

    Raises:
        ObjectFault: UPLOAD.UNKNOWN.v1 when a look-up gives no answer.
    """
    with attempt.worker.ledger.reading() as tx:
        earlier = uploads_of(tx, attempt.token.job_id)
    for row in earlier:
        if row.expected_digest != result.digest or row.state == EffectState.ABANDONED:
            continue
        if _is_stored(attempt, row.idempotency_key, result):
            return row.idempotency_key
    return None


def _is_stored(attempt: Attempt, key: str, result: VerifiedResult) -> bool:
    """Look a key up; an unknown answer is recorded on its effect and raised."""
    try:
        return attempt.worker.objects.digest(key) == (result.digest, result.size_bytes)
    except (PipelineError, OSError) as fault:
        _record_state(attempt, key, EffectState.UNKNOWN, UPLOAD_UNKNOWN)
        raise ObjectFault(UPLOAD_UNKNOWN, key=key) from fault


def _intend(attempt: Attempt, result: VerifiedResult) -> bool:
    point("intent.before")
    with attempt.writing("intent", digest=result.digest) as tx:
        intended = record_intent(tx, attempt.token, result, limits=attempt.worker.limits)
    point("intent.after")
    return intended


def _upload(attempt: Attempt, result: VerifiedResult, data: bytes) -> None:
    """Put the object once; after an error, look it up before anything is said about it."""
    try:
        point("upload.before")
        attempt.worker.objects.put(result.key, data)
        point("upload.after")
    except (PipelineError, OSError) as fault:
        if not _is_stored(attempt, result.key, result):
            _record_state(attempt, result.key, EffectState.FAILED, UPLOAD_FAILED)
            raise ObjectFault(UPLOAD_FAILED, key=result.key) from fault
    attempt.beats.progressed()


def _read_back(attempt: Attempt, result: VerifiedResult) -> None:
    """Read the stored object again: success is a verified object, never an answered put."""
    point("read_back.before")
    if not _is_stored(attempt, result.key, result):
        _record_state(attempt, result.key, EffectState.FAILED, RESULT_MISMATCH)
        raise ObjectFault(RESULT_MISMATCH, key=result.key)
    point("read_back.after")
    attempt.beats.progressed()


def _record_state(attempt: Attempt, key: str, state: EffectState, reason: Reason) -> None:
    with attempt.worker.ledger.transaction() as tx:
        record_upload_state(tx, key=key, state=state, reason=reason)
