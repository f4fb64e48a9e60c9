"""The lease-theft drill, with real processes: A is stopped in its upload, B finishes, A continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.drill.failure_plan import Fault, PlannedFault, install_from, plan_text
from receipt_pipeline.drill.four_jobs import (
    WAIT_S,
    DrillLog,
    list_samples,
    list_tasks,
    read_attempts,
    read_report,
    read_status,
    submit_scan,
    wait_until,
)
from receipt_pipeline.drill.sandbox import DRILL_LIMITS, ScriptedReader, sandbox
from receipt_pipeline.ledger.rows import read_items
from receipt_pipeline.ledger.schema.jobs import refused_writes
from receipt_pipeline.ledger.status import read_facts
from receipt_pipeline.settings import read_settings
from receipt_pipeline.worker.context import Outcome
from receipt_pipeline.worker.heartbeat import stop_all
from receipt_pipeline.worker.loop import work_group

NAME = "lease-theft"
JOB = "export"
POLL_S = 0.1


@dataclass(slots=True)
class Scenario:
    """The instance in the sandbox, the worker processes, the log and the lines printed so far."""

    app: AppContext
    environment: Mapping[str, str]
    show: Callable[[str], None]
    log: DrillLog = field(default_factory=DrillLog)
    lines: list[str] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def job_id(self) -> str:
        """Return the one job of the scenario."""
        return self.log.job_id(JOB)

    def print(self, line: str) -> None:
        """Print a line now, and keep it."""
        self.lines.append(line)
        self.show(line)

    def file(self, name: str) -> Path:
        """Return a file of the sandbox by which the processes wait for each other."""
        return self.app.settings.home / "drill" / name

    def start(self, name: str, *, plan: str = "") -> subprocess.Popen[bytes]:
        """Start a worker process under this name."""
        drills = {"RECEIPTS_DRILLS": "enabled", "RECEIPTS_DRILL_PLAN": plan} if plan else {}
        process = subprocess.Popen(
            [sys.executable, "-m", "receipt_pipeline.drill.lease_theft", self.job_id, name],
            env={**self.environment, **drills},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self.workers.append(process)
        return process

    def status(self) -> dict[str, Any]:
        """Read the job's status as its submitter does."""
        return read_status(self.app, self.job_id)

    def stop(self) -> None:
        """Stop every worker that still runs, also one that was paused."""
        for process in self.workers:
            if process.poll() is None:
                process.kill()
                process.wait()


def run_lease_theft(*, show: Callable[[str], None]) -> dict[str, Any]:
    """Play the scenario in an empty data directory; returns its lines, jobs, steps, report and verdict.

    Args:
        show: called with each line as it happens.
    """
    with sandbox(os.environ, DRILL_LIMITS) as environment:
        app = open_app(read_settings(environment))
        scenario = Scenario(app, environment, show)
        try:
            _submit(scenario)
            paused = _pause_in_upload(scenario)
            _take_the_lease(scenario)
            left = _finish_elsewhere(scenario)
            _resume(scenario, paused, left)
            _check_the_outcome(scenario)
            return {"story": scenario.lines} | scenario.log.document(app)
        finally:
            scenario.stop()
            app.close()


def _submit(scenario: Scenario) -> None:
    scan = list_samples(scenario.app)[0]
    job_id = submit_scan(scenario.app, scan, key=NAME, release="production", limits={})
    scenario.log.job(JOB, job_id, "one asset, although two workers tried to publish it")
    scenario.print(f"accepted: {job_id}, one item, status {scenario.status()['state']}")


def _pause_in_upload(scenario: Scenario) -> subprocess.Popen[bytes]:
    """Start worker A, which hangs before its upload, and stop its process there."""
    reached, resume = scenario.file("reached"), scenario.file("resume")
    hang = PlannedFault("upload.before", Fault.HANG, until=str(resume), witness=str(reached))
    worker = scenario.start("worker-a", plan=plan_text(hang))
    wait_until(lambda: reached.exists() or worker.poll() is not None)
    started = worker.poll() is None
    if started:
        os.kill(worker.pid, signal.SIGSTOP)
    scenario.log.step("worker A started its upload", True, started)
    scenario.print(f"worker A (process {worker.pid}) has epoch {_epoch(scenario)}, finished the item, and is paused")
    scenario.print("  its heartbeats stop; its upload is recorded as intended, the object does not exist")
    return worker


def _take_the_lease(scenario: Scenario) -> None:
    delayed = wait_until(lambda: scenario.status()["phase"] == "delayed", wait_s=60.0)
    progress = scenario.status()["progress"]
    scenario.log.step("the submitter sees delayed progress", True, delayed)
    scenario.print(
        f"status: delayed for {progress['delayed_for_s']} s, {progress['checkpoint']} of "
        f"{progress['denominator']} items at the durable checkpoint"
    )
    before = _epoch(scenario)
    wait_until(lambda: bool(maintenance.reconcile_ledger(scenario.app).counts["taken_over"]))
    scenario.log.step("the epoch rises when the lease is taken", True, _epoch(scenario) > before)
    scenario.print(f"reconciliation takes the expired lease: epoch {before} -> {_epoch(scenario)}")


def _finish_elsewhere(scenario: Scenario) -> list[Any]:
    worker = scenario.start("worker-b")
    worker.wait(WAIT_S)
    status = scenario.status()
    ended = f"{status['state']}/{status['terminal_class']}"
    scenario.log.step("worker B finishes the job", "succeeded/complete", ended)
    scenario.print(f"worker B (process {worker.pid}) continues from the checkpoint, publishes and closes the job")
    return _rows(scenario)


def _resume(scenario: Scenario, paused: subprocess.Popen[bytes], left: list[Any]) -> None:
    scenario.file("resume").touch()
    if paused.poll() is None:
        os.kill(paused.pid, signal.SIGCONT)
    paused.wait(WAIT_S)
    scenario.print("worker A continues, stores its bytes under its own key, and tries to close the job")
    with scenario.app.ledger.reading() as tx:
        rejected = tx.rows(select(refused_writes).where(refused_writes.c.job_id == scenario.job_id))
    scenario.log.step("its terminal record is rejected", ["commit"], [row["write_kind"] for row in rejected])
    for row in rejected:
        epochs = f"under epoch {row['lease_epoch']}, now {row['current_epoch']}"
        scenario.print(f"  rejected: {row['write_kind']} {epochs}")
    scenario.log.step("worker A changed nothing", True, _rows(scenario) == left)


def _check_the_outcome(scenario: Scenario) -> None:
    app, log = scenario.app, scenario.log
    maintenance.deliver_and_consume(app)
    maintenance.reconcile_everything(app)
    tried = read_attempts(app, scenario.job_id)
    outcomes = [(row["owner"].rpartition(":")[2], row["outcome"]) for row in tried]
    log.step("the receipt shows both attempts", [("worker-a", "lost"), ("worker-b", "committed")], outcomes)
    log.step("the model was invoked once", 1, sum(row["invocations"] for row in tried))
    scenario.print(f"attempts: {', '.join(f'{owner} {outcome}' for owner, outcome in outcomes)}")
    served = submitter.read_result(app, app.principal(), scenario.job_id)["object"]
    log.step("one verified asset is served", True, served["verified"])
    tasks = list_tasks(app, scenario.job_id)
    log.step("the decision makes one review task", 1, len(tasks))
    report = read_report(app)
    log.step("the account passes", "accounted/pass", f"{report['state']}/{report['gate']}")
    digest = served["digest"].removeprefix("sha256:")[:12]
    scenario.print(f"one verified asset {digest}, {len(tasks)} review task, gate {report['gate']}")


def _epoch(scenario: Scenario) -> int:
    with scenario.app.ledger.reading() as tx:
        return int(read_facts(tx, scenario.job_id).job["lease_epoch"])


def _rows(scenario: Scenario) -> list[Any]:
    """Return what a stale worker must not change: the job except the end of its journal, items, effects."""
    with scenario.app.ledger.reading() as tx:
        facts = read_facts(tx, scenario.job_id)
        job = {name: value for name, value in facts.job.items() if not name.endswith("_seq")}
        return [job, read_items(tx, scenario.job_id), list(facts.effects)]


def run_worker(job_id: str, name: str) -> int:
    """Process the job under this name; 0 when it is closed or another worker has the lease."""
    settings = read_settings()
    install_from(settings.drill_plan, enabled=settings.drills_enabled, silence=stop_all)
    app = open_app(settings)
    app.chains.engine = ScriptedReader()
    worker = app.worker(run_id=name)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        (line,) = work_group(worker, wave_id="", job_ids=[job_id])
        if line.state in TERMINAL_STATES or line.outcome == Outcome.STOOD_DOWN.value:
            return 0
        time.sleep(POLL_S)
    return 1


if __name__ == "__main__":
    raise SystemExit(run_worker(sys.argv[1], sys.argv[2]))
