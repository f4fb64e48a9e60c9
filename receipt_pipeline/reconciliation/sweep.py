"""Sweeps the object store in both directions and records what it saw; repeating it changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.ledger.effects.objects import (
    ObjectObservation,
    ObjectOutcome,
    expected_results,
    explained_keys,
    record_first_checks,
    record_object_check,
)
from receipt_pipeline.ledger.schema.effects import object_checks
from receipt_pipeline.reconciliation.compare import Depth, find_orphans, observe_result, observe_results
from receipt_pipeline.reconciliation.context import ReconciliationContext


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What a sweep looked at, and how much was new; the names are keys of `receipts reconcile --json`."""

    results_seen: int
    objects_listed: int
    faults: int
    newly_recorded: int


def sweep_objects(context: ReconciliationContext) -> SweepSummary:
    """Look at every result byte by byte and at every stored key, and record what changed."""
    results_seen, faults, recorded = _sweep_results(context, depth=Depth.CONTENT)
    listed, orphans, changed = sweep_orphans(context)
    return SweepSummary(results_seen, listed, faults + orphans, recorded + changed)


def sweep_results(context: ReconciliationContext, *, depth: Depth) -> int:
    """Look at every result at one depth and record what changed; returns how many are faults."""
    return _sweep_results(context, depth=depth)[1]


def _sweep_results(context: ReconciliationContext, *, depth: Depth) -> tuple[int, int, int]:
    looked_at = faults = recorded = 0
    for batch in observe_results(context, depth=depth):
        closer = batch if depth is Depth.CONTENT else _read_doubtful(context, batch)
        looked_at += len(batch)
        faults += sum(observation.is_fault for observation in closer)
        recorded += record_observations(context, closer)
    return looked_at, faults, recorded


def _read_doubtful(context: ReconciliationContext, batch: Sequence[ObjectObservation]) -> list[ObjectObservation]:
    """Read what is present but was never found right: its presence alone proves nothing."""
    known = _known_checks(context, batch)
    doubtful = {
        str(observation.job_id)
        for observation in batch
        if observation.outcome is None
        and (
            known.get(observation.object_key, {}).get("outcome") != ObjectOutcome.OK
            or observation.found_size_bytes != observation.expected_size_bytes
        )
    }
    with context.ledger.reading() as tx:
        expected = expected_results(tx, job_ids=doubtful, limit=len(doubtful)) if doubtful else []
    read = [observe_result(context, result, depth=Depth.CONTENT) for result in expected]
    return [observation for observation in batch if observation.outcome is not None] + read


def sweep_orphans(context: ReconciliationContext) -> tuple[int, int, int]:
    """Look at every stored key; returns how many there are, orphans among them, and new records."""
    listed = recorded = 0
    orphans: set[str] = set()
    for count, found in find_orphans(context):
        listed += count
        orphans |= {observation.object_key for observation in found}
        recorded += record_observations(context, found)
    return listed, len(orphans), recorded + _clear_orphans(context, remaining=orphans)


def record_observations(context: ReconciliationContext, observations: Iterable[ObjectObservation]) -> int:
    """Record what differs from the last look; returns how many rows were new or changed."""
    batch = list(observations)
    known = _known_checks(context, batch)
    first: list[ObjectObservation] = []
    changed: list[ObjectObservation] = []
    for observation in batch:
        before = known.get(observation.object_key)
        if before is None and observation.outcome is ObjectOutcome.OK:
            first.append(observation)
        elif observation.differs_from(before):
            changed.append(observation)
    if not first and not changed:
        return 0
    # Most of a first sweep is new and right; those rows are recorded together.
    with context.ledger.transaction() as tx:
        recorded = record_first_checks(tx, first)
        return recorded + sum(record_object_check(tx, observation) for observation in changed)


def _known_checks(context: ReconciliationContext, batch: Sequence[ObjectObservation]) -> dict[str, dict[str, Any]]:
    keys = [observation.object_key for observation in batch]
    with context.ledger.reading() as tx:
        rows = tx.rows(select(object_checks).where(object_checks.c.object_key.in_(keys)))
    return {row["object_key"]: row for row in rows}


def _clear_orphans(context: ReconciliationContext, *, remaining: set[str]) -> int:
    """Record as right the orphans that were removed or explained since."""
    with context.ledger.reading() as tx:
        rows = tx.rows(
            select(object_checks.c.object_key)
            .where(object_checks.c.outcome == ObjectOutcome.ORPHAN)
            .order_by(object_checks.c.object_key)
        )
        gone = [row["object_key"] for row in rows if row["object_key"] not in remaining]
        explained = explained_keys(tx, gone)
    cleared = [key for key in gone if key in explained or not _is_present(context, key)]
    if not cleared:
        return 0
    with context.ledger.transaction() as tx:
        return sum(
            record_object_check(tx, ObjectObservation(object_key=key, job_id=None, outcome=ObjectOutcome.OK))
            for key in cleared
        )


def _is_present(context: ReconciliationContext, key: str) -> bool:
    try:
        return context.objects.stat(key) is not None
    except ObjectFault:
        return True
