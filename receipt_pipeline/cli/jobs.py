"""`receipts status`, `jobs`, `result` and `cancel`: follow a job and read what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from receipt_pipeline.app import submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.cli.output import (
    JOB,
    JSON,
    check_writable,
    open_session,
    print_document,
    print_json,
    print_table,
    reports_errors,
    stdout,
)
from receipt_pipeline.core.audiences import Audience
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import FIELD_INVALID, REASONS
from receipt_pipeline.core.receipt_text import counted, render_consequence, render_receipt
from receipt_pipeline.effects.results import rejections_csv
from receipt_pipeline.ledger.legacy_jobs import IMPORTED_PREFIX

SUBMISSION_PREFIX = "sub_"
OTHER_JOB = "OTHER"


@reports_errors
def status(
    job: str = typer.Argument(..., help="Job id, or the id of a submission (sub_…)."),
    audience: str = typer.Option(
        Audience.CUSTOMER,
        "--audience",
        help="How much to show: customer (the receipt), support (why, and what to do) or engineering"
        " (attempts, leases, events).",
    ),
    as_json: bool = JSON,
) -> None:
    """Show the status of a job and the one safe next action.

    Times are in UTC. The receipt has three parts: what was requested, how far it is, what came of it.
    """
    if audience not in list(Audience):
        raise InputRefused(FIELD_INVALID, pointer="--audience", allowed=", ".join(Audience))
    context, principal = open_session()
    if job.startswith(SUBMISSION_PREFIX):
        document = submitter.read_submission(context, principal, job)
    else:
        document = submitter.read_status(context, principal, job, audience=audience)
    if as_json:
        print_json(document)
    elif job.startswith((SUBMISSION_PREFIX, IMPORTED_PREFIX)):
        print_document(document)
    else:
        _show_status(context, principal, document, audience=audience, job=job)


def _show_status(
    context: AppContext, principal: Principal, document: dict[str, Any], *, audience: str, job: str
) -> None:
    if audience == Audience.CUSTOMER:
        public = document
    elif audience == Audience.ENGINEERING:
        public = document["status"]
    else:
        public = submitter.read_status(context, principal, job)
    stdout.print(_with_job_ids(render_consequence(public), public))
    if audience != Audience.SUPPORT:
        epoch = document["lease"]["epoch"] if audience == Audience.ENGINEERING else None
        stdout.print(render_receipt(public, lease_epoch=epoch))
    if audience != Audience.CUSTOMER:
        details = {name: value for name, value in document.items() if name not in ("status", "safe_now")}
        print_document(details)


def _with_job_ids(text: str, public: dict[str, Any]) -> str:
    """Put this job's id into the commands of a text, or that of the job which it says to follow."""
    written = text.replace("JOB", public["job_id"])
    if OTHER_JOB in written:
        links = public["links"]
        written = written.replace(OTHER_JOB, links["superseded_by"] or links["children"][-1])
    return written


@reports_errors
def jobs(
    state: str = typer.Option("", "--state", help=f"Only jobs in this state: {', '.join(JobState)}."),
    as_json: bool = JSON,
) -> None:
    """List your jobs, newest first."""
    try:
        wanted = JobState(state) if state else None
    except ValueError as error:
        allowed = ", ".join(JobState)
        raise InputRefused(FIELD_INVALID, pointer="--state", allowed=allowed) from error
    rows = submitter.list_jobs(*open_session(), state=wanted)
    if as_json:
        print_json(rows)
        return
    columns = ["state", "terminal_class", "reason_code", "items_requested", "submitted_at", "job_id"]
    print_table(rows, columns, title=counted(len(rows), "job"))


@reports_errors
def result(
    job: str = JOB,
    rejections: Path | None = typer.Option(
        None, "--rejections", help="Write the rejected files with their reasons to this CSV file instead."
    ),
    as_json: bool = JSON,
) -> None:
    """Show what was read from each receipt of a finished job, and the decision on it.

    Decisions: clear (can be booked) or review (a person has to look at it, see `receipts tasks`).
    """
    context, principal = open_session()
    if rejections is not None:
        _write_rejections(context, principal, job, target=rejections, as_json=as_json)
        return
    document = submitter.read_result(context, principal, job)
    if as_json:
        print_json(document)
    else:
        show_items(document)


def show_items(document: dict[str, Any]) -> None:
    """Print the items of a result document as a table."""
    columns = ["file", "merchant", "date", "total", "decision", "reason"]
    rows = [
        {
            "file": item["label"],
            "merchant": (item["fields"] or {}).get("merchant"),
            "date": ((item["fields"] or {}).get("date") or {}).get("iso"),
            "total": item.get("total_text"),
            "decision": item["decision"] or item["class"],
            "reason": reasons_text(item["reasons"] or [item["reason_code"]]),
        }
        for item in document["items"]
    ]
    print_table(rows, columns, title=counted(len(rows), "receipt"), wraps_words=True)


def reasons_text(codes: Iterable[str | None]) -> str:
    """Return what reason codes mean, for people."""
    return " ".join(REASONS[code].meaning if code in REASONS else code for code in codes if code)


def _write_rejections(context: AppContext, principal: Principal, job: str, *, target: Path, as_json: bool) -> None:
    check_writable(target, option="--rejections")
    lines = submitter.list_rejections(context, principal, job)
    target.write_text(rejections_csv(lines), encoding="utf-8")
    if as_json:
        print_json(lines)
    else:
        stdout.print(f"Wrote {counted(len(lines), 'rejected file')} to {target}.")


@reports_errors
def cancel(job: str = JOB, as_json: bool = JSON) -> None:
    """Cancel an open job and show which items finished and which did not.

    An item is one receipt scan. A job is open until it succeeded, failed, expired or was canceled.
    """
    answer = submitter.cancel_job(*open_session(), job)
    if as_json:
        print_json(answer)
        return
    stdout.print(answer["sentence"])
    show_ended_items(answer)


def show_ended_items(answer: dict[str, Any]) -> None:
    """Print which items of an ended job were stopped, kept or left open, and what may still happen."""
    for name, heading in (("stopped", "stopped"), ("stands", "finished"), ("unresolved", "unresolved")):
        if answer[name]:
            stdout.print(f"  {heading}: {', '.join(answer[name])}")
    for entry in answer["remains"]:
        stdout.print(f"  still to come: {entry['effect'].replace('_', ' ')} ({entry['state']}): {entry['what']}")
    stdout.print(f"  to undo it: {answer['compensating_action']['what']}")
