"""`receipts investigations`: the open questions, their owners, and recorded decisions."""

from __future__ import annotations

import typer

from receipt_pipeline.app import operator
from receipt_pipeline.cli.answers import answering, people, print_json, print_table
from receipt_pipeline.cli.opening import services

room = typer.Typer(no_args_is_help=True, help="List, assign and resolve investigations.")


@room.command("list")
@answering
def list_all(
    everything: bool = typer.Option(False, "--all", help="Resolved ones too."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """List open investigations, nearest deadline first."""
    rows = operator.list_investigations(services(), services().principal(), only_open=not everything)
    if as_json:
        print_json(rows)
        return
    columns = ["investigation_id", "kind", "job_id", "owner", "deadline_at"]
    columns += ["suspected_effect", "last_safe_checkpoint", "allowed_repair"]
    columns += ["state", "resolution", "resolved_by", "resolved_at"] if everything else []
    print_table(rows, columns, title=f"{len(rows)} investigations")


@room.command()
@answering
def assign(
    investigation: str = typer.Argument(..., help="Investigation id."),
    owner: str = typer.Argument(..., help="An active principal."),
) -> None:
    """Give an investigation to an active principal."""
    operator.assign_investigation(services(), services().principal(), investigation, owner=owner)
    people.print(f"{investigation} is now owned by {owner}")


@room.command()
@answering
def resolve(
    investigation: str = typer.Argument(..., help="Investigation id."),
    note: str = typer.Option("", "--note", help="What was found and decided."),
    keep: str = typer.Option("", "--keep", help="Quarantine: the digest that stands."),
    withdraw: bool = typer.Option(False, "--withdraw", help="Give the divergent or lost result up."),
) -> None:
    """Record a decision. A quarantine needs --keep DIGEST or --withdraw, any other question a note."""
    operator.resolve_investigation(
        services(), services().principal(), investigation, note=note, keep=keep or None, withdraw=withdraw
    )
    people.print(f"{investigation} is resolved")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(room, name="investigations")
