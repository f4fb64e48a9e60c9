"""`receipts submit`: manifests, folders and single scans; with `--wait` until everything is settled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.cli.answers import Exit, answering, people, print_json, remarks
from receipt_pipeline.cli.opening import services
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.reasons import (
    FIELD_INVALID,
    OBJECT_UNREADABLE,
    REASONS,
    STORAGE_FULL,
    UPLOAD_FAILED,
)
from receipt_pipeline.runtime.serving import is_served

POLL_S = 0.5
ANSWERED = ("accepted", "joined")
# Refusals that no other request would avoid: the store's trouble, not the submitter's.
OUR_FAULTS = {reason.code for reason in (STORAGE_FULL, UPLOAD_FAILED, OBJECT_UNREADABLE)}


@answering
def submit(
    paths: list[str] = typer.Argument(..., help="Manifests, folders or scans."),
    key: str | None = typer.Option(None, "--key", help="Idempotency key of the one job submitted."),
    new: bool = typer.Option(False, "--new", help="Make a new key, so that a new job is accepted."),
    release: str | None = typer.Option(
        None, "--release", help="Alias, name or id; the contract's default otherwise."
    ),
    wait: bool = typer.Option(False, "--wait", help="Return when every job is terminal and consumed."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> Exit:
    """Submit scans: the answer is an acceptance, never a result."""
    if not all(paths):  # An empty word would name the current folder.
        raise InputRefused(FIELD_INVALID, pointer="PATH", wanted="the name of a manifest, folder or scan")
    opened = services()
    answers = submitter.submit(
        opened, opened.principal(), [Path(path) for path in paths], key=key, new=new, release=release
    )
    lines = [line for answer in answers for line in answer["lines"]]
    job_ids = [line["job_id"] for line in lines if line.get("job_id") and line["outcome"] != "conflict"]
    for line in lines:
        if not as_json or line["outcome"] not in ANSWERED:
            _show_line(line)
    if not wait or not job_ids:
        if as_json:
            print_json(_acceptances(lines))
        return _worst(lines)
    statuses = wait_until_settled(opened, job_ids, show=not as_json)
    if as_json:
        print_json(statuses[0] if len(statuses) == 1 else statuses)
    else:
        for status in statuses:
            _show_status(status)
    bad = [s for s in statuses if s["state"] != "succeeded"]
    return _worst(lines) or (Exit.BAD_NEWS if bad else Exit.DONE)


def _acceptances(lines: list[dict[str, Any]]) -> Any:
    answers = [line.get("acceptance") or line for line in lines]
    return answers[0] if len(answers) == 1 else answers


def _worst(lines: list[dict[str, Any]]) -> Exit:
    outcomes = {line["outcome"] for line in lines}
    if any(line["reason"]["code"] in OUR_FAULTS for line in lines if line.get("reason")):
        return Exit.INFRASTRUCTURE
    if "refused" in outcomes:
        return Exit.USAGE
    return Exit.CONFLICT if "conflict" in outcomes else Exit.DONE


def _show_line(line: dict[str, Any]) -> None:
    if line["outcome"] in ANSWERED:
        acceptance = line["acceptance"]
        word = "already accepted (replayed)" if acceptance["replayed"] else "accepted"
        people.print(f"{word}: {acceptance['job_id']}  key {line['idempotency_key']}")
        people.print(f"  accepted is not decided; status: {acceptance['status_location']}")
        return
    reason = REASONS[line["reason"]["code"]] if line.get("reason") else None
    code = reason.code if reason else line["outcome"]
    remarks.print(Text.assemble((line["outcome"], "bold red"), f": {code} {line.get('pointer', '')}"))
    if reason:
        remarks.print(f"  {reason.meaning}; next: {reason.next_step}")
    for name, value in (line.get("facts") or {}).items():
        remarks.print(f"  {name}: {value}")


def _show_status(status: dict[str, Any]) -> None:
    items = ", ".join(f"{count} {name}" for name, count in status["items"].items() if count)
    people.print(
        f"{status['job_id']}: {status['state']}/{status['terminal_class']}  ({items})", highlight=False
    )
    people.print(f"  next: {status['next_action']}")


def wait_until_settled(opened: AppContext, job_ids: list[str], *, show: bool) -> list[dict[str, Any]]:
    """Return the status documents once every job is terminal and delivery and consumption ran.

    Where no daemon serves this home, the real sensors are evaluated here and every wave runs in
    a child process; ending this command ends the children, and nothing accepted is lost.
    """
    from receipt_pipeline.defs.local_runner import Rounds

    wanted = list(dict.fromkeys(job_ids))
    rounds = None if is_served(opened.settings) else Rounds.for_home(opened.settings)
    shown = ""
    try:
        while True:
            if rounds is not None:
                rounds.tick()
            statuses = [submitter.read_status(opened, opened.principal(), job_id) for job_id in wanted]
            done = sum(1 for status in statuses if status["state"] in TERMINAL_STATES)
            line = _progress(statuses, done)
            if show and line != shown:
                remarks.print(line)
                shown = line
            if (
                done == len(wanted)
                and not maintenance.jobs_with_unfinished_effects(opened, wanted)
                and not (rounds and rounds.busy)
            ):
                return statuses
            if all(
                status["phase"] in ("reconciling", "quarantined")
                for status in statuses
                if status["state"] not in TERMINAL_STATES
            ) and done < len(wanted):
                return statuses
            time.sleep(POLL_S)
    finally:
        if rounds is not None:
            rounds.end()


def _progress(statuses: list[dict[str, Any]], done: int) -> str:
    finished = sum(status["progress"]["checkpoint"] for status in statuses)
    requested = sum(status["progress"]["denominator"] for status in statuses)
    return f"{done} of {len(statuses)} jobs terminal, {finished} of {requested} items checkpointed"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("submit")(submit)
