"""`receipts tasks`: the reviewer's list, and finishing a task."""

from __future__ import annotations

from typing import Any

import typer

from receipt_pipeline.app import reviewer
from receipt_pipeline.cli.jobs import reasons_text
from receipt_pipeline.cli.output import (
    JSON,
    format_value,
    open_session,
    print_json,
    print_table,
    reports_errors,
    stdout,
)
from receipt_pipeline.core.receipt_text import counted

app = typer.Typer(no_args_is_help=True, help="List review tasks and mark them done.")


@app.command("list")
@reports_errors
def list_tasks(
    everything: bool = typer.Option(False, "--all", help="Include finished tasks."), as_json: bool = JSON
) -> None:
    """List the receipts that a person has to look at, oldest first."""
    rows = reviewer.list_tasks(*open_session(), only_open=not everything)
    if as_json:
        print_json(rows)
        return
    columns = ["item_id", "decision", "reasons", "state", "disputed", "job_id", "decision_id"]
    shown = [row | {"reasons": reasons_text(row["reasons"])} for row in rows]
    print_table(shown, columns, title=counted(len(rows), "review task"), formatted=_with_whole_digest)


def _with_whole_digest(value: Any) -> str:
    """Return a value for people; a decision id stays whole, because `receipts tasks done` takes it."""
    return value if isinstance(value, str) else format_value(value)


@app.command()
@reports_errors
def done(decision: str = typer.Argument(..., help="Decision id, as printed by `receipts tasks list`.")) -> None:
    """Mark an open review task as done."""
    reviewer.finish_task(*open_session(), decision)
    stdout.print(f"Task {decision} is done.")
