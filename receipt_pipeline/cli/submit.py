"""`receipts submit` and `classify`: scans become jobs, or get an answer right away."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.cli.output import (
    JSON,
    Exit,
    format_value,
    label,
    open_session,
    print_json,
    reports_errors,
    stderr,
    stdout,
)
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import FIELD_INVALID, OBJECT_UNREADABLE, REASONS, STORAGE_FULL, UPLOAD_FAILED
from receipt_pipeline.core.receipt_text import counted
from receipt_pipeline.runtime.serving import is_served

POLL_S = 0.5
KEY_SHOWN_MAX = 60
ACCEPTED = ("accepted", "joined")
# Phases that wait for an operator, so that waiting longer does not help.
ON_HOLD = ("reconciling", "quarantined")
# Refusals that are the store's trouble, not the submitter's.
STORE_FAULTS = {reason.code for reason in (STORAGE_FULL, UPLOAD_FAILED, OBJECT_UNREADABLE)}


@reports_errors
def submit(
    paths: list[str] = typer.Argument(
        ..., help="Scans (JPEG, PNG, PDF …), folders of scans, or manifests (JSON, CSV)."
    ),
    key: str | None = typer.Option(
        None, "--key", help="Your name for this job: submitting again under the same key returns the same job."
    ),
    new: bool = typer.Option(False, "--new", help="Use a new key, so that the same scans become a new job."),
    release: str | None = typer.Option(
        None, "--release", help="Version of models and policy: alias, name or id. Default: production."
    ),
    wait: bool = typer.Option(
        False, "--wait", help="Return only when every job has ended and its review tasks are made."
    ),
    as_json: bool = JSON,
) -> Exit:
    """Submit scans, folders or manifests. Prints the job id; use --wait for results.

    A manifest is a JSON or CSV file that lists scans; data/samples/manifest.json is an example.
    Jobs are processed while `receipts up` runs; --wait processes them even without it.
    """
    if not all(paths):  # An empty word would name the current folder.
        raise InputRefused(FIELD_INVALID, pointer="PATH", wanted="the name of a manifest, folder or scan")
    context, principal = open_session()
    answers = submitter.submit(context, principal, [Path(path) for path in paths], key=key, new=new, release=release)
    lines = [line for answer in answers for line in answer["lines"]]
    job_ids = [line["job_id"] for line in lines if line.get("job_id") and line["outcome"] != "conflict"]
    for line in lines:
        if not as_json or line["outcome"] not in ACCEPTED:
            _show_line(line)
    if not wait or not job_ids:
        if as_json:
            print_json(_acceptances(lines))
        return _worst(lines)
    statuses = wait_until_finished(context, principal, job_ids, show=not as_json)
    if as_json:
        print_json(statuses[0] if len(statuses) == 1 else statuses)
    else:
        for status in statuses:
            show_status_line(status)
            action = ACTION_TEXTS[NextAction(status["next_action"])]
            stdout.print(f"  next: {action.meaning} ({action.command.replace('JOB', status['job_id'])})")
    failed = any(status["state"] != "succeeded" for status in statuses)
    return _worst(lines) or (Exit.BAD_NEWS if failed else Exit.DONE)


def _acceptances(lines: list[dict[str, Any]]) -> Any:
    answers = [line.get("acceptance") or line for line in lines]
    return answers[0] if len(answers) == 1 else answers


def _worst(lines: list[dict[str, Any]]) -> Exit:
    outcomes = {line["outcome"] for line in lines}
    if any(line["reason"]["code"] in STORE_FAULTS for line in lines if line.get("reason")):
        return Exit.INFRASTRUCTURE
    if "refused" in outcomes:
        return Exit.USAGE
    return Exit.CONFLICT if "conflict" in outcomes else Exit.DONE


def _show_line(line: dict[str, Any]) -> None:
    if line["outcome"] in ACCEPTED:
        acceptance = line["acceptance"]
        word = "Already accepted" if acceptance["replayed"] else "Accepted"
        key = line["idempotency_key"]
        with_key = f", key {key}" if len(key) <= KEY_SHOWN_MAX else ""  # A derived key is a digest.
        stdout.print(f"{word}: job {acceptance['job_id']}{with_key}")
        stdout.print(f"  Nothing is decided yet. Status: {acceptance['status_location']}")
        return
    reason = REASONS[line["reason"]["code"]] if line.get("reason") else None
    code = reason.code if reason else line["outcome"]
    stderr.print(Text.assemble((line["outcome"].capitalize(), "bold red"), f": {code}"))
    if reason:
        stderr.print(f"  {reason.meaning}")
    if line.get("pointer"):
        stderr.print(f"  where: {line['pointer']}")
    for name, value in (line.get("facts") or {}).items():
        stderr.print(f"  {label(name)}: {format_value(value)}")
    if reason:
        stderr.print(f"  next: {reason.next_step}")


def show_status_line(status: dict[str, Any]) -> None:
    """Print a job's state and the counts of its items in one line."""
    ended = f" ({status['terminal_class'].replace('_', ' ')})" if status["terminal_class"] else ""
    items = ", ".join(
        f"{number} {name.replace('cancelled', 'canceled')}" for name, number in status["items"].items() if number
    )
    stdout.print(f"Job {status['job_id']}: {status['state']}{ended}; items: {items}")


def wait_until_finished(
    context: AppContext, principal: Principal, job_ids: Iterable[str], *, show: bool
) -> list[dict[str, Any]]:
    """Return the status documents once every job is terminal and delivery and consumption ran.

    Where no daemon serves this instance, the real sensors are evaluated here and every wave runs in
    a child process; ending this command ends the children, and no accepted job is lost.
    """
    from receipt_pipeline.defs.local_runner import LocalRunner

    wanted = list(dict.fromkeys(job_ids))
    runner = None if is_served(context.settings) else LocalRunner.prepare(context.settings)
    shown = ""
    try:
        while True:
            if runner is not None:
                runner.tick()
            statuses = [submitter.read_status(context, principal, job_id) for job_id in wanted]
            line = _progress(statuses)
            if show and line != shown:
                stderr.print(line)
                shown = line
            still_open = [status for status in statuses if status["state"] not in TERMINAL_STATES]
            if still_open and all(status["phase"] in ON_HOLD for status in still_open):
                return statuses
            if not still_open and not maintenance.jobs_with_unfinished_effects(context, wanted):
                busy = runner is not None and runner.is_busy
                if not busy:
                    return statuses
            time.sleep(POLL_S)
    finally:
        if runner is not None:
            runner.stop()


def _progress(statuses: list[dict[str, Any]]) -> str:
    finished = sum(status["progress"]["checkpoint"] for status in statuses)
    requested = sum(status["progress"]["denominator"] for status in statuses)
    return f"Read {finished} of {counted(requested, 'receipt')}."


@reports_errors
def classify(
    scan: Path = typer.Argument(..., help="One scan."),
    release: str = typer.Option(
        "", "--release", help="Version of models and policy: alias, name or id. Default: production."
    ),
    as_json: bool = JSON,
) -> None:
    """Read one scan and print the decision immediately. No job is created and nothing is stored."""
    context, principal = open_session()
    answer = submitter.classify_scan(context, principal, scan, release=release or None)
    if as_json:
        print_json(answer)
        return
    outcome = answer["outcome"]
    stdout.print(f"{outcome['class'].capitalize()}: {outcome['decision'] or outcome['reason_code']}")
    for code in outcome["reasons"]:
        meaning = f": {REASONS[code].meaning}" if code in REASONS else ""
        stdout.print(f"  {code}{meaning}")
    stdout.print(f"  Release {format_value(answer['pins']['release_id'])}")
