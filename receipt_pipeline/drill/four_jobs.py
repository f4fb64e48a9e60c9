"""The four-job drill: a normal job, a lost notification, a failed upload, an expiry, and what follows."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import select, update

from receipt_pipeline.app import admin, analyst, maintenance, reviewer, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.audiences import Audience
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.receipt_text import render_receipt
from receipt_pipeline.core.request import JOB_CONTRACT
from receipt_pipeline.drill.failure_plan import Fault, Plan, PlannedFault, plan_text
from receipt_pipeline.drill.sandbox import DRILL_LIMITS, sandbox
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.ledger.schema.effects import outbox
from receipt_pipeline.ledger.schema.jobs import attempts, jobs
from receipt_pipeline.ledger.status import read_facts
from receipt_pipeline.settings import Settings, read_settings

# Bounds a drill that hangs; no step waits for a time of its own, so a slow machine changes no verdict.
WAIT_S = 600.0
POLL_S = 0.3
OLDER, NEWER = "previous", "production"


class Runner(Protocol):
    """Evaluates the real sensors of an instance and runs its waves.

    `plan` is the failure plan of the next wave; it becomes "" when that wave starts.
    """

    plan: str

    def tick(self, *, launch: bool = True) -> None:
        """Evaluate every sensor once; with `launch=False` nothing new is dispatched."""

    @property
    def is_busy(self) -> bool:
        """Return whether a wave still runs."""

    def stop(self) -> None:
        """Stop every wave that still runs."""


RunnerFor = Callable[[Settings, Mapping[str, str]], Runner]


@dataclass(slots=True)
class DrillLog:
    """Collects the jobs and steps of one drill; the verdict is `pass` only when every step held."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    def job(self, name: str, job_id: str, what: str) -> None:
        """Add a job of the drill."""
        self.jobs.append({"name": name, "job_id": job_id, "what": what})

    def job_id(self, name: str) -> str:
        """Return the id of a job by its name in the drill."""
        return str(next(job["job_id"] for job in self.jobs if job["name"] == name))

    def step(self, name: str, expected: Any, observed: Any) -> None:
        """Add what was expected and what was observed."""
        ok = expected == observed
        self.steps.append({"name": name, "expected": expected, "observed": observed, "ok": ok})

    def document(self, app: AppContext) -> dict[str, Any]:
        """Return the drill's document; all of it can be recounted from `records`, the journal of its jobs."""
        listed, receipts, records = [], {}, []
        for job in self.jobs:
            status = read_status(app, job["job_id"])
            reason = (status["reason"] or {}).get("code", "")
            state = {name: status[name] for name in ("state", "phase", "terminal_class")}
            listed.append(job | state | {"reason": reason})
            receipts[job["name"]] = render_receipt(status)
            trail = read_status(app, job["job_id"], audience=Audience.ENGINEERING)["trail"]
            records += [{"job": job["name"], "job_id": job["job_id"]} | event for event in trail]
        passed = bool(self.steps) and all(step["ok"] for step in self.steps)
        return {
            "jobs": listed,
            "steps": self.steps,
            "report": read_report(app),
            "receipts": receipts,
            "records": sorted(records, key=lambda event: event["seq"]),
            "verdict": "pass" if passed else "fail",
        }


class Drill:
    """One drill: its instance in a sandbox, the runner of its waves, and its log."""

    def __init__(self, app: AppContext, runner: Runner) -> None:
        self.app = app
        self.runner = runner
        self.log = DrillLog()
        self._samples = list_samples(app)

    def submit(self, name: str, what: str, *, sample: int, **limits: int) -> str:
        """Submit one sample as one job and log it."""
        scan = self.sample(sample)
        job_id = submit_scan(self.app, scan, key=f"drill-{name}", release=NEWER, limits=limits)
        self.log.job(name, job_id, what)
        return job_id

    def sample(self, number: int) -> Path:
        """Return one of the shipped samples."""
        return self._samples[number % len(self._samples)]

    def wait(self, is_done: Callable[[], bool], *, launch: bool = True) -> None:
        """Evaluate the sensors until the condition holds, or until the bound; the next step finds out."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            self.runner.tick(launch=launch)
            if is_done():
                return
            time.sleep(POLL_S)

    def wait_for_wave(self, is_done: Callable[[], bool]) -> None:
        """Wait for a running wave without any sensor, so that nothing else acts meanwhile."""
        wait_until(lambda: is_done() or not self.runner.is_busy)

    def is_settled(self, job_id: str) -> bool:
        """Return whether a job is terminal, its required effects are committed, and no wave runs."""
        terminal = read_status(self.app, job_id)["state"] in TERMINAL_STATES
        unfinished = maintenance.jobs_with_unfinished_effects(self.app, [job_id])
        return terminal and not unfinished and not self.runner.is_busy


def run_drill(*, runner_for: RunnerFor) -> dict[str, Any]:
    """Run the drill in an empty data directory and return its jobs, steps, report and verdict."""
    with sandbox(os.environ, DRILL_LIMITS) as environment:
        settings = read_settings(environment)
        app = open_app(settings)
        runner = runner_for(settings, environment)
        drill = Drill(app, runner)
        try:
            promote(app, OLDER)
            _normal_job(drill)
            _dropped_notification(drill)
            _failed_upload(drill)
            _expired_job(drill)
            _repeated_delivery(drill)
            _balanced_account(drill)
            _changed_output(drill)
            _removed_object(drill)
            _withheld_terminal(drill)
            return drill.log.document(app)
        finally:
            runner.stop()
            app.close()


def _normal_job(drill: Drill) -> None:
    job_id = drill.submit("job-1", "succeeds and notifies", sample=0)
    drill.wait(lambda: drill.is_settled(job_id))
    status = read_status(drill.app, job_id)
    drill.log.step("job 1 succeeds", "succeeded/complete", f"{status['state']}/{status['terminal_class']}")
    drill.log.step("job 1's result is verified", True, (status["result"] or {}).get("verified"))
    drill.log.step("job 1's notification is delivered once", 1, status["notifications"]["delivered"])


def _dropped_notification(drill: Drill) -> None:
    job_id = drill.submit("job-2", "succeeds, its notification is dropped", sample=1)
    install_plan(Plan((PlannedFault("outbox_send.drop", Fault.ALTER, times=1_000),)))
    try:
        drill.wait(lambda: drill.is_settled(job_id) and is_outbox_idle(drill.app, job_id))
    finally:
        remove_plan()
    status = read_status(drill.app, job_id)
    drill.log.step("job 2 succeeds", "succeeded", status["state"])
    drill.log.step("job 2 was never notified", 0, status["notifications"]["delivered"])
    drill.log.step("the delivery ledger shows the drop", True, status["notifications"]["dropped"] > 0)
    tasks = list_tasks(drill.app, job_id)
    drill.log.step("the consumer found the result by reconciling", 1, len(tasks))


def _failed_upload(drill: Drill) -> None:
    drill.runner.plan = plan_text(PlannedFault("upload.before", Fault.ERROR))
    job_id = drill.submit("job-3", "the model finishes, the upload fails, a retry publishes", sample=2)
    pins = read_status(drill.app, job_id)["pins"]
    drill.wait(lambda: drill.is_settled(job_id))
    status = read_status(drill.app, job_id)
    tried = read_attempts(drill.app, job_id)
    drill.log.step("job 3 succeeds after its retry", "succeeded", status["state"])
    drill.log.step("job 3's first attempt is recorded as failed", "failed", tried[0]["outcome"])
    drill.log.step("job 3 stays within its attempt limit", True, len(tried) <= 3)
    drill.log.step("the model was invoked once for job 3", 1, sum(row["invocations"] for row in tried))
    drill.log.step(
        "job 3's pins never changed", pins, submitter.read_result(drill.app, drill.app.principal(), job_id)["pins"]
    )


def _expired_job(drill: Drill) -> None:
    job_id = drill.submit("job-4", "waits until it expires", sample=3, max_queue_age_s=2)
    pinned = read_status(drill.app, job_id)["pins"]["release_id"]
    newer = promote(drill.app, NEWER)
    answer = submitter.classify_scan(drill.app, drill.app.principal(), drill.sample(3), release=NEWER)
    drill.log.step("a synchronous answer uses the newer release", newer, answer["pins"]["release_id"])
    drill.wait(lambda: drill.is_settled(job_id), launch=False)
    status = read_status(drill.app, job_id)
    drill.log.step("job 4 expires", "expired/expired", f"{status['state']}/{status['terminal_class']}")
    drill.log.step("job 4 kept its older release", pinned, status["pins"]["release_id"])
    drill.log.step("job 4 has another release than the alias names now", True, pinned != newer)
    spent = sum(row["invocations"] for row in read_attempts(drill.app, job_id))
    drill.log.step("job 4 cost no model invocation", 0, spent)


def _repeated_delivery(drill: Drill) -> None:
    job_id = drill.log.job_id("job-1")
    before = len(list_tasks(drill.app, job_id))
    outcome = deliver_again(drill.app, job_id)
    after = len(list_tasks(drill.app, job_id))
    drill.log.step("the same success delivered twice is a duplicate", "duplicate", outcome)
    drill.log.step("and makes no second review task", before, after)


def _balanced_account(drill: Drill) -> None:
    maintenance.reconcile_everything(drill.app)
    report = read_report(drill.app)
    drill.log.step("the account of the four jobs", "accounted/pass", f"{report['state']}/{report['gate']}")
    counted = {name: report[name] for name in ("accepted", "succeeded", "expired", "retried", "unresolved")}
    wanted = {"accepted": 4, "succeeded": 3, "expired": 1, "retried": 1, "unresolved": 0}
    drill.log.step("its counts", wanted, counted)
    maintenance.publish_report(drill.app)
    drill.log.step("every asset check is green", [], maintenance.failed_checks(drill.app))


def _changed_output(drill: Drill) -> None:
    """A worker with another output hangs until a second worker has closed the job, then writes."""
    folder = drill.app.settings.home / "drill"
    reached, resume = folder / "reached", folder / "resume"
    hang = PlannedFault("checkpoint.before", Fault.HANG, until=str(resume), witness=str(reached))
    drill.runner.plan = plan_text(PlannedFault("model.change_output", Fault.ALTER), hang)
    job_id = drill.submit("job-5", "an attempt that lost its lease has another output", sample=4)
    drill.wait(lambda: not drill.runner.plan)
    drill.wait_for_wave(reached.exists)
    drill.wait(lambda: read_status(drill.app, job_id)["state"] in TERMINAL_STATES)
    resume.touch()
    drill.wait_for_wave(lambda: False)
    maintenance.reconcile_everything(drill.app)
    report = read_report(drill.app)
    drill.log.step("a changed output under one job id is quarantined", [job_id], report["divergent"])
    drill.log.step("and is not served", "RESULT.QUARANTINED.v1", result_refusal(drill.app, job_id))
    owned = [row["job_id"] for row in report["investigations"] if row["kind"] == "divergent_output"]
    drill.log.step("and has an owned investigation", [job_id], owned)


def _removed_object(drill: Drill) -> None:
    job_id = drill.log.job_id("job-1")
    remove_result_object(drill.app, job_id)
    maintenance.reconcile_everything(drill.app)
    report = read_report(drill.app)
    drill.log.step("a removed object is named", [job_id], report["success_without_object"])


def _withheld_terminal(drill: Drill) -> None:
    drill.runner.plan = plan_text(PlannedFault("commit.before", Fault.KILL))
    job_id = drill.submit("job-6", "its terminal record is withheld", sample=5)
    drill.wait(lambda: not drill.runner.plan)
    drill.wait_for_wave(lambda: False)
    drill.log.step("job 6 was killed while publishing", "publishing", phase_of(drill.app, job_id))
    pass_deadline(drill.app, job_id)
    report = read_report(drill.app)
    drill.log.step("a withheld terminal record is named", [job_id], report["missing_terminal"])
    drill.wait(lambda: drill.is_settled(job_id))
    status = read_status(drill.app, job_id)
    drill.log.step("a closing attempt records the true outcome", "succeeded", status["state"])
    spent = sum(row["invocations"] for row in read_attempts(drill.app, job_id))
    drill.log.step("without another model invocation", 1, spent)


# Actions and observations in the sandbox; the lease-theft drill and the crash matrix use them too.


def wait_until(is_done: Callable[[], bool], *, wait_s: float = WAIT_S, poll_s: float = 0.05) -> bool:
    """Return whether the condition came to hold within the bound."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if is_done():
            return True
        time.sleep(poll_s)
    return False


def read_status(app: AppContext, job_id: str, *, audience: str = Audience.CUSTOMER) -> dict[str, Any]:
    """Return a job's status document."""
    return submitter.read_status(app, app.principal(), job_id, audience=audience)


def read_report(app: AppContext) -> dict[str, Any]:
    """Return the account of the ledger now."""
    return analyst.read_report(app, app.principal())


def list_tasks(app: AppContext, job_id: str) -> list[dict[str, Any]]:
    """Return the review tasks of a job, open or not."""
    return reviewer.list_tasks(app, app.principal(), only_open=False, job_id=job_id)


def promote(app: AppContext, name: str) -> str:
    """Point the newer alias at a shipped release; returns the release's id."""
    return admin.promote_release(app, app.principal(), admin.shipped_release_id(app, name), alias=NEWER)


def list_samples(app: AppContext) -> list[Path]:
    """Return the shipped sample scans by name."""
    folder = app.settings.samples
    return sorted(path for path in folder.iterdir() if path.suffix in {".jpg", ".png"})


def submit_scan(app: AppContext, scan: Path, *, key: str, release: str, limits: Mapping[str, int]) -> str:
    """Submit one scan by a manifest of its own, as a caller would; returns the job id."""
    folder = app.settings.home / "drill" / key
    folder.mkdir(parents=True)
    data = scan.read_bytes()
    (folder / scan.name).write_bytes(data)
    sha256 = digest_of_bytes(data).removeprefix("sha256:")
    item = {"item_id": key, "uri": scan.name, "sha256": sha256, "size_bytes": len(data)}
    manifest = {"contract": JOB_CONTRACT, "idempotency_key": key, "release": release, "limits": {**limits}}
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest | {"items": [item]}))
    answer = submitter.submit(app, app.principal(), [path])[0]
    return str(answer["lines"][0]["job_id"])


def read_attempts(app: AppContext, job_id: str) -> list[dict[str, Any]]:
    """Return the attempts of a job in order."""
    with app.ledger.reading() as tx:
        return tx.rows(select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.lease_epoch))


def phase_of(app: AppContext, job_id: str) -> str:
    """Return the phase in the job's row; the status document shows a late one as delayed."""
    with app.ledger.reading() as tx:
        return str(read_facts(tx, job_id).job["phase"])


def is_outbox_idle(app: AppContext, job_id: str) -> bool:
    """Return whether no message of a job is due."""
    with app.ledger.reading() as tx:
        return all(row["state"] != "due" for row in tx.rows(select(outbox).where(outbox.c.job_id == job_id)))


def deliver_again(app: AppContext, job_id: str) -> str:
    """Pass the same success to the consumer once more; returns its outcome."""
    with app.ledger.reading() as tx:
        message = tx.row(select(outbox).where(outbox.c.job_id == job_id))
    assert message is not None
    event = dict(message["payload"]) | {"event_id": f"{message['message_id']}-again", "kind": message["kind"]}
    return str(receive_event(app.effects, event, source="drill").outcome)


def remove_result_object(app: AppContext, job_id: str) -> None:
    """Remove a result from the object store, as an accident would."""
    with app.ledger.reading() as tx:
        key = read_facts(tx, job_id).job["result_key"]
    app.store.delete(key)


def result_refusal(app: AppContext, job_id: str) -> str:
    """Return the reason code with which a result is refused, "" when it is served."""
    try:
        submitter.read_result(app, app.principal(), job_id)
    except PipelineError as error:
        return error.reason.code
    return ""


def pass_deadline(app: AppContext, job_id: str) -> None:
    """Move a running job's processing deadline into the past, as if its time were over."""
    grace = dt.timedelta(seconds=app.settings.limits.work.overrun_grace_s + 1)
    with app.ledger.transaction() as tx:
        tx.execute(update(jobs).where(jobs.c.job_id == job_id).values(processing_deadline=tx.now() - grace))
