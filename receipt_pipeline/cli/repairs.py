"""`receipts retry`, `requeue` and `supersede`: repair one job and keep what is finished."""

from __future__ import annotations

import sys
from typing import Any

import typer

from receipt_pipeline.app import operator, submitter
from receipt_pipeline.cli.jobs import show_ended_items
from receipt_pipeline.cli.output import (
    JOB,
    JSON,
    Exit,
    format_value,
    open_session,
    parse_cutoff,
    print_json,
    print_table,
    reports_errors,
    stdout,
)
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.core.receipt_text import counted


@reports_errors
def retry(
    job: str = JOB,
    unresolved: bool = typer.Option(
        True, "--unresolved", help="Retry unresolved items (the default and only choice).", show_default=False
    ),
    preview: bool = typer.Option(False, "--preview", help="Show which items would be retried, and stop."),
    yes: bool = typer.Option(False, "--yes", help="Start without asking for confirmation."),
    cutoff: str = typer.Option(
        "", "--cutoff", help="Time at which the child job must be closed, such as 2026-11-30T18:00+00:00."
    ),
    as_json: bool = JSON,
) -> Exit:
    """Retry the unresolved items of a closed job as a new child job.

    Finished items are not read again. The child job uses the same scans and the same release.
    """
    (context, principal), at = open_session(), parse_cutoff(cutoff)
    scope = submitter.preview_retry(context, principal, job, cutoff=at)
    if preview or not yes:
        if as_json and preview:
            print_json(scope)
            return Exit.DONE
        if not preview and (as_json or not sys.stdin.isatty()):
            raise InputRefused(FIELD_INVALID, pointer="--yes", wanted="--yes, or --preview to look first")
        _show_scope(scope)
        if preview:
            return Exit.DONE
        if not typer.confirm(f"Start a child job for {counted(len(scope['touched']), 'item')}?"):
            return Exit.BAD_NEWS
    answer = submitter.retry_job(context, principal, job, cutoff=at)
    if as_json:
        print_json(answer)
        return Exit.DONE
    word = "Joined the existing" if answer["replayed"] else "Accepted a"
    touched = counted(len(answer["touched"]), "item")
    stdout.print(f"{word} child job with {touched} of {job}: {answer['job_id']}")
    stdout.print(f"  Nothing is decided yet. Status: {answer['status_location']}")
    return Exit.DONE


def _show_scope(scope: dict[str, Any]) -> None:
    """Print which items a retry touches and which it leaves."""
    columns = ["label", "class", "reason", "item_id"]
    touched, unreadable = scope["touched"], scope["not_readable"]
    print_table(touched, columns, title=f"{counted(len(touched), 'item')} would be retried")
    if unreadable:
        title = f"The stored scan of {counted(len(unreadable), 'item')} is missing or altered"
        print_table(unreadable, columns, title=title)
    stdout.print(f"{scope['untouched']} of {counted(scope['items']['requested'], 'item')} would not be touched.")
    stdout.print(f"Release {format_value(scope['pins']['release_id'])}, the same as before.")
    if scope["child"]:
        stdout.print(f"This child job exists already: {scope['child']}")


@reports_errors
def requeue(job: str = JOB, as_json: bool = JSON) -> None:
    """Take a running job from its worker and queue it again.

    Use it when a worker hangs. Finished items are kept, and the old worker can no longer write.
    """
    answer = operator.requeue_job(*open_session(), job)
    if as_json:
        print_json(answer)
    else:
        stdout.print(answer["sentence"])


@reports_errors
def supersede(
    job: str = typer.Argument(..., help="Id of the open job to replace."),
    by: str = typer.Option(..., "--by", help="The replacement: a manifest file, or the id of another job."),
    as_json: bool = JSON,
) -> None:
    """Replace an open job with another one and list the abandoned items.

    Items that finished before stay readable. Example: receipts supersede JOB --by new-manifest.json
    """
    answer = submitter.supersede_job(*open_session(), job, by=by)
    if as_json:
        print_json(answer)
        return
    stdout.print(answer["sentence"])
    show_ended_items(answer)
