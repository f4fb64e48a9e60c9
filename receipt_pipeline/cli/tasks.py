"""`receipts tasks`: the reviewer's list, and marking a task as done."""

from __future__ import annotations

import typer

from receipt_pipeline.app import reviewer
from receipt_pipeline.cli.answers import answering, people, print_json, print_table
from receipt_pipeline.cli.opening import services

room = typer.Typer(no_args_is_help=True, help="List review tasks and mark them done.")


@room.command("list")
@answering
def list_all(
    everything: bool = typer.Option(False, "--all", help="Closed ones too."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """List open review tasks, oldest first."""
    rows = reviewer.list_tasks(services(), services().principal(), only_open=not everything)
    if as_json:
        print_json(rows)
        return
    columns = ["decision_id", "item_id", "decision", "reasons", "state", "disputed", "job_id"]
    print_table(rows, columns, title=f"{len(rows)} review tasks")


@room.command()
@answering
def done(decision: str = typer.Argument(..., help="Decision id.")) -> None:
    """Mark one open task as done."""
    reviewer.finish_task(services(), services().principal(), decision)
    people.print(f"{decision} is done")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(room, name="tasks")
