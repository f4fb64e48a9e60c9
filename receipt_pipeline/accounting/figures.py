"""Figures of the account, their queries, and Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from receipt_pipeline.accounting.query import fetch_rows, reading_report
from receipt_pipeline.core.attempts import AttemptOutcome

# Columns that lead from a row to its job: the run in the web UI, and the command that shows it in full.
_LINK = "job_id, state, terminal_class, run_path, status_command"


def _jobs(condition: str) -> str:
    return f"SELECT {_LINK} FROM job_links WHERE {condition} ORDER BY job_id"


def _ended(*states: str) -> str:
    """Find jobs that ended so by their row or by their events; a sound ledger says it in both."""
    listed = ", ".join(f"'{state}'" for state in states)
    return (
        "SELECT t.job_id, r.state, r.terminal_class, r.run_path,"
        " 'receipts status ' || t.job_id AS status_command"
        f" FROM (SELECT job_id FROM jobs WHERE state IN ({listed}) UNION SELECT job_id FROM events"
        f" WHERE kind = 'terminal' AND data ->> '$.state' IN ({listed})) t"
        " LEFT JOIN job_links r USING (job_id) ORDER BY t.job_id"
    )


def _found(finding: str) -> str:
    return (
        "SELECT f.job_id, f.investigation_id, f.owner, f.deadline_at, f.owned, f.answered,"
        " r.run_path, 'receipts status ' || f.job_id AS status_command"
        " FROM account_findings f LEFT JOIN job_links r USING (job_id)"
        f" WHERE f.finding = '{finding}' ORDER BY f.job_id"
    )


def _rows(columns: str, table: str, condition: str, order: str) -> str:
    return (
        f"SELECT {columns}, t.job_id, r.run_path, 'receipts status ' || t.job_id AS status_command"
        f" FROM {table} t LEFT JOIN job_links r USING (job_id) WHERE {condition} ORDER BY {order}"
    )


def _attempts(outcome: AttemptOutcome) -> str:
    return _rows("t.lease_epoch, t.reason_code", "attempts", f"t.outcome = '{outcome}'", "t.job_id, t.lease_epoch")


def _messages(condition: str) -> str:
    return _rows("DISTINCT t.message_id", "deliveries", condition, "t.message_id")


def _received(outcome: str) -> str:
    return _rows("t.consumed_id, t.event_id", "consumed", f"t.outcome = '{outcome}'", "t.consumed_id")


def _imported(condition: str) -> str:
    return (
        "SELECT m.job_id, m.origin, m.external_id, m.terminal_class, i.owner, i.state AS question,"
        " 'receipts status ' || m.job_id AS status_command"
        " FROM imported_jobs m LEFT JOIN investigations i USING (investigation_id)"
        f" WHERE {condition} ORDER BY m.job_id"
    )


_MISSING = "SELECT job_id FROM account_findings WHERE finding = 'missing_terminal'"
_DOUBTED = (
    "SELECT job_id FROM account_findings WHERE finding IN ('success_without_object', 'object_mismatch', 'divergent')"
)
_READ_BACK = (
    "SELECT e.job_id FROM effects e JOIN jobs j ON j.result_key = e.idempotency_key"
    " WHERE e.kind = 'result_object' AND e.state = 'committed' AND e.expected_digest = j.result_digest"
)
_ORPHANS = (
    "SELECT DISTINCT e.job_id, 'receipts status ' || e.job_id AS status_command FROM events e"
    " WHERE e.kind = 'terminal' AND e.job_id NOT IN (SELECT job_id FROM jobs) ORDER BY e.job_id"
)
_OVERLAPPING = (
    "SELECT e.job_id, list(DISTINCT e.data ->> '$.state') AS states, any_value(j.state) AS state,"
    " 'receipts status ' || e.job_id AS status_command"
    " FROM events e JOIN jobs j USING (job_id) WHERE e.kind = 'terminal' GROUP BY e.job_id"
    " HAVING count(DISTINCT e.data ->> '$.state') > 1"
    " OR any_value(j.state) <> any_value(e.data ->> '$.state')"
    " ORDER BY e.job_id"
)

# By the name that the figure has in the report document; a dot leads into a part of it.
# Each query gives one row for each thing that its figure counts or lists.
FIGURES: Mapping[str, str] = {
    "accepted": _jobs("true"),
    "in_flight": _jobs(f"state IN ('accepted', 'running') AND job_id NOT IN ({_MISSING})"),
    "terminal": _ended("succeeded", "failed", "expired", "canceled"),
    "succeeded": _ended("succeeded"),
    "verified_succeeded": _jobs(f"state = 'succeeded' AND job_id IN ({_READ_BACK}) AND job_id NOT IN ({_DOUBTED})"),
    "failed": _ended("failed"),
    "expired": _ended("expired"),
    "canceled": _ended("canceled"),
    "retried": _jobs(
        "job_id IN (SELECT job_id FROM attempts GROUP BY job_id"
        " HAVING min(lease_epoch) FILTER (outcome IN ('failed', 'lost')) < max(lease_epoch))"
    ),
    **{f"attempts.{outcome}": _attempts(outcome) for outcome in AttemptOutcome},
    "unresolved": _found("missing_terminal"),
    "unresolved_items": _rows(
        "t.ordinal, t.reason_code",
        "items",
        "t.item_class = 'unresolved'"
        " AND t.job_id IN (SELECT job_id FROM account_findings WHERE finding = 'unresolved_items')",
        "t.job_id, t.ordinal",
    ),
    "missing_terminal": _found("missing_terminal"),
    "effect_gaps": _found("effect_gaps"),
    "orphan_terminal": _ORPHANS,
    "overlapping": _OVERLAPPING,
    "success_without_object": _found("success_without_object"),
    "object_without_success": (
        "SELECT unnest(document ->> '$.object_without_success[*]') AS object_key FROM report_info ORDER BY object_key"
    ),
    "object_mismatch": _found("object_mismatch"),
    "divergent": _found("divergent"),
    "notifications.delivered": _messages("t.outcome = 'delivered'"),
    "notifications.dropped": _messages("t.outcome = 'dropped'"),
    "notifications.late": (
        "SELECT message_id AS id, job_id FROM deliveries WHERE outcome = 'delivered' AND late GROUP BY ALL"
        " UNION ALL SELECT event_id, job_id FROM consumed WHERE outcome = 'late' ORDER BY ALL"
    ),
    "notifications.duplicate": _received("duplicate"),
    "consumer.review_tasks": _rows("t.decision_id, t.decision", "review_tasks", "true", "t.decision_id"),
    "consumer.duplicates": _received("duplicate"),
    "consumer.conflicts": _received("conflict"),
    "imported.total": _imported("true"),
    "imported.terminal": _imported("m.terminal_class IS NOT NULL"),
    "imported.decided": _imported("m.terminal_class IS NULL AND i.state <> 'open'"),
    "imported.open": _imported("m.terminal_class IS NULL AND i.state = 'open'"),
    "imported_open": _found("imported_open"),
    "investigations": (
        "SELECT i.investigation_id, i.job_id, i.kind, i.owner, i.state, r.run_path,"
        " 'receipts status ' || i.job_id AS status_command"
        " FROM investigations i LEFT JOIN job_links r USING (job_id)"
        " ORDER BY i.deadline_at, i.investigation_id"
    ),
    "alerts": (
        "SELECT a.alert_id, a.kind, a.subject, a.job_id, 'receipts status ' || a.job_id AS status_command"
        " FROM alerts a WHERE a.resolved_at IS NULL ORDER BY a.raised_at, a.alert_id"
    ),
    "time_to_completion_s": (
        "SELECT total_s, job_id, run_path, status_command FROM job_report"
        " WHERE origin = 'here' AND total_s IS NOT NULL ORDER BY total_s DESC, job_id"
    ),
    "unowned": (
        "SELECT finding || ':' || coalesce(job_id, investigation_id) AS label, job_id, investigation_id,"
        " owner, deadline_at, 'receipts status ' || job_id AS status_command"
        " FROM account_findings WHERE NOT (owned OR answered) ORDER BY label"
    ),
}

# What the observed assets count, by asset and name: plain queries of the report's tables.
COUNTS: Mapping[str, str] = {
    "submissions": "SELECT submission_id, state FROM submissions WHERE state = '{}' ORDER BY submission_id",
    "job_ledger": "SELECT job_id, state FROM jobs WHERE state = '{}' ORDER BY job_id",
    "result_objects": "SELECT job_id, object_key, outcome FROM output_checks WHERE outcome = '{}'",
    "notifications": "SELECT job_id, message_id, outcome FROM deliveries WHERE outcome = '{}' ORDER BY ALL",
    "review_tasks": "SELECT job_id, decision_id, state FROM review_tasks WHERE state = '{}' ORDER BY ALL",
}
# Messages that wait are in no report: they change without an event.
READ_FROM_LEDGER: Mapping[str, str] = {
    "notifications.due": "SELECT job_id, message_id FROM outbox WHERE state = 'due' ORDER BY job_id"
}


def count_queries(asset: str, names: Iterable[str]) -> dict[str, str]:
    """Return per count of one observed asset the query that finds what it counts."""
    return {name: READ_FROM_LEDGER.get(f"{asset}.{name}") or COUNTS[asset].format(name) for name in names}


def counted(document: Mapping[str, Any], name: str) -> int | None:
    """Return how many rows a figure's query has to give; None for a figure that is no count."""
    value: Any = document
    for part in name.split("."):
        value = value.get(part, 0)  # An outcome that never came about is not in the document.
    if isinstance(value, list):
        return len(value)
    return value if isinstance(value, int) else None


_JOBS = "SELECT state, coalesce(terminal_class, phase) AS class, count(*) AS jobs FROM jobs GROUP BY ALL"
_ITEMS = "SELECT coalesce(item_class, 'open') AS item_class, count(*) AS items FROM items GROUP BY ALL"
_ALERTS = "SELECT kind, count(*) AS alerts FROM alerts WHERE resolved_at IS NULL GROUP BY ALL"
_QUEUE = (
    "SELECT coalesce(max(epoch_us(r.as_of - j.submitted_at) / 1e6), 0) AS age_s,"
    " coalesce(sum(j.items_requested), 0) AS items"
    " FROM jobs j CROSS JOIN report_info r WHERE j.state = 'accepted'"
)
_TRUTH = "SELECT terminal_class, p50_s, p95_s, needing_people_percent FROM time_to_reconciled_truth"


def write_metrics(published: Path, document: Mapping[str, Any], path: Path) -> None:
    """Write the file whole, so that a collector never reads half of it.

    Raises:
        ReportFault: REPORT.UNREADABLE.v1. OSError: the file cannot be written.
    """
    registry = CollectorRegistry()
    with reading_report(published) as connection:
        _count(registry, "receipts_jobs", "Jobs by state and class", fetch_rows(connection, _JOBS))
        _count(registry, "receipts_items", "Accepted items by class", fetch_rows(connection, _ITEMS))
        _count(registry, "receipts_alerts", "Active alerts", fetch_rows(connection, _ALERTS))
        (queue,) = fetch_rows(connection, _QUEUE)
        truth = fetch_rows(connection, _TRUTH)
    plain = {
        "receipts_queue_oldest_seconds": ("Age of the oldest job without a claim", queue["age_s"]),
        "receipts_queue_items": ("Items of jobs without a claim", queue["items"]),
        "receipts_unresolved_jobs": ("Jobs past their deadline without an end", document["unresolved"]),
        "receipts_open_investigations": (
            "Open investigations",
            sum(row["state"] == "open" for row in document["investigations"]),
        ),
        "receipts_gate_pass": ("1 when the release gate passes", document["gate"] == "pass"),
        "receipts_ledger_seq": ("Newest event that the account shows", document["seq"]),
    }
    for name, (meaning, value) in plain.items():
        Gauge(name, meaning, registry=registry).set(float(value))
    _truth(registry, truth)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_to_textfile(str(path), registry)


def _count(registry: CollectorRegistry, name: str, meaning: str, rows: list[dict[str, Any]]) -> None:
    """Write a gauge of the last column, labeled by the others."""
    figure = name.removeprefix("receipts_")
    labels = {"jobs": ["state", "class"], "items": ["item_class"], "alerts": ["kind"]}[figure]
    gauge = Gauge(name, meaning, labels, registry=registry)
    for row in rows:
        gauge.labels(*[row[label] for label in labels]).set(row[figure])


def _truth(registry: CollectorRegistry, rows: list[dict[str, Any]]) -> None:
    spans = Gauge(
        "receipts_time_to_truth_seconds",
        "Seconds from submission until all effects are committed",
        ["terminal_class", "quantile"],
        registry=registry,
    )
    people = Gauge(
        "receipts_needing_people_percent", "Jobs that needed a person", ["terminal_class"], registry=registry
    )
    for row in rows:
        for quantile in ("p50", "p95"):
            if row[f"{quantile}_s"] is not None:
                spans.labels(row["terminal_class"], quantile).set(row[f"{quantile}_s"])
        people.labels(row["terminal_class"]).set(row["needing_people_percent"])
