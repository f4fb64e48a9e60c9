"""Checks of the account: the published report against the ledger, and the release gate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from receipt_pipeline.accounting.facts import Accountant, read_facts
from receipt_pipeline.accounting.query import fetch_rows, reading_report
from receipt_pipeline.accounting.release_report import AccountState, Gate
from receipt_pipeline.accounting.report import evaluate_gate
from receipt_pipeline.core.errors import ReportFault
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome
from receipt_pipeline.ledger.schema.jobs import jobs

COMPARED = ("state", "terminal_class", "reason_code", "result_digest")
COMPARED_QUERY = f"SELECT job_id, {', '.join(COMPARED)}, latest_seq FROM jobs ORDER BY job_id"
FINDINGS_QUERY = "SELECT * FROM account_findings WHERE NOT (owned OR answered) ORDER BY finding, job_id"
# Where sequence order is not commit order, a job may be committed just after the snapshot was taken.
COMMIT_LAG_S = 30.0
COUNTS_QUERY = (
    "SELECT jobs.state, count(*) AS jobs FROM jobs, report_info WHERE submitted_at <= cutoff"
    " AND job_id IN (SELECT job_id FROM events WHERE kind = 'terminal') GROUP BY ALL"
)


@dataclass(frozen=True, slots=True)
class AccountingCheck:
    """One check: its asset, what it means, and the function that runs it."""

    name: str
    asset: str
    meaning: str
    run: Callable[[Accountant], CheckOutcome]


def report_matches_ledger(accountant: Accountant) -> CheckOutcome:
    """Compare the published report with the ledger, job by job, and its figures with its own rows.

    What happened after the report's newest event is no difference: the report is then only older. A
    difference is marked, so that the next publication is a full build.
    """
    try:
        with reading_report(accountant.published) as connection:
            (info,) = fetch_rows(connection, "SELECT seq, as_of, document FROM report_info")
            reported = {row["job_id"]: row for row in fetch_rows(connection, COMPARED_QUERY)}
            figures = _figure_faults(connection)
    except (ReportFault, ValueError) as error:
        row = _difference("", "report_unreadable", error, "")
        return CheckOutcome(False, "The published report cannot be read.", (row,), COMPARED_QUERY)
    with accountant.ledger.reading() as tx:
        names = ("job_id", *COMPARED, "latest_seq", "submitted_at")
        known = {row["job_id"]: row for row in tx.rows(select(*(jobs.c[name] for name in names)))}
    violations = (*figures, *_job_faults(reported, known, as_of=info["as_of"]))
    if violations:
        accountant.doubted.touch()
    described = f"Jobs reported up to event {info['seq']}: {len(reported)}. Differences: {len(violations)}."
    return CheckOutcome(not violations, described, violations, COMPARED_QUERY)


def _difference(job_id: str, fault: str, reported: Any, ledger: Any) -> dict[str, Any]:
    return {"job_id": job_id, "fault": fault, "reported": str(reported), "ledger": str(ledger)}


def _figure_faults(connection: Any) -> list[dict[str, Any]]:
    """Recount the report's own rows against the figures of its document, unless the sets contradict."""
    (info,) = fetch_rows(
        connection,
        "SELECT document->>'$.state' AS state,"
        " (SELECT count(*) FROM jobs WHERE submitted_at <= cutoff) AS accepted,"
        + ", ".join(
            f" (document->>'$.{name}')::BIGINT AS said_{name}"
            for name in ("accepted", "succeeded", "failed", "expired", "canceled")
        )
        + " FROM report_info",
    )
    if info["state"] == AccountState.INVALID:
        return []
    counted = {row["state"]: row["jobs"] for row in fetch_rows(connection, COUNTS_QUERY)}
    counted["accepted"] = info["accepted"]
    return [
        _difference("", f"figure {name}", info[f"said_{name}"], counted.get(name, 0))
        for name in ("accepted", "succeeded", "failed", "expired", "canceled")
        if info[f"said_{name}"] != counted.get(name, 0)
    ]


def _job_faults(
    reported: Mapping[str, Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]], *, as_of: dt.datetime
) -> Iterator[dict[str, Any]]:
    for job_id, row in reported.items():
        ledger = known.get(job_id)
        if ledger is None:
            yield _difference(job_id, "unknown_to_the_ledger", row["state"], "")
        elif row["latest_seq"] > ledger["latest_seq"]:
            yield _difference(job_id, "ahead_of_the_ledger", row["latest_seq"], ledger["latest_seq"])
        elif row["latest_seq"] == ledger["latest_seq"]:
            for name in COMPARED:
                if row[name] != ledger[name]:
                    yield _difference(job_id, name, row[name], ledger[name])
    committed = as_of - dt.timedelta(seconds=COMMIT_LAG_S)
    for job_id in known.keys() - reported.keys():
        if known[job_id]["submitted_at"] <= committed:
            yield _difference(job_id, "missing_in_the_report", "", known[job_id]["state"])


def release_gate(accountant: Accountant) -> CheckOutcome:
    """Evaluate the gate on the ledger as it is now; violations are findings without an owner in time."""
    with accountant.ledger.reading() as tx:
        facts = read_facts(tx, limits=accountant.limits)
    verdict = evaluate_gate(facts)
    violations = [
        {
            "job_id": line.job_id or "",
            "finding": line.finding,
            "investigation_id": line.investigation_id or "",
            "owner": line.owner or "",
            "deadline_at": line.deadline_at.isoformat() if line.deadline_at else "",
        }
        for line in facts.open_findings
        if not (line.owned or line.answered)
    ]
    for finding, ids in (("orphan_terminal", verdict.orphan), ("overlapping", verdict.overlapping)):
        violations += [
            {"job_id": job_id, "finding": finding, "investigation_id": "", "owner": "", "deadline_at": ""}
            for job_id in ids
        ]
    passed = verdict.gate is Gate.PASS
    described = (
        f"State: {verdict.state.value}. Gate: {verdict.gate.value}."
        f" Jobs accepted: {len(facts.sets.accepted)}, unresolved: {len(facts.unresolved)}."
        f" Findings without an owner in time: {len(verdict.unowned)}."
    )
    return CheckOutcome(passed, described, () if passed else tuple(violations), FINDINGS_QUERY)


_DEFINITIONS = (
    AccountingCheck(
        "report_matches_ledger",
        "job_accounting",
        "The published report and the ledger agree, job by job.",
        report_matches_ledger,
    ),
    AccountingCheck(
        "release_gate",
        "job_accounting",
        "Every accepted job is terminal, in flight, or under an owned investigation within its deadline.",
        release_gate,
    ),
)

ACCOUNTING_CHECKS: Mapping[str, AccountingCheck] = {check.name: check for check in _DEFINITIONS}
