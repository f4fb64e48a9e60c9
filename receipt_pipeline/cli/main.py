"""`receipts`: the one command, its subcommands each in a module of their own."""

from __future__ import annotations

import typer

from receipt_pipeline import __version__
from receipt_pipeline.cli import (
    account,
    classify,
    drills,
    grants,
    investigations,
    jobs,
    operations,
    releases,
    repairs,
    rollout,
    serve,
    submit,
    tasks,
)

app = typer.Typer(
    name="receipts",
    help="Receipt scans as immutable jobs: submitted, classified under pinned identities, accounted for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"receipts {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Receipt scans as immutable jobs."""


for room in (
    serve,
    submit,
    jobs,
    repairs,
    classify,
    releases,
    investigations,
    tasks,
    grants,
    account,
    operations,
    rollout,
    drills,
):
    room.register(app)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
