"""`receipts retry`, `requeue`, `supersede`: repairs of one job that leave what was finished as it is."""

from __future__ import annotations

import sys
from typing import Any

import typer

from receipt_pipeline.app import operator, submitter
from receipt_pipeline.cli.answers import Exit, answering, people, print_json, print_table
from receipt_pipeline.cli.asked_time import asked_time
from receipt_pipeline.cli.jobs import show_ending
from receipt_pipeline.cli.opening import services
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID

JSON = typer.Option(False, "--json", help="Print one JSON document.")


@answering
def retry(
    job: str = typer.Argument(..., help="Job id of a closed job."),
    unresolved: bool = typer.Option(False, "--unresolved", help="Only what came to no outcome."),
    preview: bool = typer.Option(False, "--preview", help="Show what would be touched; start nothing."),
    yes: bool = typer.Option(False, "--yes", help="Start it without asking."),
    cutoff: str = typer.Option("", "--cutoff", help="Reconciliation cutoff of the child (ISO, with zone)."),
    as_json: bool = JSON,
) -> Exit:
    """Start a child job over what a closed job left: same pins, same input, the parent stays as it is."""
    if not unresolved:
        raise InputRefused(FIELD_INVALID, pointer="--unresolved", wanted="this; all of it is never retried")
    opened, at = services(), asked_time(cutoff)
    scope = submitter.preview_retry(opened, opened.principal(), job, cutoff=at)
    if preview or not yes:
        if as_json and preview:
            print_json(scope)
            return Exit.DONE
        if not preview and (as_json or not sys.stdin.isatty()):
            raise InputRefused(FIELD_INVALID, pointer="--yes", wanted="--yes, or --preview to look first")
        _show_scope(scope)
        if preview:
            return Exit.DONE
        if not typer.confirm(f"Start a child job over these {len(scope['touched'])} items?"):
            return Exit.BAD_NEWS
    answer = submitter.retry_job(opened, opened.principal(), job, cutoff=at)
    if as_json:
        print_json(answer)
        return Exit.DONE
    word = "joined the child job" if answer["replayed"] else "accepted the child job"
    people.print(f"{word} {answer['job_id']} over {len(answer['touched'])} items of {job}")
    people.print(f"  accepted is not decided; status: {answer['status_location']}")
    return Exit.DONE


def _show_scope(scope: dict[str, Any]) -> None:
    """Print which items a retry touches and which it leaves."""
    columns = ["item_id", "label", "class", "reason"]
    print_table(scope["touched"], columns, title=f"{len(scope['touched'])} items would be worked on again")
    if scope["not_readable"]:
        title = f"{len(scope['not_readable'])} items whose stored scan is gone or altered"
        print_table(scope["not_readable"], columns, title=title)
    people.print(f"{scope['untouched']} of {scope['items']['requested']} items are not touched")
    people.print(f"release {scope['pins']['release_id']}, as the parent's")
    if scope["child"]:
        people.print(f"such a child job is there already: {scope['child']}")


@answering
def requeue(job: str = typer.Argument(..., help="Job id."), as_json: bool = JSON) -> None:
    """Take a running job from its worker and make it ready at once; the old worker is fenced."""
    answer = operator.requeue_job(services(), services().principal(), job)
    if as_json:
        print_json(answer)
    else:
        people.print(answer["sentence"])


@answering
def supersede(
    job: str = typer.Argument(..., help="Job id of the open job that is given up."),
    by: str = typer.Option(..., "--by", help="A manifest that is accepted for it, or a job id."),
    as_json: bool = JSON,
) -> None:
    """Replace an open job; both records name each other, and what was given up is named."""
    answer = submitter.supersede_job(services(), services().principal(), job, by=by)
    if as_json:
        print_json(answer)
        return
    people.print(answer["sentence"])
    show_ending(answer)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("retry")(retry)
    app.command("requeue")(requeue)
    app.command("supersede")(supersede)
