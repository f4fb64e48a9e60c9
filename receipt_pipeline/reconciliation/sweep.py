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
    Sighting,
    look_at_result,
    look_at_results,
    look_for_orphans,
)
from receipt_pipeline.reconciliation.context import Reconciler


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What a sweep looked at and what was new about it."""

    results_seen: int
    objects_listed: int
    faults: int
    newly_recorded: int


def sweep_objects(services: Reconciler) -> SweepSummary:
    """Look at every result byte by byte and at every stored key, and record what changed."""
    seen, faults, recorded = _sweep_results(services, depth=Depth.CONTENT)
    listed, orphans, changed = sweep_orphans(services)
    return SweepSummary(seen, listed, faults + orphans, recorded + changed)


def sweep_results(services: Reconciler, *, depth: Depth) -> int:
    """Look at every result at one depth and record what changed; returns how many are at fault."""
    return _sweep_results(services, depth=depth)[1]


def _sweep_results(services: Reconciler, *, depth: Depth) -> tuple[int, int, int]:
    seen = faults = recorded = 0
    for batch in look_at_results(services, depth=depth):
        closer = batch if depth is Depth.CONTENT else _look_closer(services, batch)
        seen += len(batch)
        faults += sum(sighting.is_fault for sighting in closer)
        recorded += record_sightings(services, closer)
    return seen, faults, recorded


def _look_closer(services: Reconciler, batch: Sequence[Sighting]) -> list[Sighting]:
    """Read what is there but was never found right: a mere presence proves nothing about it."""
    known = _known_checks(services, batch)
    doubtful = {
        sighting.object_key
        for sighting in batch
        if sighting.outcome is None
        and (
            known.get(sighting.object_key, {}).get("outcome") != ObjectOutcome.OK
            or sighting.found_size_bytes != sighting.expected_size_bytes
        )
    }
    wanted = {str(sighting.job_id) for sighting in batch if sighting.object_key in doubtful}
    with services.ledger.reading() as tx:
        rows = results_to_check(tx, job_ids=wanted, limit=len(wanted)) if wanted else []
    read = [look_at_result(services, row, depth=Depth.CONTENT) for row in rows]
    return [sighting for sighting in batch if sighting.outcome is not None] + read


def sweep_orphans(services: Reconciler) -> tuple[int, int, int]:
    """Look at every stored key; returns how many there are, orphans among them, and new records."""
    listed = recorded = 0
    orphans: set[str] = set()
    for count, found in look_for_orphans(services):
        listed += count
        orphans |= {sighting.object_key for sighting in found}
        recorded += record_sightings(services, found)
    return listed, len(orphans), recorded + _clear_orphans(services, still=orphans)


def record_sightings(services: Reconciler, sightings: Iterable[Sighting]) -> int:
    """Record what differs from the last look; returns how many rows were new or changed."""
    batch = list(sightings)
    known = _known_checks(services, batch)
    changed = [sighting for sighting in batch if _differs(sighting, known.get(sighting.object_key))]
    if not changed:
        return 0
    # Most of a first sweep is new and right; those rows go in together.
    first = [
        sighting
        for sighting in changed
        if sighting.outcome is ObjectOutcome.OK and sighting.object_key not in known
    ]
    fresh = {sighting.object_key for sighting in first}
    with services.ledger.transaction() as tx:
        recorded = record_first_checks(tx, [asdict(sighting) for sighting in first])
        return recorded + sum(
            _record(tx, sighting) for sighting in changed if sighting.object_key not in fresh
        )


def _differs(sighting: Sighting, known: dict[str, Any] | None) -> bool:
    if known is None:
        return True
    return any(known[name] != getattr(sighting, name) for name in _COMPARED)


_COMPARED = ("outcome", "found_digest", "found_size_bytes", "expected_digest", "pins_stated")


def _known_checks(services: Reconciler, batch: Sequence[Sighting]) -> dict[str, dict[str, Any]]:
    keys = [sighting.object_key for sighting in batch]
    with services.ledger.reading() as tx:
        rows = tx.rows(select(object_checks).where(object_checks.c.object_key.in_(keys)))
    return {row["object_key"]: row for row in rows}


def _record(tx: LedgerTransaction, sighting: Sighting) -> bool:
    assert sighting.outcome is not None, sighting
    return record_object_check(tx, **asdict(sighting))


def _clear_orphans(services: Reconciler, *, still: set[str]) -> int:
    """Let go of recorded orphans that were removed or explained since."""
    with services.ledger.reading() as tx:
        rows = tx.rows(
            select(object_checks.c.object_key)
            .where(object_checks.c.outcome == ObjectOutcome.ORPHAN)
            .order_by(object_checks.c.object_key)
        )
        gone = [row["object_key"] for row in rows if row["object_key"] not in still]
        explained = explained_keys(tx, gone)
    cleared = [key for key in gone if key in explained or not _is_there(services, key)]
    if not cleared:
        return 0
    with services.ledger.transaction() as tx:
        return sum(
            record_object_check(tx, object_key=key, job_id=None, outcome=ObjectOutcome.OK) for key in cleared
        )


def _is_there(services: Reconciler, key: str) -> bool:
    try:
        return services.objects.stat(key) is not None
    except ObjectFault:
        return True
