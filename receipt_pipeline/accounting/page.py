"""Renders the account as one page for people: self-contained, readable on a phone, in light and in dark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from receipt_pipeline.accounting.charts import TABLE_FIGURES, balance_svg, queue_svg, spans_svg
from receipt_pipeline.accounting.figures import FIGURES
from receipt_pipeline.accounting.query import fetch_rows, reading_report

NEWEST_SHOWN_MAX = 40
ROWS_SHOWN_MAX = 10
QUERIES: Mapping[str, str] = {
    "unresolved_investigations": "SELECT * FROM unresolved_investigations",
    "alerts": "SELECT * FROM alerts WHERE resolved_at IS NULL ORDER BY raised_at",
    "jobs": "SELECT state, terminal_class, count(*) AS jobs FROM jobs GROUP BY ALL ORDER BY ALL",
    "balance": (
        "SELECT coalesce(item_class, 'open') AS item_class, count(*) AS items"
        " FROM items GROUP BY ALL ORDER BY items DESC, item_class"
    ),
    "spans": "SELECT reconciled_s FROM job_report WHERE reconciled_s IS NOT NULL ORDER BY reconciled_s",
    "queue": (
        "SELECT epoch_us(r.as_of - j.submitted_at) / 1e6 AS age_s,"
        " epoch_us(j.queue_deadline - j.submitted_at) / 1e6 AS limit_s, j.items_requested AS items"
        " FROM jobs j CROSS JOIN report_info r WHERE j.state = 'accepted' ORDER BY age_s"
    ),
    "truth": "SELECT * FROM time_to_reconciled_truth",
    "newest": (
        f"SELECT * FROM job_report WHERE origin = 'here' ORDER BY submitted_at DESC, job_id LIMIT {NEWEST_SHOWN_MAX}"
    ),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the page, and the first of the rows that it counts, each with its job and command."""

    name: str
    count: int
    rows: list[dict[str, Any]]

    @property
    def query(self) -> str:
        """Return the query that finds them all."""
        return FIGURES[self.name]


def render_page(published: Path, document: Mapping[str, Any]) -> str:
    """Return the page as HTML without any reference to another file or host.

    Every figure has the query that finds it in the published report.

    Raises:
        ReportFault: REPORT.UNREADABLE.v1.
    """
    with reading_report(published) as connection:
        rows = {name: fetch_rows(connection, query) for name, query in QUERIES.items()}
        found = {name: fetch_rows(connection, f"{FIGURES[name]} LIMIT {ROWS_SHOWN_MAX}") for name in TABLE_FIGURES}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("receipt_pipeline.accounting", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"moment": _moment, "seconds": _seconds}
    return environment.get_template("operations.html").render(
        document=document,
        investigations=rows["unresolved_investigations"],
        truth=rows["truth"],
        newest=rows["newest"],
        figures=[Figure(name, document[name], found[name]) for name in TABLE_FIGURES],
        charts=[
            Markup(balance_svg([(row["item_class"], row["items"]) for row in rows["balance"]])),
            Markup(spans_svg([row["reconciled_s"] for row in rows["spans"]])),
            Markup(queue_svg([(row["age_s"], row["limit_s"], row["items"]) for row in rows["queue"]])),
        ],
        query_of=_query_of,
    )


def _query_of(name: str) -> Markup:
    query = escape(QUERIES[name])
    return Markup("<details><summary>query for {}</summary><pre>{}</pre></details>").format(
        name.replace("_", " "), query
    )


def _moment(value: dt.datetime | str | None) -> str:
    if value is None:
        return ""
    at = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{at.astimezone(dt.UTC):%-d %b %Y, %H:%M} UTC"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
