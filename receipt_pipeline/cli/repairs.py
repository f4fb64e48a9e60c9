"""`receipts requeue`: repairs of one job that leave what was finished as it is."""

from __future__ import annotations

import typer

from receipt_pipeline.cli.answers import answering, people, print_json
from receipt_pipeline.cli.opening import services

JSON = typer.Option(False, "--json", help="Print one JSON document.")


@answering
def requeue(job: str = typer.Argument(..., help="Job id."), as_json: bool = JSON) -> None:
    """Take a running job from its worker and make it ready at once; the old worker is fenced."""
    answer = services().requeue(job)
    if as_json:
        print_json(answer)
    else:
        people.print(answer["sentence"])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("requeue")(requeue)
