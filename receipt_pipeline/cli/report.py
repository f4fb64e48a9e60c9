"""`receipts report` and `reconcile`: account for every job, compare and repair."""

from __future__ import annotations

from typing import Any

import typer
from rich.text import Text

from receipt_pipeline.accounting.figures import FIGURES
from receipt_pipeline.accounting.release_report import why_the_gate_fails
from receipt_pipeline.app import analyst, maintenance, operator
from receipt_pipeline.cli.output import (
    JSON,
    Exit,
    format_value,
    label,
    open_session,
    parse_cutoff,
    plain,
    print_json,
    print_table,
    reports_errors,
    stderr,
    stdout,
)
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.core.receipt_text import counted

NAME_WIDTH = 22
_SHOWN_APART = ("state", "gate", "investigations", "alerts", "found_by")


@reports_errors
def reconcile(as_json: bool = JSON) -> None:
    """Compare ledger, files and deliveries, and repair what can be repaired. Safe to repeat.

    `receipts up` does this regularly by itself. The ledger is the database of all jobs.
    """
    summary = operator.reconcile(*open_session())
    if as_json:
        print_json(summary)
        return
    done = [{"what": label(name), "count": number} for name, number in summary.items() if number]
    print_table(done, ["what", "count"], title="" if done else "Nothing to compare and nothing to repair.")


@reports_errors
def report(
    sql: str = typer.Option("", "--sql", help="Print the rows of a read-only query over the report."),
    figure: str = typer.Option(
        "", "--figure", help="Print the jobs behind one figure of the report, such as `failed`, and the query for them."
    ),
    published: bool = typer.Option(
        False, "--published", help="Use the report that was published last; do not refresh it."
    ),
    cutoff: str = typer.Option("", "--cutoff", help="Evaluate the gate at this time, such as 2026-11-30T18:00+00:00."),
    page: bool = typer.Option(False, "--page", help="Write the report as an HTML page and print its path."),
    as_json: bool = JSON,
) -> Exit:
    """Refresh the account of all jobs and print it. Exit status 1 if its gate fails.

    The gate passes when every accepted job has ended or has an investigation with an owner.
    """
    (context, principal), at = open_session(), parse_cutoff(cutoff)
    if not published:
        maintenance.sweep_objects(context)
        maintenance.review_alerts(context)
        for notice in maintenance.publish_report(context).notices:
            stderr.print(Text.assemble(("notice", "bold yellow"), f" {notice}"))
    if page:
        stdout.print(str(analyst.publish_page(context, principal)))
        return Exit.DONE
    if figure:
        sql = _query_of(figure)
        if not as_json:
            stdout.print(f"Query: {sql}")
    if sql:
        rows = analyst.query_report(context, principal, sql)
        if as_json:
            print_json(rows)
        else:
            columns = list(rows[0]) if rows else []
            print_table(rows, columns, title=counted(len(rows), "row"), formatted=lambda value: str(plain(value)))
        return Exit.DONE
    document = analyst.read_report(context, principal, cutoff=at, published=published)
    if as_json:
        print_json(document)
    else:
        show_report(document)
    return Exit.DONE if document["gate"] == "pass" else Exit.BAD_NEWS


def _query_of(figure: str) -> str:
    if figure not in FIGURES:
        raise InputRefused(FIELD_INVALID, pointer="--figure", allowed=", ".join(FIGURES))
    return FIGURES[figure]


def show_report(document: dict[str, Any]) -> None:
    """Print the account for people: figures, open investigations, alerts, then state and gate."""
    for name, value in document.items():
        if name not in _SHOWN_APART and (value or not isinstance(value, list)):
            stdout.print(f"{name:{NAME_WIDTH}} {format_value(value)}")
    rows = document["investigations"]
    if rows:
        columns = ["kind", "owner", "deadline", "state", "job_id", "id"]
        print_table(rows, columns, title=counted(len(rows), "investigation"))
    if document["alerts"]:
        columns = ["kind", "subject", "raised_at", "next_step"]
        print_table(document["alerts"], columns, title=counted(len(document["alerts"]), "alert"))
    stdout.print("To see the jobs behind a figure: receipts report --published --figure FIGURE")
    stdout.print(f"state: {document['state']}")
    stdout.print(f"gate: {document['gate']}")
    for sentence in why_the_gate_fails(document):
        stdout.print(f"  {sentence}")
