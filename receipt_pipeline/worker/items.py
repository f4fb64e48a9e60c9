"""Process items from the checkpoint on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import exists, or_, select

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.failure_points import altered, point
from receipt_pipeline.core.items import EarlierItem, ItemClass, ItemContext, ItemOutcome
from receipt_pipeline.core.lifecycle import CloseCause, JobState
from receipt_pipeline.core.reasons import INPUT_CHANGED, INPUT_GONE, Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.checkpoint import Checkpoint, FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import AttemptKind
from receipt_pipeline.ledger.jobs.failures import yield_job
from receipt_pipeline.ledger.jobs.publication import close_own_overdue_items
from receipt_pipeline.ledger.rows import ItemRow
from receipt_pipeline.ledger.schema.effects import quarantine, tombstones
from receipt_pipeline.ledger.schema.jobs import items, jobs
from receipt_pipeline.objects.store import scan_key
from receipt_pipeline.worker.attempt import Attempt, Stop
from receipt_pipeline.worker.context import Classifier, Worker


def unfinished(attempt: Attempt) -> list[ItemRow]:
    """Return the items of the claim that have no class yet, in order; a closing attempt computes none."""
    if attempt.claimed.kind is AttemptKind.CLOSING:
        return []
    return [item for item in attempt.claimed.items if item.item_class is None]


def run_items(attempt: Attempt) -> Stop:
    """Work off what is unfinished and commit every outcome at its boundary.

    At least one item is finished before the worker yields, so that short slices still come to an end.

    Returns:
        PUBLISH when nothing is left to compute (also when a limit overtook the rest, D4), YIELDED or
        HELD when the job has left this worker.
    Raises:
        LeaseLost: a later epoch holds the job; the refused write is recorded.
        StageFailed: a stage gave no answer. ObjectFault: the store could not be read.
        IdentityMismatch: a stage or artefact is not the pinned one.
    """
    for item in attempt.claimed.items:
        _remember(attempt, item, fields=item.fields or {}, evidence=item.evidence or {})
    finished: FinishedItem | None = None
    for item in unfinished(attempt):
        if finished is not None and attempt.must_yield():
            return _give_back(attempt, finished)
        boundary = _pass(attempt, finished, item.ordinal)
        if boundary.held:
            return Stop.HELD
        if boundary.limit_reached is not None:
            return _overtaken(attempt, boundary.limit_reached)
        finished = _work_off(attempt, item)
    if finished is None:
        return Stop.PUBLISH
    return Stop.HELD if _pass(attempt, finished, None).held else Stop.PUBLISH


def _pass(attempt: Attempt, finished: FinishedItem | None, next_ordinal: int | None) -> Checkpoint:
    """Commit the finished item and begin the next in one transaction; both boundaries are marked."""
    if finished is not None:
        point("checkpoint.before")
    if next_ordinal is not None:
        point("begin.before")
    kind = "begin" if finished is None else "checkpoint"
    ordinal = finished.ordinal if finished else None
    outcome = finished.outcome if finished else None
    digest = outcome.outcome_digest if outcome else None
    with attempt.writing(kind, ordinal=ordinal, digest=digest, outcome=outcome) as tx:
        boundary = write_checkpoint(
            tx, attempt.token, finished=finished, next_ordinal=next_ordinal, limits=attempt.worker.limits
        )
    if finished is not None:
        attempt.items_done += 1
        item = next(item for item in attempt.claimed.items if item.ordinal == finished.ordinal)
        _remember(attempt, item, fields=finished.outcome.fields, evidence=finished.outcome.evidence)
        point("checkpoint.after")
    if next_ordinal is not None:
        point("begin.after")
    return boundary


def _give_back(attempt: Attempt, finished: FinishedItem) -> Stop:
    """Yield at the boundary: commit the finished item, release the lease, spend no budget."""
    boundary = _pass(attempt, finished, None)
    if boundary.held:
        return Stop.HELD
    if boundary.limit_reached is not None:
        return _overtaken(attempt, boundary.limit_reached)
    point("yield.before")
    with attempt.writing("yield") as tx:
        attempt.record_facts(tx)
        yield_job(tx, attempt.token)
    point("yield.after")
    return Stop.YIELDED


def _overtaken(attempt: Attempt, cause: CloseCause) -> Stop:
    """Class the items that a limit overtook; what is kept is published by this very attempt."""
    with attempt.writing("close") as tx:
        close_own_overdue_items(tx, attempt.token, cause=cause)
    return Stop.PUBLISH


def _work_off(attempt: Attempt, item: ItemRow) -> FinishedItem:
    """Return the outcome of one begun item; nothing of it is written yet."""
    started = attempt.worker.monotonic()
    finished = _finish(attempt, item)
    attempt.meter.item_took(item.ordinal, attempt.worker.monotonic() - started)
    attempt.beats.progressed()
    return finished


def _finish(attempt: Attempt, item: ItemRow) -> FinishedItem:
    ordinal = item.ordinal
    scan = _read_scan(attempt, item)
    if isinstance(scan, Reason):
        refused = ItemOutcome(item_class=ItemClass.REJECTED, reason_code=scan.code)
        return FinishedItem(ordinal=ordinal, outcome=refused, invocations=0)
    kept = keep_unchanged(attempt.worker, item)
    if kept is not None:
        return FinishedItem(ordinal=ordinal, outcome=kept.outcome, invocations=0, kept_decision_id=kept.decision_id)
    chain = _chain(attempt)
    point("model.before")
    outcome = chain.classify(
        scan,
        duplicate_bytes=item.earlier_job_id is not None,
        on_page=attempt.beats.progressed,
        context=_context(attempt, ordinal),
    )
    outcome = altered("model.change_output", outcome)
    point("model.after")
    return FinishedItem(ordinal=ordinal, outcome=outcome, invocations=1)


def _context(attempt: Attempt, ordinal: int) -> ItemContext:
    """Return what the job says of the item of this ordinal.

    Items are worked off in the accepted order and each outcome is committed before the next item begins, so
    whoever computes this one, and on whichever try, finds the same outcomes before it.
    """
    earlier = tuple(item for at, item in sorted(attempt.printed.items()) if at < ordinal)
    return ItemContext(accepted_at=attempt.claimed.job.submitted_at, earlier=earlier)


def _remember(attempt: Attempt, item: ItemRow, *, fields: Mapping[str, Any], evidence: Mapping[str, Any]) -> None:
    """Keep the print that a committed outcome holds, for the items after it."""
    if "scan_print" in evidence:
        attempt.printed[item.ordinal] = EarlierItem(item.item_id, fields, evidence["scan_print"])


def _read_scan(attempt: Attempt, item: ItemRow) -> bytes | Reason:
    """Return the bytes that were accepted, or why there are none: never a newer file.

    Raises:
        ObjectFault: the scan is there but cannot be read now.
    """
    objects = attempt.worker.objects
    key = scan_key(item.tenant, item.sha256)
    try:
        data = objects.read(key)
    except ObjectFault:
        if objects.stat(key) is None:
            return INPUT_GONE
        raise
    return data if digest_of_bytes(data) == item.sha256 else INPUT_CHANGED


def _chain(attempt: Attempt) -> Classifier:
    """Return the chain of the job's pins; a claim that was not expected to compute loads it now."""
    if attempt.chain is None:
        job = attempt.claimed.job
        attempt.chain = attempt.worker.chains(job.pins)
    return attempt.chain


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """An earlier item's outcome, kept as `unchanged`, with the decision ID under which it was decided."""

    outcome: ItemOutcome
    decision_id: str


def keep_unchanged(worker: Worker, item: ItemRow) -> KeptDecision | None:
    """Return the decision that this item keeps, None when it has to be computed.

    Acceptance froze which earlier item is alike (same caller, explicit id, bytes and pins). It counts
    when it is classified in a succeeded job that was never quarantined, and that job's result object is
    in the store at this moment with the digest of the ledger. Where this job asks for review tasks, the
    earlier one has to have asked for them too: what is kept makes no task of its own.
    """
    if not item.earlier_alike:
        return None
    with worker.ledger.reading() as tx:
        earlier = _earlier_item(tx, item)
    if earlier is None or earlier.item.sha256 != item.sha256:
        return None
    if worker.objects.digest(earlier.result_key) != (earlier.result_digest, earlier.result_size_bytes):
        return None
    outcome = replace(earlier.item.outcome, item_class=ItemClass.UNCHANGED)
    return KeptDecision(outcome, earlier.item.decision_id)


@dataclass(frozen=True, slots=True)
class _Earlier:
    """An earlier item and the result object that holds its outcome."""

    item: ItemRow
    result_key: str
    result_digest: str
    result_size_bytes: int


def _earlier_item(tx: LedgerTransaction, item: ItemRow) -> _Earlier | None:
    asking = jobs.alias("asking")
    asks_no_tasks = exists(
        select(asking.c.job_id).where(asking.c.job_id == item.job_id, asking.c.review_tasks == EffectDemand.NONE)
    )
    row = tx.row(
        select(items, jobs.c.result_key, jobs.c.result_digest, jobs.c.result_size_bytes)
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .where(
            items.c.job_id == item.earlier_job_id,
            items.c.ordinal == item.earlier_ordinal,
            items.c.item_class == ItemClass.CLASSIFIED,
            jobs.c.state == JobState.SUCCEEDED,
            jobs.c.job_id.not_in(select(quarantine.c.job_id)),
            # A decision that required no review task is none for a job that asks for tasks.
            or_(jobs.c.review_tasks != EffectDemand.NONE, asks_no_tasks),
            jobs.c.result_key.not_in(select(tombstones.c.object_key)),
        )
    )
    if row is None:
        return None
    result = {name: row.pop(name) for name in ("result_key", "result_digest", "result_size_bytes")}
    return _Earlier(ItemRow.from_row(row), **result)
