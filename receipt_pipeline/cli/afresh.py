"""`receipts afresh`: begin a home anew whose ledger is lost for good."""

from __future__ import annotations

import typer

from receipt_pipeline.cli.answers import answering, people, print_json
from receipt_pipeline.cli.opening import settings
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.runtime.serving import begin_anew


@answering
def afresh(
    yes: bool = typer.Option(False, "--yes", help="Do it: no backup of the ledger will be restored."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Begin anew where the ledger is lost: what earlier jobs left is set aside, and nothing is deleted."""
    if not yes:
        raise InputRefused(FIELD_INVALID, pointer="--yes", wanted="--yes, when there is no backup")
    folder, moved = begin_anew(settings())
    if as_json:
        print_json({"set_aside": None if folder is None else str(folder), "moved": moved})
    elif folder is None:
        people.print("nothing stands here that a new ledger would not know")
    else:
        people.print(f"set aside in {folder}: {', '.join(moved)}")
        people.print("  the next command begins with an empty ledger; hand in again what is still wanted")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("afresh")(afresh)
