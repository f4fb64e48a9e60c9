"""`receipts up` and `receipts demo`: the web UI and the daemon of this home."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from receipt_pipeline.app import analyst, maintenance, submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.app.setup import drop_samples
from receipt_pipeline.cli.output import Exit, open_session, reports_errors, stderr, stdout
from receipt_pipeline.cli.report import show_report
from receipt_pipeline.core.errors import NotAllowed, PipelineError
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.reasons import HOME_SERVED, RUN_FAILED, RUN_UNFINISHED
from receipt_pipeline.runtime.serving import is_served

if TYPE_CHECKING:
    from receipt_pipeline.runtime.supervisor import Hosted

DEFAULT_PORT = 3333
DEMO_WAIT_S = 600.0
POLL_S = 1.0
_LAUNCH = """mutation($job: String!) { launchRun(executionParams: {selector: {
  repositoryLocationName: "receipts", repositoryName: "__repository__", jobName: $job}, runConfigData: {}})
  { __typename ... on LaunchRunSuccess { run { runId } } } }"""
_RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@reports_errors
def up(
    port: int = typer.Option(
        DEFAULT_PORT, min=0, max=65_535, help="Of the web UI on 127.0.0.1; 0: a free one."
    ),
) -> None:
    """Serve the web UI and the daemon until Ctrl-C."""
    from receipt_pipeline.runtime.supervisor import hosted

    opened, _ = open_session()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with hosted(opened.settings, port=port or None) as served:
            stdout.print(
                f"web UI: {served.address}   drop manifests into {opened.settings.inbox}", highlight=False
            )
            while True:
                served.keep_running()
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        stdout.print("stopped; what was accepted goes on at the next start", highlight=False)


@reports_errors
def demo() -> Exit:
    """Run the samples through the real daemon, then print the account and stop everything."""
    from receipt_pipeline.runtime.supervisor import hosted

    opened, _ = open_session()
    if is_served(opened.settings):
        raise NotAllowed(HOME_SERVED, home=str(opened.settings.home))
    stderr.print("starting web server and daemon ...", highlight=False)
    with hosted(opened.settings) as served:
        stderr.print(f"web UI: {served.address}", highlight=False)
        answer = drop_samples(opened.settings)
        job_ids = _await_accepted(opened, answer, served)
        _await_terminal(opened, job_ids, served)
        _run_accounting(served)
        document = analyst.read_report(opened, opened.principal(), cutoff=None, published=True)
        failed = maintenance.failed_checks(opened)
    for status in (submitter.read_status(opened, opened.principal(), job_id) for job_id in job_ids):
        items = ", ".join(f"{count} {name}" for name, count in status["items"].items() if count)
        stdout.print(
            f"{status['job_id']}: {status['state']}/{status['terminal_class']} ({items})", highlight=False
        )
    stdout.print(
        f"asset checks: {'all passed' if not failed else 'failed: ' + ', '.join(failed)}", highlight=False
    )
    stdout.print(f"report: {opened.settings.report / 'report.duckdb'}", highlight=False)
    show_report(document)
    return Exit.DONE if document["gate"] == "pass" and not failed else Exit.BAD_NEWS


def _await_accepted(opened: AppContext, key: str, served: Hosted) -> list[str]:
    """Return the samples' job ids once the submissions sensor accepted the dropped manifest."""
    end = time.monotonic() + DEMO_WAIT_S
    while time.monotonic() < end:
        found = [
            row["job_id"]
            for row in submitter.list_jobs(opened, opened.principal())
            if row["idempotency_key"] == key
        ]
        if found and not maintenance.has_waiting_manifests(opened):
            return found
        served.keep_running()
        time.sleep(POLL_S)
    raise _unfinished("the submissions sensor", manifest=key)


def _await_terminal(opened: AppContext, job_ids: list[str], served: Hosted) -> None:
    """Show progress until every job is terminal and its effects are settled."""
    end = time.monotonic() + DEMO_WAIT_S
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr) as progress:
        total = sum(
            submitter.read_status(opened, opened.principal(), job_id)["items"]["requested"]
            for job_id in job_ids
        )
        bar = progress.add_task("scans", total=total)
        while time.monotonic() < end:
            statuses = [submitter.read_status(opened, opened.principal(), job_id) for job_id in job_ids]
            done = sum(
                status["items"]["requested"]
                if status["state"] in TERMINAL_STATES
                else status["progress"]["checkpoint"]
                for status in statuses
            )
            progress.update(bar, completed=done)
            if all(
                s["state"] in TERMINAL_STATES for s in statuses
            ) and not maintenance.jobs_with_unfinished_effects(opened, job_ids):
                return
            served.keep_running()
            time.sleep(POLL_S)
    standing = {
        job_id: submitter.read_status(opened, opened.principal(), job_id)["state"] for job_id in job_ids
    }
    raise _unfinished("the samples to be classified and their effects", jobs=standing)


def _run_accounting(served: Hosted) -> None:
    """Launch the accounting run through the daemon and wait for it."""
    from receipt_pipeline.runtime.supervisor import ask

    launched: dict[str, Any] = ask(served.port, _LAUNCH, {"job": "accounting"})["launchRun"]
    if launched["__typename"] != "LaunchRunSuccess":
        raise PipelineError(RUN_FAILED, job="accounting", answer=launched["__typename"])
    run_id = launched["run"]["runId"]
    end = time.monotonic() + DEMO_WAIT_S
    stderr.print("publishing the account ...", highlight=False)
    while time.monotonic() < end:
        status = ask(served.port, _RUN, {"id": run_id})["runOrError"].get("status")
        if status == "SUCCESS":
            return
        if status in ("FAILURE", "CANCELED"):
            raise PipelineError(RUN_FAILED, job="accounting", run=run_id, status=status)
        served.keep_running()
        time.sleep(POLL_S)
    raise _unfinished("the accounting run", job="accounting", run=run_id)


def _unfinished(waited_for: str, **facts: Any) -> PipelineError:
    """Return the error of a wait that ended while the services answer: for what, and which run or jobs."""
    return PipelineError(RUN_UNFINISHED, waited_for=waited_for, waited_s=DEMO_WAIT_S, **facts)
