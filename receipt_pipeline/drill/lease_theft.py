"""The story of a stolen lease, with real processes: A falls asleep in its upload, B finishes, A wakes."""

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

from receipt_pipeline.app import analyst, maintenance, reviewer, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.drill import hands
from receipt_pipeline.drill.drill_log import DrillLog
from receipt_pipeline.drill.failure_plan import Fault, PlannedFault, plan_text
from receipt_pipeline.drill.sandbox import throwaway_environment
from receipt_pipeline.ledger.schema.jobs import refused_writes
from receipt_pipeline.ledger.status import read_facts, read_items
from receipt_pipeline.settings import Settings, read_settings

STORY = "lease-theft"
NAME = "export"
WAIT_S = 90.0
POLL_S = 0.05
# Long enough to be stopped in; its heartbeats end with it, so the pause is one of the whole worker.
PAUSE_S = 6.0

Tell = Callable[[str], None]


@dataclass(slots=True)
class Stage:
    """The throw-away home of the story, its workers, its log and the lines that were told."""

    services: AppContext
    environment: Mapping[str, str]
    tell: Tell
    log: DrillLog = field(default_factory=DrillLog)
    lines: list[str] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def job_id(self) -> str:
        """Return the job that the story is about."""
        return self.log.job_id(NAME)

    def say(self, line: str) -> None:
        """Tell a line now, and keep it."""
        self.lines.append(line)
        self.tell(line)

    def start(self, name: str, *, plan: str = "") -> subprocess.Popen[bytes]:
        """Start a worker process under this name."""
        env = {**self.environment}
        if plan:
            env |= {"RECEIPTS_DRILLS": "enabled", "RECEIPTS_DRILL_PLAN": plan}
        process = subprocess.Popen(
            [sys.executable, "-m", "receipt_pipeline.drill.theft_worker", self.job_id, name],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self.workers.append(process)
        return process

    def until(self, done: Callable[[], bool]) -> bool:
        """Wait until the condition holds; False when it did not within the bound."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if done():
                return True
            time.sleep(POLL_S)
        return False

    def status(self) -> dict[str, Any]:
        """Read the job's status as its submitter does."""
        return submitter.read_status(self.services, self.services.principal(), self.job_id)

    def end(self) -> None:
        """End every worker that still runs, also one that was stopped."""
        for process in self.workers:
            if process.poll() is None:
                process.kill()
                process.wait()


def run_lease_theft(settings: Settings, *, tell: Tell) -> dict[str, Any]:
    """Play the story in an empty home; returns its lines, jobs, steps, report and verdict.

    Args:
        tell: is handed each line as it happens.
    """
    with throwaway_environment(os.environ) as environment:
        services = open_app(read_settings(environment))
        stage = Stage(services, environment, tell)
        try:
            _submit(stage, settings.shipped / "samples")
            sleeper = _fall_asleep(stage)
            _lose_the_lease(stage)
            left = _finish_elsewhere(stage)
            _wake_up(stage, sleeper, left)
            _look_at_the_end(stage)
            answer = stage.log.answer(
                analyst.read_report(services, services.principal(), cutoff=None, published=False), services
            )
            return {"story": stage.lines} | answer
        finally:
            stage.end()
            services.close()


def _submit(stage: Stage, samples: Path) -> None:
    scan = sorted(path for path in samples.iterdir() if path.suffix == ".jpg")[0]
    job_id = hands.submit_scan(stage.services, scan, key=STORY, release="production", limits={})
    stage.log.job(NAME, job_id, "one asset, although two workers wanted to publish it")
    stage.say(f"accepted: {job_id}, one item, status {stage.status()['state']}")


def _fall_asleep(stage: Stage) -> subprocess.Popen[bytes]:
    """Let worker A come up to its upload and stop its process there."""
    plan = plan_text(PlannedFault("upload.before", Fault.HANG, seconds=PAUSE_S))
    sleeper = stage.start("worker-a", plan=plan)
    came = stage.until(lambda: stage.status()["phase"] in ("publishing", "delayed"))
    os.kill(sleeper.pid, signal.SIGSTOP)
    stage.log.step("worker A came up to its upload", True, came)
    stage.say(
        f"worker A (process {sleeper.pid}) holds epoch {_epoch(stage)}, finished the item, and falls asleep"
    )
    stage.say("  its heartbeats end; the intent of its upload is recorded, the object is not there")
    return sleeper


def _lose_the_lease(stage: Stage) -> None:
    delayed = stage.until(lambda: stage.status()["phase"] == "delayed")
    progress = stage.status()["progress"]
    stage.log.step("the submitter sees delayed progress", True, delayed)
    stage.say(
        f"status: delayed for {progress['delayed_for_s']} s, {progress['checkpoint']} of "
        f"{progress['denominator']} items at the durable checkpoint"
    )
    before = _epoch(stage)
    stage.until(lambda: bool(maintenance.reconcile_ledger(stage.services).counts["taken_over"]))
    stage.log.step("the epoch rises when the lease is taken away", True, _epoch(stage) > before)
    stage.say(f"reconciliation takes the lease away: epoch {before} -> {_epoch(stage)}")


def _finish_elsewhere(stage: Stage) -> list[Any]:
    worker = stage.start("worker-b")
    stage.until(lambda: stage.status()["state"] in TERMINAL_STATES)
    worker.wait(WAIT_S)
    status = stage.status()
    stage.log.step(
        "worker B finishes the job", "succeeded/complete", f"{status['state']}/{status['terminal_class']}"
    )
    stage.say(
        f"worker B (process {worker.pid}) takes over at the checkpoint, publishes and closes: succeeded"
    )
    return _state(stage)


def _wake_up(stage: Stage, sleeper: subprocess.Popen[bytes], left: list[Any]) -> None:
    os.kill(sleeper.pid, signal.SIGCONT)
    sleeper.wait(WAIT_S)
    stage.say("worker A wakes up, puts its bytes under its own key, and wants to close the job")
    with stage.services.ledger.reading() as tx:
        refused = tx.rows(select(refused_writes).where(refused_writes.c.job_id == stage.job_id))
    stage.log.step("its terminal record is refused", ["commit"], [row["write_kind"] for row in refused])
    for row in refused:
        stage.say(
            f"  refused: {row['write_kind']} under epoch {row['lease_epoch']}, now {row['current_epoch']}"
        )
    stage.log.step("worker A changed nothing", True, _state(stage) == left)


def _look_at_the_end(stage: Stage) -> None:
    maintenance.deliver_and_consume(stage.services)
    maintenance.reconcile_everything(stage.services)
    attempts = hands.read_attempts(stage.services, stage.job_id)
    told = [(row["owner"].rpartition(":")[2], row["outcome"]) for row in attempts]
    stage.log.step(
        "the receipt tells of both attempts", [("worker-a", "lost"), ("worker-b", "committed")], told
    )
    stage.log.step("the model was invoked once", 1, sum(row["invocations"] for row in attempts))
    stage.say(f"attempts: {', '.join(f'{owner} {outcome}' for owner, outcome in told)}")
    served = submitter.read_result(stage.services, stage.services.principal(), stage.job_id)["object"]
    stage.log.step("one verified asset is served", True, served["verified"])
    tasks = reviewer.list_tasks(
        stage.services, stage.services.principal(), only_open=False, job_id=stage.job_id
    )
    stage.log.step("the decision is handed on once", 1, len(tasks))
    report = analyst.read_report(stage.services, stage.services.principal(), cutoff=None, published=False)
    stage.log.step("the account passes", "accounted/pass", f"{report['state']}/{report['gate']}")
    stage.say(f"one verified asset {served['digest'][:19]}…, {len(tasks)} review task, gate {report['gate']}")


def _epoch(stage: Stage) -> int:
    with stage.services.ledger.reading() as tx:
        return int(read_facts(tx, stage.job_id).job["lease_epoch"])


def _state(stage: Stage) -> list[Any]:
    """Return what a stale worker must leave as it is: the job but for its journal's end, items, effects."""
    with stage.services.ledger.reading() as tx:
        facts = read_facts(tx, stage.job_id)
        job = {name: value for name, value in facts.job.items() if not name.endswith("_seq")}
        return [job, read_items(tx, stage.job_id), list(facts.effects)]
