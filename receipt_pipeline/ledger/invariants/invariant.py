"""What an invariant is, how its violations are found, and what a check of it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from receipt_pipeline.core.alerts import AlertKind, AlertThresholds
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import Reason
from receipt_pipeline.ledger.changes import LedgerReader
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import InvestigationKind, InvestigationRequest

Query = sa.Select[Any] | sa.CompoundSelect[Any]
Row = Mapping[str, Any]

JOB_LEDGER = "job_ledger"
RESULT_OBJECTS = "result_objects"
NOTIFICATIONS = "notifications"
REVIEW_TASKS = "review_tasks"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that invariants are measured against, and the thresholds of alerts."""

    limits: Limits
    thresholds: AlertThresholds = field(default_factory=AlertThresholds)


class Observe(StrEnum):
    """What must be looked at in the object store before a query over the ledger is true."""

    NOTHING = "nothing"
    OBJECT_PRESENCE = "object_presence"
    OBJECT_CONTENT = "object_content"
    STORED_KEYS = "stored_keys"


def never(row: Row) -> bool:
    """Return False for every violation."""
    return False


def always(row: Row) -> bool:
    """Return True for every violation."""
    return True


@dataclass(frozen=True, slots=True)
class Investigate:
    """The investigation that each violation opens; texts in braces are filled from the violation's row.

    Attributes:
        subject: what it is about, unique per kind; without `#`, which numbers repetitions.
        evidence: columns of the row that are recorded with it.
        resolved_when: what reconciliation records when the violation is gone.
        opens: which violations open one; the others are already owned or found elsewhere.
        a_note_resolves: which violations end with a person's decision although nothing changes.
    """

    kind: InvestigationKind
    reason: Reason
    suspected_effect: str
    resolved_when: str
    evidence: tuple[str, ...]
    subject: str = "{job_id}"
    opens: Callable[[Row], bool] = always
    a_note_resolves: Callable[[Row], bool] = never


@dataclass(frozen=True, slots=True)
class Invariant:
    """One rule that ledger, objects and effects keep; checks, reconciliation, account and docs read it.

    Attributes:
        name: the asset check of this name; stored, never renamed.
        finding: the key in comparisons and reports; stored, never renamed.
        meaning: what holds while nothing is violated, as one sentence.
        violations: the query of the violations, `job_id` or `subject` first.
        repair: what to do about one violation, a command first; braces are filled from its row.
        asset: the asset that the check belongs to; empty when there is no check of its own.
        observe: what must be looked at first.
        investigation: what a violation opens; None when something else answers for it.
        alert: the alert that a violation raises.
        whole_ledger: False when only open jobs are read, so that a sensor may ask at every tick.
        warns: it says that operators should look, not that records disagree.
        blocking: whether a failed check fails its run; needs a written reason next to it.
    """

    name: str
    finding: str
    meaning: str
    violations: Callable[[LedgerReader, Bounds], Query]
    repair: str
    asset: str = ""
    observe: Observe = Observe.NOTHING
    investigation: Investigate | None = None
    alert: AlertKind | None = None
    whole_ledger: bool = True
    warns: bool = False
    blocking: bool = False

    def request(self, row: Row) -> InvestigationRequest:
        """Return the investigation that one violation opens."""
        opened = self.investigation
        assert opened is not None, self.name
        return InvestigationRequest(
            kind=opened.kind,
            subject=opened.subject.format_map(row),
            job_id=row["job_id"],
            reason=opened.reason,
            suspected_effect=opened.suspected_effect.format_map(row),
            allowed_repair=self.repair.format_map(row),
            evidence={name: row[name] for name in opened.evidence},
            a_note_resolves=opened.a_note_resolves(row),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """What the query of one invariant found: the rows of the violations, and the query itself."""

    invariant: Invariant
    rows: list[dict[str, Any]]
    query: Query


def find(reader: LedgerReader, invariant: Invariant, bounds: Bounds) -> Finding:
    """Return the violations of an invariant in this snapshot."""
    query = invariant.violations(reader, bounds)
    return Finding(invariant, reader.rows(query), query)


def query_text(query: Query, tx: LedgerTransaction) -> str:
    """Return the SQL of a query as text that runs on the database of this transaction."""
    return str(query.compile(dialect=tx.dialect, compile_kwargs={"literal_binds": True}))


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What one check found.

    Attributes:
        passed: whether the invariant holds.
        description: one sentence for people, with the number of violations.
        violations: one row per violation, ids first; empty when the check passed.
        query_text: the SQL that finds the violations, as text to run.
        repair: what to do about the first violation; empty when the check passed or names no repair.
    """

    passed: bool
    description: str
    violations: tuple[Mapping[str, Any], ...]
    query_text: str
    repair: str = ""
