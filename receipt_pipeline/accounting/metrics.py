"""Writes the account's signals as Prometheus text, for a node exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from receipt_pipeline.accounting.query import fetch_rows, reading_report

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
        _count(registry, "receipts_alerts", "Alerts that stand", fetch_rows(connection, _ALERTS))
        (queue,) = fetch_rows(connection, _QUEUE)
        truth = fetch_rows(connection, _TRUTH)
    plain = {
        "receipts_queue_oldest_seconds": ("Age of the oldest job without a claim", queue["age_s"]),
        "receipts_queue_items": ("Items of jobs without a claim", queue["items"]),
        "receipts_unresolved_jobs": ("Jobs that need an answer", document["unresolved"]),
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
    """Write a gauge of the last column, labelled by the others."""
    figure = name.removeprefix("receipts_")
    labels = {"jobs": ["state", "class"], "items": ["item_class"], "alerts": ["kind"]}[figure]
    gauge = Gauge(name, meaning, labels, registry=registry)
    for row in rows:
        gauge.labels(*[row[label] for label in labels]).set(row[figure])


def _truth(registry: CollectorRegistry, rows: list[dict[str, Any]]) -> None:
    spans = Gauge(
        "receipts_time_to_truth_seconds",
        "Seconds from submission to reconciled truth",
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
