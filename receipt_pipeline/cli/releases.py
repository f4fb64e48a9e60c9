"""`receipts release`: list, approve, promote and retire releases."""

from __future__ import annotations

import typer

from receipt_pipeline.app import admin
from receipt_pipeline.cli.answers import answering, people, print_json, print_table
from receipt_pipeline.cli.opening import services
from receipt_pipeline.evaluation import records

SHOWN_FIGURES = (
    "strict_micro_f1",
    "normalised_micro_f1",
    "risk_auc_pictures",
    "cleared_share",
    "cleared_wrong_share",
    "cleared_wrong_upper95",
    "cleared_forged_share",
    "cleared_forged_upper95",
)

room = typer.Typer(no_args_is_help=True, help="List, approve, promote and retire releases.")


@room.command("list")
@answering
def list_all(as_json: bool = typer.Option(False, "--json", help="Print one JSON document.")) -> None:
    """List the releases and the aliases that point at them."""
    rows = admin.list_releases(services())
    if as_json:
        print_json(rows)
        return
    columns = [
        "name",
        "aliases",
        "release_id",
        "risk_model_digest",
        "policy_revision",
        "review_rate_ppm",
        "retired_at",
    ]
    print_table(rows, columns)


@room.command()
@answering
def approve(
    name: str = typer.Argument(..., help="Name of a shipped release."),
    despite: str = typer.Option("", "--despite", help="Why, although it is worse; recorded with your name."),
) -> None:
    """Approve a shipped release; refused when its evaluation on record says that it is worse."""
    people.print(
        f"approved {admin.approve_release(services(), services().principal(), name, despite=despite or None)}"
    )


@room.command()
@answering
def evaluate(name: str = typer.Argument(..., help="Name of a shipped release.")) -> None:
    """Evaluate a release on the labelled scans of RECEIPTS_EVALUATION_SET; prints where the page lies."""
    opened = services()
    figures = admin.evaluate_release(opened, opened.principal(), name)["figures"]
    for measure in SHOWN_FIGURES:
        people.print(f"{measure:24} {figures[measure]}")
    people.print(str(records.evaluation_page(opened.evaluations, name)))


@room.command()
@answering
def promote(
    release: str = typer.Argument(..., help="Name or id."),
    alias: str = typer.Option("production", "--alias", help="The alias to move."),
    despite: str = typer.Option("", "--despite", help="Why, although it is worse; recorded with your name."),
) -> None:
    """Let an alias point at a release. Jobs already accepted keep their pins."""
    opened = services()
    moved_to = admin.promote_release(
        opened, opened.principal(), release, alias=alias, despite=despite or None
    )
    people.print(f"{alias} -> {moved_to}")


@room.command()
@answering
def retire(
    release: str = typer.Argument(..., help="Name or id."),
    force: bool = typer.Option(False, "--force", help="Even the last one; then nothing can be accepted."),
) -> None:
    """Retire a release: nothing new is accepted under it, waiting jobs fail as identity_failed."""
    people.print(
        f"retired {admin.retire_release(services(), services().principal(), release, even_the_last=force)}"
    )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(room, name="release")
