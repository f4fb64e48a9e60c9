"""Compare ledger, objects, effects and deliveries, and change nothing."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.reasons import RESULT_MISSING
from receipt_pipeline.core.result_document import RESULT_CONTRACT
from receipt_pipeline.ledger.effects.objects import (
    ExpectedResult,
    ObjectObservation,
    ObjectOutcome,
    expected_results,
    explained_keys,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants import INVARIANTS
from receipt_pipeline.ledger.invariants.invariant import Bounds, Finding, Observe, find
from receipt_pipeline.objects.store import RESULTS_PREFIX, SET_ASIDE_PREFIX
from receipt_pipeline.reconciliation.context import OBJECTS_BATCH_MAX, ReconciliationContext


class Depth(StrEnum):
    """How closely results are looked at: whether they are present, or every byte of them."""

    PRESENCE = "presence"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that does not agree; findings without rows are kept, so that their queries can be run."""

    results_seen: int
    objects_listed: int
    faults: tuple[ObjectObservation, ...]
    findings: Mapping[str, Finding]

    @property
    def agrees(self) -> bool:
        """Return whether nothing was found."""
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
    """Yield batches of what is stored under the keys of succeeded, unpurged jobs.

    The rows of a batch are read first: no object is opened inside a transaction.
    """
    after = ""
    while True:
        with context.ledger.reading() as tx:
            expected = expected_results(tx, after_job_id=after, limit=OBJECTS_BATCH_MAX)
        if not expected:
            return
        yield [observe_result(context, result, depth=depth) for result in expected]
        after = expected[-1].job_id


def observe_result(context: ReconciliationContext, expected: ExpectedResult, *, depth: Depth) -> ObjectObservation:
    """Look at the object of one succeeded job."""
    observed = ObjectObservation(
        object_key=expected.object_key,
        job_id=expected.job_id,
        outcome=None,
        expected_digest=expected.digest,
        expected_size_bytes=expected.size_bytes,
    )
    try:
        if depth is Depth.PRESENCE:
            stat = context.objects.stat(expected.object_key)
            if stat is None:
                return replace(observed, outcome=ObjectOutcome.MISSING)
            return replace(observed, found_size_bytes=stat.size_bytes)
        data = context.objects.read(expected.object_key)
    except ObjectFault as fault:
        is_missing = fault.reason == RESULT_MISSING
        return replace(observed, outcome=ObjectOutcome.MISSING if is_missing else ObjectOutcome.UNREADABLE)
    except ValueError:
        # A row that was edited may hold a text that is no key; nothing can be stored under it.
        return replace(observed, outcome=ObjectOutcome.MISSING)
    digest = digest_of_bytes(data)
    is_right = (digest, len(data)) == (expected.digest, expected.size_bytes)
    return replace(
        observed,
        outcome=ObjectOutcome.OK if is_right else ObjectOutcome.MISMATCH,
        found_digest=digest,
        found_size_bytes=len(data),
        pins_stated=states_pins(data, expected),
    )


def states_pins(data: bytes, expected: ExpectedResult) -> bool:
    """Return whether a result's header restates its job and the pins that the job was accepted under."""
    try:
        header = json.loads(data.partition(b"\n")[0])
        stated = (header["contract"], header["job_id"], header["pins"])
    except (ValueError, KeyError, TypeError):
        return False
    return stated == (RESULT_CONTRACT, expected.job_id, expected.pins.as_document())


def find_orphans(context: ReconciliationContext) -> Iterator[tuple[int, list[ObjectObservation]]]:
    """Yield per batch how many stored results were listed, and those that nothing explains.

    Bytes that were set aside because they were stored under a key they do not belong to are orphans as
    well: nothing else would ever look at them. An object counts once it is older than the grace, by the
    ledger's clock: until then its row may be about to be written.
    """
    entries = chain(context.objects.listing(RESULTS_PREFIX), context.objects.listing(SET_ASIDE_PREFIX))
    while batch := list(islice(entries, OBJECTS_BATCH_MAX)):
        with context.ledger.reading() as tx:
            untouched_since = tx.now() - dt.timedelta(seconds=context.limits.retention.orphan_grace_s)
            explained = explained_keys(tx, (entry.key for entry in batch))
        orphans = [
            ObjectObservation(
                object_key=entry.key, job_id=None, outcome=ObjectOutcome.ORPHAN, found_size_bytes=entry.size_bytes
            )
            for entry in batch
            if entry.key not in explained and entry.modified_at <= untouched_since
        ]
        yield len(batch), orphans
