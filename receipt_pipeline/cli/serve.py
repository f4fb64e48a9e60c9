"""`receipts up` and `receipts demo`: the web UI and the daemon."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from receipt_pipeline.app import analyst, maintenance, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.app.setup import drop_samples
from receipt_pipeline.cli.jobs import show_items
from receipt_pipeline.cli.output import Exit, interrupt_on_sigterm, open_session, reports_errors, stderr, stdout
from receipt_pipeline.cli.report import show_report
from receipt_pipeline.cli.submit import show_status_line
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.reasons import RUN_UNFINISHED
from receipt_pipeline.drill.sandbox import sandbox
from receipt_pipeline.settings import Settings, read_settings

if TYPE_CHECKING:
    from receipt_pipeline.runtime.supervisor import Supervisor

DEFAULT_PORT = 3333
DEMO_WAIT_S = 600.0
POLL_S = 1.0
ACCOUNTING = "accounting"


@reports_errors
def up(
    port: int = typer.Option(DEFAULT_PORT, min=0, max=65_535, help="Port of the web UI (0 picks a free port)."),
) -> None:
    """Run the web UI and the background processing of this data directory until Ctrl-C."""
    from receipt_pipeline.defs.client import launch_job
    from receipt_pipeline.runtime.supervisor import running_instance

    opened, _ = open_session()
    interrupt_on_sigterm()
    try:
        with running_instance(opened.settings, port=port or None) as supervisor:
            inbox = opened.settings.inbox / opened.settings.tenant
            stdout.print(
                f"Web UI: {supervisor.address}. Drop manifests into {inbox}, single scans into {inbox / 'loose'}."
            )
            try:
                launch_job(supervisor.port, ACCOUNTING)  # The schedule's first run may be 15 minutes away.
            except PipelineError as error:
                stderr.print(f"The first accounting run was not launched: {error}")
            while True:
                supervisor.keep_running()
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        stdout.print("Stopped. Accepted jobs continue when you start again.")


@reports_errors
def demo() -> Exit:
    """Read six sample receipts in a temporary data directory and print what was read.

    Runs the real web server and daemon for about a minute, then stops them and prints the account.
    """
    interrupt_on_sigterm()
    with sandbox(os.environ) as environment:
        return run_demo(read_settings(environment), environment)


def run_demo(settings: Settings, environment: Mapping[str, str]) -> Exit:
    """Process the samples in this instance, print the account and stop everything.

    Args:
        environment: what the processes of the instance inherit.
    """
    from receipt_pipeline.defs.client import launch_job, wait_for_run
    from receipt_pipeline.runtime.supervisor import running_instance

    app = open_app(settings)
    stderr.print("Starting the web server and the daemon ...")
    with running_instance(settings, environ=environment) as supervisor:
        stderr.print(f"Web UI: {supervisor.address}")
        key = drop_samples(app.settings)
        job_ids = _await_accepted(app, key, supervisor)
        _await_terminal(app, job_ids, supervisor)
        stderr.print("Publishing the account ...")
        run_id = launch_job(supervisor.port, ACCOUNTING)
        wait_for_run(supervisor.port, run_id, job=ACCOUNTING, wait_s=DEMO_WAIT_S, on_poll=supervisor.keep_running)
        statuses = _statuses(app, job_ids)
        failed = maintenance.failed_checks(app)
    gate = _show_demo(app, statuses, failed)
    app.close()
    return Exit.DONE if gate == "pass" and not failed else Exit.BAD_NEWS


def _show_demo(app: AppContext, statuses: list[dict[str, Any]], failed: list[str]) -> str:
    """Print what was read from the samples, then the account and where its page is; returns the gate."""
    principal = app.principal()
    for status in statuses:
        show_status_line(status)
        if status["result"] is not None:
            show_items(submitter.read_result(app, principal, status["job_id"]))
    # The data directory is removed at the end; the page stays to be looked at.
    page = Path(tempfile.mkdtemp(prefix="receipts-demo-")) / "report.html"
    shutil.copyfile(analyst.publish_page(app, principal), page)
    stdout.print(f"Checks: {', '.join(failed) + ' failed' if failed else 'all passed'}")
    stdout.print(f"The account as an HTML page: {page}")
    document = analyst.read_report(app, principal, published=True)
    show_report(document)
    return str(document["gate"])


def _await_accepted(app: AppContext, key: str, supervisor: Supervisor) -> list[str]:
    """Return the samples' job ids once the submissions sensor accepted the dropped manifest."""
    end = time.monotonic() + DEMO_WAIT_S
    while time.monotonic() < end:
        rows = submitter.list_jobs(app, app.principal())
        found = [row["job_id"] for row in rows if row["idempotency_key"] == key]
        if found and not maintenance.has_waiting_manifests(app):
            return found
        supervisor.keep_running()
        time.sleep(POLL_S)
    raise _unfinished("the submissions sensor", manifest=key)


def _await_terminal(app: AppContext, job_ids: list[str], supervisor: Supervisor) -> None:
    """Show progress until every job is terminal and its required effects are committed."""
    end = time.monotonic() + DEMO_WAIT_S
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr) as progress:
        total = sum(status["items"]["requested"] for status in _statuses(app, job_ids))
        bar = progress.add_task("scans", total=total)
        while time.monotonic() < end:
            statuses = _statuses(app, job_ids)
            done = sum(
                status["items"]["requested"] if status["state"] in TERMINAL_STATES else status["progress"]["checkpoint"]
                for status in statuses
            )
            progress.update(bar, completed=done)
            is_closed = all(status["state"] in TERMINAL_STATES for status in statuses)
            if is_closed and not maintenance.jobs_with_unfinished_effects(app, job_ids):
                return
            supervisor.keep_running()
            time.sleep(POLL_S)
    states = {status["job_id"]: status["state"] for status in _statuses(app, job_ids)}
    raise _unfinished("the samples and their effects", jobs=states)


def _statuses(app: AppContext, job_ids: list[str]) -> list[dict[str, Any]]:
    return [submitter.read_status(app, app.principal(), job_id) for job_id in job_ids]


def _unfinished(waited_for: str, **facts: Any) -> PipelineError:
    """Return the error of a wait that took too long, with the run or jobs that it waited for."""
    return PipelineError(RUN_UNFINISHED, waited_for=waited_for, waited_s=DEMO_WAIT_S, **facts)
