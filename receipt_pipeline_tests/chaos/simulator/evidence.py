"""The evidence that a seed leaves: every row, every change, and what store, channel and chain saw."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.effects.results import read_result
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND
from receipt_pipeline.objects.store import RESULTS_PREFIX
from receipt_pipeline_tests.chaos.oracle.evidence import TABLES, LedgerRows, Row
from receipt_pipeline_tests.chaos.simulator.fakes import MemoryChannel, MemoryObjects
from receipt_pipeline_tests.chaos.simulator.faults import Fault
from receipt_pipeline_tests.chaos.simulator.ledger import Change, Dump
from receipt_pipeline_tests.chaos.simulator.script import LIMITS, SimulatedChain

if TYPE_CHECKING:
    from receipt_pipeline_tests.chaos.simulator.harness import Harness


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(LedgerRows):
    """The evidence of one seed; times are microseconds, JSON columns are parsed.

    Attributes:
        scans: the scans that callers submitted, by hex digest.
        outputs_changed: whether the model ever gave another output than the scan's own.
        served: per job what `read_result` answers: its digest, or the code with which it refuses.
        before, after: the whole ledger around one more reconciliation.
        defects: what went wrong on the way, each line beginning with the invariant that it breaks.
    """

    changes: list[Change]
    objects: MemoryObjects
    channel: MemoryChannel
    chain: SimulatedChain
    scans: dict[str, bytes]
    outputs_changed: bool
    answers: dict[tuple[str, str], set[str]]
    canceled: set[str]
    served: dict[str, str]
    before: Dump
    after: Dump
    defects: list[str]

    def journal_of(self, job_ids: Collection[str | None]) -> list[str]:
        """Return the journal of these jobs as lines."""
        lines = []
        for row in self.rows["events"]:
            if row["job_id"] in job_ids:
                epoch = "" if row["lease_epoch"] is None else f" epoch {row['lease_epoch']}"
                text = f"{row['job_id']} {row['kind']}{epoch} {json.dumps(row['data'])}"
                lines.append(f"journal {row['seq']}: {text}")
        return lines


def collect(harness: Harness, *, before: Dump, after: Dump) -> Evidence:
    """Read everything that a harness left."""
    rows: dict[str, list[Row]] = {table: [_parsed(row) for row in harness.database.rows(table)] for table in TABLES}
    changes = harness.database.changes()
    assert len(changes) >= len(rows["jobs"]), "nothing watches the ledger"
    return Evidence(
        rows=rows,
        limits=LIMITS,
        now=(harness.clock.now() - EPOCH) // MICROSECOND,
        second=1_000_000,
        stored={
            key: digest_of_bytes(data)
            for key, (data, _) in harness.objects.stored.items()
            if key.startswith(RESULTS_PREFIX)
        },
        changes=changes,
        objects=harness.objects,
        channel=harness.channel,
        chain=harness.chain,
        scans={digest: data for wanted in harness.wanted for digest, data in wanted.scans.items()},
        outputs_changed=any(made.fault is Fault.CHANGED for made in harness.faults.made),
        answers=harness.answers,
        canceled=harness.canceled,
        served={row["job_id"]: _served(harness, row) for row in rows["jobs"]},
        before=before,
        after=after,
        defects=harness.defects,
    )


def _served(harness: Harness, job: Row) -> str:
    try:
        answer = read_result(harness.effects, job["job_id"], tenant=job["tenant"])
    except PipelineError as error:
        return error.reason.code
    return str(answer["object"]["digest"]) if answer["object"] else ""


JSON_COLUMNS = frozenset({"data", "evidence", "digests", "payload", "reasons"})


def _parsed(row: Row) -> Row:
    return {
        name: json.loads(value) if name in JSON_COLUMNS and isinstance(value, str) else value
        for name, value in row.items()
    }
