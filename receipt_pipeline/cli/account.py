"""`receipts reconcile`, `report`, `evaluate`: compare, repair, publish, measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from receipt_pipeline.accounting.figures import FIGURES
from receipt_pipeline.accounting.release_report import why_the_gate_fails
from receipt_pipeline.app import analyst, maintenance, operator
from receipt_pipeline.cli.answers import Exit, answering, people, print_json, print_table, remarks
from receipt_pipeline.cli.asked_time import asked_time
from receipt_pipeline.cli.opening import services
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID

JSON = typer.Option(False, "--json", help="Print one JSON document.")


@answering
def reconcile(as_json: bool = JSON) -> None:
    """Compare ledger, objects, effects and deliveries, and repair what can be; repeatable."""
    summary = operator.reconcile(services(), services().principal())
    if as_json:
        print_json(summary)
        return
    for name, value in summary.items():
        people.print(f"{name}: {value}")


@answering
def report(
    sql: str = typer.Option("", "--sql", help="Query the published report, read-only."),
    figure: str = typer.Option(
        "", "--figure", help="List what a figure counts, by its name, with its query."
    ),
    published: bool = typer.Option(False, "--published", help="Read what is published; refresh nothing."),
    cutoff: str = typer.Option("", "--cutoff", help="Judge the gate at this time (ISO, with zone)."),
    page: bool = typer.Option(False, "--page", help="Render the account as an HTML page, print its path."),
    as_json: bool = JSON,
) -> Exit:
    """Refresh and publish the account, then print it. Exit status 1 when the gate fails."""
    opened, at = services(), asked_time(cutoff)
    if not published:
        maintenance.sweep_objects(opened)
        maintenance.review_alerts(opened)
        for notice in maintenance.publish_report(opened).notices:
            remarks.print(Text.assemble(("notice", "bold yellow"), f" {notice}"))
    if page:
        people.print(str(maintenance.publish_page(opened)))
        return Exit.DONE
    if figure:
        if figure not in FIGURES:
            raise InputRefused(FIELD_INVALID, pointer="--figure", allowed=", ".join(FIGURES))
        sql = FIGURES[figure]
        if not as_json:
            people.print(f"found by: {sql}")
    if sql:
        rows = analyst.query_report(opened, opened.principal(), sql)
        if as_json:
            print_json(rows)
        else:
            print_table(rows, list(rows[0]) if rows else [], title=f"{len(rows)} rows")
        return Exit.DONE
    document = analyst.read_report(opened, opened.principal(), cutoff=at, published=published)
    if as_json:
        print_json(document)
    else:
        show_report(document)
    return Exit.DONE if document["gate"] == "pass" else Exit.BAD_NEWS


def show_report(document: dict[str, Any]) -> None:
    """Print the account for people: counts first, then what is open, then state and gate."""
    for name, value in document.items():
        if name in ("state", "gate", "investigations", "alerts", "found_by"):
            continue
        if value or not isinstance(value, list):
            people.print(f"{name}: {value}")
    rows = document["investigations"]
    if rows:
        print_table(rows, ["id", "kind", "job_id", "owner", "deadline", "state"], title="investigations")
    if document["alerts"]:
        print_table(document["alerts"], ["kind", "subject", "raised_at", "next_step"], title="alerts")
    people.print("what a figure counts, job by job, and its query: receipts report --published --figure NAME")
    people.print(f"state: {document['state']}")
    people.print(f"gate: {document['gate']}")
    for sentence in why_the_gate_fails(document):
        people.print(f"  {sentence}", markup=False)


@answering
def evaluate(
    shared: Path = typer.Option(Path("../shared"), "--labelled", help="Folder with labelled scans."),
    limit: int = typer.Option(0, "--limit", help="Only so many scans; 0 for all."),
) -> Exit:
    """Measure fields and risk on labelled scans; writes evaluate.json."""
    from receipt_pipeline.evaluation.evaluate import main as measure

    arguments = ["--shared", str(shared)] + (["--limit", str(limit)] if limit else [])
    return Exit(measure(arguments))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("reconcile")(reconcile)
    app.command("report")(report)
    app.command("evaluate")(evaluate)
