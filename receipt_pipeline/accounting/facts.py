"""Reads from one snapshot of the ledger what the account is made of: sets, open findings, figures."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from receipt_pipeline.accounting.release_report import JobSets
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.changes import CopiedLedger
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction
from receipt_pipeline.ledger.invariants.account import AccountSets, account_sets, counted_account_sets
from receipt_pipeline.ledger.invariants.effects import EFFECTS_HAVE_NO_GAPS, GIVEN_UP, overdue_effects
from receipt_pipeline.ledger.invariants.invariant import Bounds, find
from receipt_pipeline.ledger.invariants.objects import (
    DIVERGENCE_IS_HELD,
    NO_OBJECT_WITHOUT_SUCCESS,
    NO_OPEN_QUARANTINE,
    gone_and_altered,
)
from receipt_pipeline.ledger.invariants.records import ITEMS_BALANCE
from receipt_pipeline.ledger.investigations import OPEN, RECONCILER, RESOLVED, InvestigationKind, is_owned
from receipt_pipeline.ledger.legacy_jobs import undecided_legacy_jobs
from receipt_pipeline.ledger.rows import TenantScope, read_scope
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import events

# Which investigation answers for which finding; a job without a terminal record may be in any of them.
INVESTIGATION_OF_FINDING: Mapping[str, frozenset[InvestigationKind]] = {
    "missing_terminal": frozenset(InvestigationKind),
    "unresolved_items": frozenset({InvestigationKind.UNRESOLVED_ITEMS}),
    "success_without_object": frozenset({InvestigationKind.MISSING_OBJECT}),
    "object_mismatch": frozenset({InvestigationKind.ALTERED_OBJECT}),
    "divergent": frozenset({InvestigationKind.DIVERGENT_OUTPUT}),
    "unbalanced_items": frozenset({InvestigationKind.UNBALANCED}),
    "effects_given_up": frozenset({InvestigationKind.EFFECT_GAP, InvestigationKind.UNKNOWN_EFFECT}),
    "effect_gaps": frozenset({InvestigationKind.EFFECT_GAP, InvestigationKind.UNKNOWN_EFFECT}),
    "imported_open": frozenset({InvestigationKind.IMPORTED_OPEN}),
}
# Only the fact itself resolves these; a person's decision is recorded and changes nothing about them.
FACT_FINDINGS = frozenset(
    {"missing_terminal", "success_without_object", "object_mismatch", "effect_gaps", "unbalanced_items"}
)

# Only a change of a job's own rows adds or removes these, except effect gaps that time alone makes.
ROW_FINDINGS = ("effect_gaps", "effects_given_up", "unbalanced_items", "divergent")


@dataclass(frozen=True, slots=True)
class Accountant:
    """The ledger, its limits and owners, and the folder in which the report is built and published."""

    ledger: Ledger
    report_root: Path
    limits: Limits

    @property
    def published(self) -> Path:
        """Return the one file that analysts open."""
        return self.report_root / "report.duckdb"

    @property
    def export(self) -> Path:
        """Return the folder of the exported Parquet files."""
        return self.report_root / "export"

    @property
    def doubted(self) -> Path:
        """Return the file that marks a report as different from the ledger: the next one is a full build."""
        return self.report_root / "doubted"


Owned = Callable[[Mapping[str, Any]], bool]
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """When and up to which event the ledger was read; it is evaluated at `cutoff`, or now."""

    as_of: dt.datetime
    cutoff: dt.datetime | None
    seq: int


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """One finding that needs an owner, and who owns it.

    Attributes:
        answered: a person has recorded a decision about it, so it needs no owner.
        owned: an open investigation of it has an active owner inside its deadline.
    """

    finding: str
    job_id: str | None
    investigation_id: str | None
    owner: str | None
    deadline_at: dt.datetime | None
    owned: bool
    answered: bool

    @property
    def label(self) -> str:
        """Return a name of the finding that is unique in the account."""
        return f"{self.finding}:{self.job_id or self.investigation_id}"


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier account already says.

    Attributes:
        changed: shows only the jobs that changed since, with all their rows.
        found: by row finding, the ids of the other jobs.
    """

    changed: LedgerTransaction
    found: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the account is evaluated on; lists of ids are sorted.

    Attributes:
        scope: whose account it is.
        counts: jobs that are accepted, and of these by state, in flight and terminal; beyond what the
            sets hold where jobs in order were only counted.
        others: how many jobs were only counted.
        listed: ids by finding, as the report document names them.
        open_findings: one line per finding and job, and per open investigation without an owner in time.
    """

    scope: TenantScope
    snapshot: Snapshot
    sets: JobSets
    counts: Mapping[str, int]
    others: int
    unresolved: tuple[str, ...]
    unresolved_items: int
    listed: Mapping[str, list[str]]
    investigations: list[dict[str, Any]]
    open_findings: tuple[OpenFinding, ...]

    @property
    def unowned(self) -> list[str]:
        """Return the names of the findings without an active owner in time."""
        return [line.label for line in self.open_findings if not (line.owned or line.answered)]


def read_facts(
    tx: LedgerTransaction,
    *,
    limits: Limits,
    cutoff: dt.datetime | None = None,
    tenant: str | None = None,
    earlier: Earlier | None = None,
) -> Facts:
    """Read the account's facts as of now, or as of a cutoff, in the caller's one snapshot.

    Over a copy of the ledger, jobs without any finding are only counted.

    Args:
        tenant: whose account it is; None for the account of the whole ledger, as a copy always is.
        earlier: an earlier account; row findings are then searched among the jobs that changed since.
            None to search all jobs.
    """
    assert tenant is None or not isinstance(tx, CopiedLedger)
    scope = read_scope(tx, tenant)
    snapshot = Snapshot(tx.now(), cutoff, int(tx.scalar(select(func.max(events.c.seq))) or 0))
    found = _balance(tx, limits, cutoff)
    unresolved = tuple(job_id for job_id, _ in found.unresolved if scope.shows_job(job_id))
    unanswered = {job_id: count for job_id, count in _unanswered_items(tx, found).items() if scope.shows_job(job_id)}
    listed, open_gaps = _listed(tx, scope, earlier, Bounds(limits))
    listed["imported_open"] = undecided_legacy_jobs(tx, tenant)
    query = select(investigations).order_by(investigations.c.opened_at, investigations.c.investigation_id)
    opened = tx.rows(query if tenant is None else query.where(investigations.c.tenant.in_((tenant, ""))))
    findings = listed | {"missing_terminal": list(unresolved), "unresolved_items": sorted(unanswered)}
    del findings["object_without_success"]
    # A decision closes only what was abandoned for good; any other gap of the job remains.
    findings["effects_given_up"] = sorted(set(listed["effect_gaps"]) - open_gaps)
    findings["effect_gaps"] = sorted(set(listed["effect_gaps"]) & open_gaps)
    sets = _sets_of(found, scope)
    return Facts(
        scope=scope,
        snapshot=snapshot,
        sets=sets,
        counts=_count(sets, found.ordinary),
        others=sum(found.ordinary.values()),
        unresolved=unresolved,
        unresolved_items=sum(unanswered.values()),
        listed=listed,
        investigations=opened,
        open_findings=_open_findings(findings, opened, now=snapshot.as_of, limits=limits),
    )


def _listed(
    tx: LedgerTransaction, scope: TenantScope, earlier: Earlier | None, bounds: Bounds
) -> tuple[dict[str, list[str]], set[str]]:
    """Return the sorted ids of each finding, and which jobs have a gap that was not abandoned for good."""
    changed, before = _search_changed_jobs(tx, earlier, bounds)
    gaps = find(changed, EFFECTS_HAVE_NO_GAPS, bounds).rows + before["effect_gaps"] + before["effects_given_up"]
    gone, altered = gone_and_altered(tx)
    listed = {
        "effect_gaps": _ids(gaps),
        "unbalanced_items": _ids(find(changed, ITEMS_BALANCE, bounds).rows + before["unbalanced_items"]),
        "success_without_object": _ids(gone),
        "object_without_success": _ids(find(tx, NO_OBJECT_WITHOUT_SUCCESS, bounds).rows, "object_key"),
        "object_mismatch": _ids(altered),
        "divergent": _ids(
            find(tx, NO_OPEN_QUARANTINE, bounds).rows
            + find(changed, DIVERGENCE_IS_HELD, bounds).rows
            + before["divergent"]
        ),
    }
    for name, ids in listed.items():
        shows = scope.shows_key if name == "object_without_success" else scope.shows_job
        listed[name] = [entry for entry in ids if shows(entry)]
    return listed, {str(row["job_id"]) for row in gaps if row["fault"] != GIVEN_UP}


def _search_changed_jobs(
    tx: LedgerTransaction, earlier: Earlier | None, bounds: Bounds
) -> tuple[LedgerTransaction, dict[str, Rows]]:
    """Return where to search row findings, and those that are known without a search.

    Effect gaps that an earlier account found remain; those that time alone made are searched in all jobs.
    """
    if earlier is None:
        return tx, {finding: [] for finding in ROW_FINDINGS}
    known = {
        finding: [{"job_id": job_id, "fault": finding} for job_id in ids] for finding, ids in earlier.found.items()
    }
    known["effect_gaps"] += tx.rows(overdue_effects(tx, bounds))
    for row in known["effects_given_up"]:
        row["fault"] = GIVEN_UP
    return earlier.changed, known


def _balance(tx: LedgerTransaction, limits: Limits, cutoff: dt.datetime | None) -> AccountSets:
    if isinstance(tx, CopiedLedger):
        return counted_account_sets(tx, limits=limits, cutoff=cutoff)
    return account_sets(tx, limits=limits, cutoff=cutoff)


def _sets_of(found: AccountSets, scope: TenantScope) -> JobSets:
    return JobSets(
        accepted=found.accepted - scope.foreign,
        succeeded=found.terminal[JobState.SUCCEEDED] - scope.foreign,
        failed=found.terminal[JobState.FAILED] - scope.foreign,
        expired=found.terminal[JobState.EXPIRED] - scope.foreign,
        canceled=found.terminal[JobState.CANCELED] - scope.foreign,
        in_flight=found.in_flight - scope.foreign,
    )


def _count(sets: JobSets, others: Mapping[JobState, int]) -> dict[str, int]:
    closed = {state: len(getattr(sets, state)) + others.get(state, 0) for state in TERMINAL_STATES}
    waiting = sum(jobs_there for state, jobs_there in others.items() if state not in TERMINAL_STATES)
    return {
        "accepted": len(sets.accepted) + sum(others.values()),
        "in_flight": len(sets.in_flight) + waiting,
        "terminal": len(sets.terminal) + sum(others.values()) - waiting,
        **{state.value: jobs_there for state, jobs_there in closed.items()},
    }


def _ids(rows: list[dict[str, Any]], name: str = "job_id") -> list[str]:
    return sorted({str(row[name]) for row in rows})


def _unanswered_items(tx: LedgerTransaction, found: AccountSets) -> dict[str, int]:
    """Count the unresolved items of closed jobs per job, unless a decision about them is recorded."""
    if not found.unresolved_items:
        return {}
    decided = {
        row["job_id"]
        for row in tx.rows(
            select(investigations.c.job_id)
            .where(investigations.c.kind == InvestigationKind.UNRESOLVED_ITEMS)
            .where(investigations.c.state == RESOLVED)
        )
    }
    return {job_id: count for job_id, count in found.unresolved_items.items() if job_id not in decided}


def _open_findings(
    findings: Mapping[str, list[str]], opened: list[dict[str, Any]], *, now: dt.datetime, limits: Limits
) -> tuple[OpenFinding, ...]:
    """Join each finding with its newest investigation, then add open ones without an owner in time."""
    by_job: dict[str | None, list[dict[str, Any]]] = {}
    for row in opened:
        by_job.setdefault(row["job_id"], []).append(row)

    def owned(row: Mapping[str, Any]) -> bool:
        return is_owned(row, now=now, principals=limits.staffing.principals)

    lines = []
    for finding, ids in sorted(findings.items()):
        for job_id in ids:
            kinds = INVESTIGATION_OF_FINDING[finding]
            about = [row for row in by_job.get(job_id, ()) if row["kind"] in kinds]
            lines.append(_line(finding, job_id, about, owned))
    overdue = [row for row in opened if row["state"] == OPEN and not owned(row)]
    lines += [_line("unowned_question", row["job_id"], [row], owned) for row in overdue]
    return tuple(lines)


def _line(finding: str, job_id: str | None, about: list[dict[str, Any]], owned: Owned) -> OpenFinding:
    waiting = [row for row in about if row["state"] == OPEN]
    if not about:
        return OpenFinding(finding, job_id, None, None, None, owned=False, answered=False)
    latest = (sorted(waiting, key=owned) or about)[-1]
    # An investigation that reconciliation closed is no answer once the fault is back, and a person's
    # decision is none while the fact itself remains.
    by_person = latest["state"] == RESOLVED and latest["resolved_by"] != RECONCILER
    return OpenFinding(
        finding,
        job_id,
        latest["investigation_id"],
        latest["owner"],
        latest["deadline_at"],
        owned=latest["state"] == OPEN and owned(latest),
        answered=by_person and finding not in FACT_FINDINGS,
    )
