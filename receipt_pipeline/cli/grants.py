"""`receipts grants`: who may act in which roles until when, and whose grant was revoked."""

from __future__ import annotations

import typer

from receipt_pipeline.app import admin
from receipt_pipeline.cli.answers import answering, people, print_json, print_table
from receipt_pipeline.cli.opening import services

room = typer.Typer(no_args_is_help=True, help="List, give and revoke grants.")


@room.command("list")
@answering
def list_all(as_json: bool = typer.Option(False, "--json", help="Print one JSON document.")) -> None:
    """List the grants of the tenant, oldest first. Callers without one act by the settings alone."""
    rows = admin.list_grants(services(), services().principal())
    if as_json:
        print_json(rows)
        return
    columns = [
        "grant_no",
        "caller",
        "roles",
        "given_by",
        "given_at",
        "expires_at",
        "revoked_by",
        "revoked_at",
    ]
    print_table(rows, columns, title=f"{len(rows)} grants")


@room.command()
@answering
def give(
    caller: str = typer.Argument(..., help="Who may act."),
    roles: str = typer.Option("submitter", "--roles", help="Roles, as a list with commas."),
    days: float | None = typer.Option(None, "--days", help="For so many days; without an end otherwise."),
) -> None:
    """Let a caller act in these roles from now on; this renews a grant that has expired."""
    named = [name.strip() for name in roles.split(",") if name.strip()]
    number = admin.give_grant(services(), services().principal(), caller, roles=named, days=days)
    people.print(f"grant {number}: {caller} may act as {', '.join(sorted(named))}")


@room.command()
@answering
def revoke(caller: str = typer.Argument(..., help="Who may act no more.")) -> None:
    """Revoke a caller's grant. Accepted jobs keep their scope; their decisions go to a reviewer."""
    left = admin.revoke_grant(services(), services().principal(), caller)
    people.print(f"{caller} may act no more; {left} open jobs keep their scope and go to a reviewer")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(room, name="grants")
