"""`receipts status`, `jobs`, `result`, `cancel`: what was asked, what stands, what is safe now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from receipt_pipeline.app import submitter
from receipt_pipeline.cli.answers import answering, people, plain, print_json, print_table
from receipt_pipeline.cli.opening import services
from receipt_pipeline.core.audiences import Audience
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.core.receipt_text import render_consequence, render_receipt
from receipt_pipeline.effects.results import rejections_csv
from receipt_pipeline.ledger.legacy_jobs import IMPORTED_PREFIX
from receipt_pipeline.ledger.status import AUDIENCES

SUBMISSION_PREFIX = "sub_"
OTHER_JOB = "OTHER"
JSON = typer.Option(False, "--json", help="Print one JSON document.")


@answering
def status(
    job: str = typer.Argument(..., help="Job id, or the id of a submission."),
    audience: str = typer.Option("customer", help="customer, support or engineering."),
    as_json: bool = JSON,
) -> None:
    """Show where a job stands and the one safe next action."""
    if audience not in AUDIENCES:
        raise InputRefused(FIELD_INVALID, pointer="--audience", allowed=", ".join(AUDIENCES))
    if job.startswith(SUBMISSION_PREFIX):
        _show_submission(submitter.read_submission(services(), services().principal(), job), as_json=as_json)
        return
    document = submitter.read_status(services(), services().principal(), job, audience=audience)
    if as_json:
        print_json(document)
        return
    if job.startswith(IMPORTED_PREFIX):
        _show_sections(document)
        return
    public = document.get("status") or submitter.read_status(services(), services().principal(), job)
    people.print(_command_for(job, render_consequence(public)))
    if audience != Audience.SUPPORT:
        epoch = document["lease"]["epoch"] if audience == Audience.ENGINEERING else None
        people.print(render_receipt(public, lease_epoch=epoch))
    if audience != Audience.CUSTOMER:
        _show_sections({name: value for name, value in document.items() if name != "status"})


def _command_for(job: str, text: str) -> str:
    """Return a command with this job's id in it, or that of the job which it says to follow."""
    written = text.replace("JOB", job)
    if OTHER_JOB in written:
        links = submitter.read_status(services(), services().principal(), job)["links"]
        written = written.replace(OTHER_JOB, links["superseded_by"] or links["children"][-1])
    return written


def _show_submission(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        _show_sections(document)


def _show_sections(document: dict[str, Any]) -> None:
    for name, value in document.items():
        people.print(Text.assemble((name, "bold"), f": {plain(value)}"))


@answering
def jobs(
    state: str = typer.Option("", "--state", help="Only jobs in this state."),
    as_json: bool = JSON,
) -> None:
    """List the jobs, newest first."""
    try:
        wanted = JobState(state) if state else None
    except ValueError as error:
        allowed = ", ".join(JobState)
        raise InputRefused(FIELD_INVALID, pointer="--state", allowed=allowed) from error
    rows = submitter.list_jobs(services(), services().principal(), state=wanted)
    if as_json:
        print_json(rows)
        return
    columns = ["job_id", "state", "terminal_class", "reason_code", "items_requested", "submitted_at"]
    print_table(rows, columns, title=f"{len(rows)} jobs")


@answering
def result(
    job: str = typer.Argument(..., help="Job id."),
    rejections: Path | None = typer.Option(
        None, "--rejections", help="Write the list of rejected items to this CSV file instead."
    ),
    as_json: bool = JSON,
) -> None:
    """Read a job's verified result: fields and decisions. Accepted is never a decision."""
    if rejections is not None:
        _write_rejections(job, rejections, as_json=as_json)
        return
    document = submitter.read_result(services(), services().principal(), job)
    if as_json:
        print_json(document)
        return
    rows = [
        {
            "item": item["item_id"],
            "file": item["label"],
            "class": item["class"],
            "decision": item["decision"],
            "merchant": (item["fields"] or {}).get("merchant"),
            "date": ((item["fields"] or {}).get("date") or {}).get("iso"),
            "total": item.get("total_text"),
            "reasons": ", ".join(item["reasons"] or []) or item["reason_code"],
        }
        for item in document["items"]
    ]
    print_table(rows, ["item", "file", "class", "decision", "merchant", "date", "total", "reasons"])


def _write_rejections(job: str, target: Path, *, as_json: bool) -> None:
    lines = submitter.list_rejections(services(), services().principal(), job)
    try:
        target.write_text(rejections_csv(lines), encoding="utf-8")
    except OSError as error:
        raise InputRefused(FIELD_INVALID, pointer="--rejections", wanted="a file to write to") from error
    if as_json:
        print_json(lines)
    else:
        people.print(f"{len(lines)} rejected items are listed in {target}")


@answering
def cancel(job: str = typer.Argument(..., help="Job id."), as_json: bool = JSON) -> None:
    """Cancel an open job: says what stopped, what stands, and what remains."""
    answer = submitter.cancel_job(services(), services().principal(), job)
    if as_json:
        print_json(answer)
        return
    people.print(answer["sentence"])
    show_ending(answer)


def show_ending(answer: dict[str, Any]) -> None:
    """Print what stopped, what stands and what remains of a job that was ended on request."""
    for name in ("stopped", "stands", "unresolved"):
        if answer[name]:
            people.print(f"  {name}: {', '.join(answer[name])}")
    for entry in answer["remains"]:
        people.print(f"  remains: {entry['effect']} ({entry['state']}): {entry['what']}")
    people.print(f"  compensating action: {answer['compensating_action']['what']}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("status")(status)
    app.command("jobs")(jobs)
    app.command("result")(result)
    app.command("cancel")(cancel)
