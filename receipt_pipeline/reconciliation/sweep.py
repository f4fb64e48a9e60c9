"""Sweeps the object store in both directions and records what it saw; repeating it changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.ledger.effects.objects import (
    ObjectOutcome,
    explained_keys,
    record_first_checks,
    record_object_check,
    results_to_check,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.effects import object_checks
from receipt_pipeline.reconciliation.compare import (
    Depth,
    ObjectObservation,
    find_orphans,
    observe_result,
    observe_results,
)
from receipt_pipeline.reconciliation.context import ReconciliationContext


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What a sweep looked at and what was new about it."""

    results_seen: int
    objects_listed: int
    faults: int
    newly_recorded: int


def sweep_objects(context: ReconciliationContext) -> SweepSummary:
    """Look at every result byte by byte and at every stored key, and record what changed."""
    seen, faults, recorded = _sweep_results(context, depth=Depth.CONTENT)
    listed, orphans, changed = sweep_orphans(context)
    return SweepSummary(seen, listed, faults + orphans, recorded + changed)


def sweep_results(context: ReconciliationContext, *, depth: Depth) -> int:
    """Look at every result at one depth and record what changed; returns how many are at fault."""
    return _sweep_results(context, depth=depth)[1]


def _sweep_results(context: ReconciliationContext, *, depth: Depth) -> tuple[int, int, int]:
    seen = faults = recorded = 0
    for batch in observe_results(context, depth=depth):
        closer = batch if depth is Depth.CONTENT else _read_doubtful(context, batch)
        seen += len(batch)
        faults += sum(observation.is_fault for observation in closer)
        recorded += record_observations(context, closer)
    return seen, faults, recorded


def _read_doubtful(
    context: ReconciliationContext, batch: Sequence[ObjectObservation]
) -> list[ObjectObservation]:
    """Read what is there but was never found right: a mere presence proves nothing about it."""
    known = _known_checks(context, batch)
    doubtful = {
        observation.object_key
        for observation in batch
        if observation.outcome is None
        and (
            known.get(observation.object_key, {}).get("outcome") != ObjectOutcome.OK
            or observation.found_size_bytes != observation.expected_size_bytes
        )
    }
    wanted = {str(observation.job_id) for observation in batch if observation.object_key in doubtful}
    with context.ledger.reading() as tx:
        rows = results_to_check(tx, job_ids=wanted, limit=len(wanted)) if wanted else []
    read = [observe_result(context, row, depth=Depth.CONTENT) for row in rows]
    return [observation for observation in batch if observation.outcome is not None] + read


def sweep_orphans(context: ReconciliationContext) -> tuple[int, int, int]:
    """Look at every stored key; returns how many there are, orphans among them, and new records."""
    listed = recorded = 0
    orphans: set[str] = set()
    for count, found in find_orphans(context):
        listed += count
        orphans |= {observation.object_key for observation in found}
        recorded += record_observations(context, found)
    return listed, len(orphans), recorded + _clear_explained_orphans(context, still=orphans)


def record_observations(context: ReconciliationContext, observations: Iterable[ObjectObservation]) -> int:
    """Record what differs from the last look; returns how many rows were new or changed."""
    batch = list(observations)
    known = _known_checks(context, batch)
    changed = [
        observation for observation in batch if _differs(observation, known.get(observation.object_key))
    ]
    if not changed:
        return 0
    # Most of a first sweep is new and right; those rows go in together.
    first = [
        observation
        for observation in changed
        if observation.outcome is ObjectOutcome.OK and observation.object_key not in known
    ]
    fresh = {observation.object_key for observation in first}
    with context.ledger.transaction() as tx:
        recorded = record_first_checks(tx, [asdict(observation) for observation in first])
        return recorded + sum(
            _record(tx, observation) for observation in changed if observation.object_key not in fresh
        )


def _differs(observation: ObjectObservation, known: dict[str, Any] | None) -> bool:
    if known is None:
        return True
    return any(known[name] != getattr(observation, name) for name in _COMPARED)


_COMPARED = ("outcome", "found_digest", "found_size_bytes", "expected_digest", "pins_stated")


def _known_checks(
    context: ReconciliationContext, batch: Sequence[ObjectObservation]
) -> dict[str, dict[str, Any]]:
    keys = [observation.object_key for observation in batch]
    with context.ledger.reading() as tx:
        rows = tx.rows(select(object_checks).where(object_checks.c.object_key.in_(keys)))
    return {row["object_key"]: row for row in rows}


def _record(tx: LedgerTransaction, observation: ObjectObservation) -> bool:
    assert observation.outcome is not None, observation
    return record_object_check(tx, **asdict(observation))


def _clear_explained_orphans(context: ReconciliationContext, *, still: set[str]) -> int:
    """Let go of recorded orphans that were removed or explained since."""
    with context.ledger.reading() as tx:
        rows = tx.rows(
            select(object_checks.c.object_key)
            .where(object_checks.c.outcome == ObjectOutcome.ORPHAN)
            .order_by(object_checks.c.object_key)
        )
        gone = [row["object_key"] for row in rows if row["object_key"] not in still]
        explained = explained_keys(tx, gone)
    cleared = [key for key in gone if key in explained or not _is_there(context, key)]
    if not cleared:
        return 0
    with context.ledger.transaction() as tx:
        return sum(
            record_object_check(tx, object_key=key, job_id=None, outcome=ObjectOutcome.OK) for key in cleared
        )


def _is_there(context: ReconciliationContext, key: str) -> bool:
    try:
        return context.objects.stat(key) is not None
    except ObjectFault:
        return True
