"""Compares ledger, objects, effects and deliveries, and changes nothing."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.reasons import RESULT_MISSING
from receipt_pipeline.core.result_document import RESULT_CONTRACT
from receipt_pipeline.ledger.effects.objects import ObjectOutcome, explained_keys, results_to_check
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants import INVARIANTS
from receipt_pipeline.ledger.invariants.invariant import Bounds, Finding, Observe, find
from receipt_pipeline.objects.store import RESULTS_PREFIX, SET_ASIDE_PREFIX, ObjectEntry
from receipt_pipeline.reconciliation.context import OBJECTS_BATCH_MAX, ReconciliationContext


class Depth(StrEnum):
    """How closely results are looked at: that they are there, or every byte of them."""

    PRESENCE = "presence"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class ObjectObservation:
    """What stands under one key: digests in full form, sizes in bytes.

    Attributes:
        outcome: None when the object is there and was not read (`Depth.PRESENCE`).
        pins_stated: None when the object was not read or nothing is expected of it.
    """

    object_key: str
    job_id: str | None
    outcome: ObjectOutcome | None
    expected_digest: str | None = None
    found_digest: str | None = None
    expected_size_bytes: int | None = None
    found_size_bytes: int | None = None
    pins_stated: bool | None = None

    @property
    def is_fault(self) -> bool:
        """Tell whether this is worth an investigation."""
        return self.outcome not in (None, ObjectOutcome.OK) or self.pins_stated is False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that does not agree; findings without rows are kept, so that their queries can be run."""

    results_seen: int
    objects_listed: int
    faults: tuple[ObjectObservation, ...]
    findings: Mapping[str, Finding]

    @property
    def agrees(self) -> bool:
        """Tell whether nothing was found."""
        return not self.faults and not any(finding.rows for finding in self.findings.values())


def compare(context: ReconciliationContext) -> Comparison:
    """Compare in every direction and repair nothing; memory is bounded by what is wrong."""
    faults: list[ObjectObservation] = []
    results_seen = objects_listed = 0
    for batch in observe_results(context):
        results_seen += len(batch)
        faults += [observation for observation in batch if observation.is_fault]
    for listed, orphans in find_orphans(context):
        objects_listed += listed
        faults += orphans
    with context.ledger.reading() as tx:
        findings = ledger_findings(tx, context.bounds())
    return Comparison(results_seen, objects_listed, tuple(faults), findings)


def ledger_findings(tx: LedgerTransaction, bounds: Bounds) -> dict[str, Finding]:
    """Return every finding that the ledger gives without a look at the objects, by its key."""
    return {
        invariant.finding: find(tx, invariant, bounds)
        for invariant in INVARIANTS
        if invariant.observe is Observe.NOTHING and not invariant.warns
    }


def observe_results(
    context: ReconciliationContext, *, depth: Depth = Depth.CONTENT
) -> Iterator[list[ObjectObservation]]:
    """Yield batches of what stands under the keys of succeeded, unpurged jobs.

    The rows of a batch are read first: no object is opened inside a transaction.
    """
    after = ""
    while True:
        with context.ledger.reading() as tx:
            rows = results_to_check(tx, after_job_id=after, limit=OBJECTS_BATCH_MAX)
        if not rows:
            return
        yield [observe_result(context, row, depth=depth) for row in rows]
        after = rows[-1]["job_id"]


def observe_result(
    context: ReconciliationContext, row: Mapping[str, Any], *, depth: Depth
) -> ObjectObservation:
    """Look at the object of one succeeded job, given its row from the ledger."""
    key = row["result_key"]

    def seen(outcome: ObjectOutcome | None, **found: Any) -> ObjectObservation:
        return ObjectObservation(
            object_key=key,
            job_id=row["job_id"],
            outcome=outcome,
            expected_digest=row["result_digest"],
            expected_size_bytes=row["result_size_bytes"],
            **found,
        )

    try:
        if depth is Depth.PRESENCE:
            stat = context.objects.stat(key)
            return (
                seen(ObjectOutcome.MISSING) if stat is None else seen(None, found_size_bytes=stat.size_bytes)
            )
        data = context.objects.read(key)
    except ObjectFault as fault:
        missing = fault.reason == RESULT_MISSING
        return seen(ObjectOutcome.MISSING if missing else ObjectOutcome.UNREADABLE)
    except ValueError:
        # A row that was edited may hold a text that is no key; nothing can stand under it.
        return seen(ObjectOutcome.MISSING)
    digest = digest_of_bytes(data)
    right = (digest, len(data)) == (row["result_digest"], row["result_size_bytes"])
    return seen(
        ObjectOutcome.OK if right else ObjectOutcome.MISMATCH,
        found_digest=digest,
        found_size_bytes=len(data),
        pins_stated=states_pins(data, row),
    )


def states_pins(data: bytes, row: Mapping[str, Any]) -> bool:
    """Tell whether a result's header restates its job and the pins that the job was accepted under."""
    try:
        header = json.loads(data.partition(b"\n")[0])
        return bool(
            header["contract"] == RESULT_CONTRACT
            and header["job_id"] == row["job_id"]
            and header["pins"] == {name: row[name] for name in Pins.__slots__}
        )
    except (ValueError, KeyError, TypeError):
        return False


def find_orphans(context: ReconciliationContext) -> Iterator[tuple[int, list[ObjectObservation]]]:
    """Yield per batch how many stored results were listed, and those that nothing explains.

    Bytes that were set aside because they stood under a key they do not belong to are orphans as well:
    nobody else would ever look at them.

    An object counts once it is older than the grace, by the ledger's clock: until then its row may be
    about to be written.
    """
    entries = chain(context.objects.listing(RESULTS_PREFIX), context.objects.listing(SET_ASIDE_PREFIX))
    while batch := list(islice(entries, OBJECTS_BATCH_MAX)):
        with context.ledger.reading() as tx:
            untouched_since = tx.now() - dt.timedelta(seconds=context.limits.retention.orphan_grace_s)
            explained = explained_keys(tx, (entry.key for entry in batch))
        yield (
            len(batch),
            [
                _orphan(entry)
                for entry in batch
                if entry.key not in explained and entry.modified_at <= untouched_since
            ],
        )


def _orphan(entry: ObjectEntry) -> ObjectObservation:
    return ObjectObservation(
        object_key=entry.key,
        job_id=None,
        outcome=ObjectOutcome.ORPHAN,
        found_size_bytes=entry.size_bytes,
    )
