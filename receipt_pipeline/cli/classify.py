"""`receipts classify`: a synchronous answer under what the alias names now; no job."""

from __future__ import annotations

from pathlib import Path

import typer

from receipt_pipeline.app import submitter
from receipt_pipeline.cli.answers import answering, people, print_json
from receipt_pipeline.cli.opening import services


@answering
def classify(
    scan: Path = typer.Argument(..., help="One scan."),
    release: str = typer.Option("", "--release", help="Alias, name or id; `production` otherwise."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Classify one scan at once. Nothing is accepted and no job is made."""
    answer = submitter.classify_scan(services(), services().principal(), scan, release=release or None)
    if as_json:
        print_json(answer)
        return
    outcome = answer["outcome"]
    people.print(f"{outcome['class']}: {outcome['decision'] or outcome['reason_code']}")
    for code in outcome["reasons"]:
        people.print(f"  {code}")
    people.print(f"  release {answer['pins']['release_id']}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("classify")(classify)
