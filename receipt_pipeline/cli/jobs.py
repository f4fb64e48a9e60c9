"""`receipts status`, `jobs`, `result`, `cancel`: what was asked, what stands, what is safe now."""

from __future__ import annotations

from typing import Any

import typer
from rich.text import Text

from receipt_pipeline.cli.answers import Exit, answering, people, plain, print_json, print_table
from receipt_pipeline.cli.opening import services
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.job_lifecycle import JobState
from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.ledger.status import AUDIENCES

JSON = typer.Option(False, "--json", help="Print one JSON document.")


@answering
def status(
    job: str = typer.Argument(..., help="Job id."),
    audience: str = typer.Option("customer", help="customer, support or engineering."),
    as_json: bool = JSON,
) -> None:
    """Show where a job stands and the one safe next action."""
    if audience not in AUDIENCES:
        raise InputRefused(FIELD_INVALID, pointer="--audience", allowed=", ".join(AUDIENCES))
    document = services().status(job, audience=audience)
    if as_json:
        print_json(document)
        return
    for name, value in document.items():
        people.print(Text.assemble((name, "bold"), f": {plain(value)}"))
    action = NextAction(document.get("next_action") or _action_in(document))
    text = ACTION_TEXTS[action]
    command = text.command.replace("JOB", job)
    people.print(Text.assemble(("next", "bold"), f": {text.meaning} (`{command}`)"))


def _action_in(document: dict[str, Any]) -> str:
    """Return the next action of a support or engineering document."""
    inner = document.get("safe_now") or document["status"]
    return str(inner["next_action"])


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
    rows = services().jobs(state=wanted)
    if as_json:
        print_json(rows)
        return
    columns = ["job_id", "state", "terminal_class", "reason_code", "items_requested", "submitted_at"]
    print_table(rows, columns, title=f"{len(rows)} jobs")


@answering
def result(job: str = typer.Argument(..., help="Job id."), as_json: bool = JSON) -> None:
    """Read a job's verified result: fields and decisions. Accepted is never a decision."""
    document = services().result(job)
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


@answering
def cancel(job: str = typer.Argument(..., help="Job id."), as_json: bool = JSON) -> Exit | None:
    """Cancel an open job: says what stopped and what stands."""
    answer = services().cancel(job)
    if as_json:
        print_json(answer)
    else:
        people.print(answer["sentence"])
    return None


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("status")(status)
    app.command("jobs")(jobs)
    app.command("result")(result)
    app.command("cancel")(cancel)
