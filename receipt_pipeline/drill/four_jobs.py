"""The four-job drill: a normal job, a lost notification, a failed upload, an expiry, and what follows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from receipt_pipeline.app import admin, analyst, maintenance, reviewer, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.drill import hands
from receipt_pipeline.drill.drill_log import DrillLog
from receipt_pipeline.drill.failure_plan import Fault, Plan, PlannedFault, plan_text
from receipt_pipeline.drill.sandbox import throwaway_environment
from receipt_pipeline.settings import Settings, read_settings

WAIT_S = 180.0
POLL_S = 0.3
HANG_S = 8.0
OLDER, NEWER = "previous", "production"


class RoundsLike(Protocol):
    """Ticks the real sensors of a home and runs its waves."""

    plan: str

    def tick(self, *, launch: bool = True) -> None:
        """Evaluate every sensor once; with `launch=False` nothing new is dispatched."""

    @property
    def busy(self) -> bool:
        """Tell whether a wave still runs."""

    def end(self) -> None:
        """End every wave that still runs."""


RoundsFor = Callable[[Settings, Mapping[str, str]], RoundsLike]


class Drill:
    """The drill's hands: one throw-away home, its services, its rounds, its log."""

    def __init__(self, services: AppContext, rounds: RoundsLike, samples: Path) -> None:
        self.services = services
        self.rounds = rounds
        self.log = DrillLog()
        self._samples = sorted(path for path in samples.iterdir() if path.suffix in {".jpg", ".png"})

    def submit(self, name: str, what: str, *, sample: int, **limits: Any) -> str:
        """Submit one sample as one job and note it."""
        job_id = hands.submit_scan(
            self.services, self.sample(sample), key=f"drill-{name}", release=NEWER, limits=limits
        )
        self.log.job(name, job_id, what)
        return job_id

    def sample(self, number: int) -> Path:
        """Return one of the shipped samples."""
        return self._samples[number % len(self._samples)]

    def until(self, done: Callable[[], bool], *, launch: bool = True, wait_s: float = WAIT_S) -> bool:
        """Go round until the condition holds; False when it did not within the bound."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            self.rounds.tick(launch=launch)
            if done():
                return True
            time.sleep(POLL_S)
        return False

    def settled(self, job_id: str) -> Callable[[], bool]:
        """Return the condition that a job is terminal and its effects are settled."""

        def holds() -> bool:
            terminal = (
                submitter.read_status(self.services, self.services.principal(), job_id)["state"]
                in TERMINAL_STATES
            )
            return (
                terminal
                and not maintenance.jobs_with_unfinished_effects(self.services, [job_id])
                and not self.rounds.busy
            )

        return holds


def run_drill(settings: Settings, *, rounds_for: RoundsFor) -> dict[str, Any]:
    """Run the whole drill in an empty home and return jobs, steps, report and verdict."""
    with throwaway_environment(os.environ) as environment:
        home = read_settings(environment)
        services = open_app(home)
        rounds = rounds_for(home, environment)
        drill = Drill(services, rounds, settings.shipped / "samples")
        try:
            admin.promote_release(
                services, services.principal(), admin.shipped_release_id(services, OLDER), alias=NEWER
            )
            _normal_job(drill)
            _dropped_notification(drill)
            _failed_upload(drill)
            _expired_job(drill)
            _delivered_twice(drill)
            _balanced_account(drill)
            _changed_output(drill)
            _removed_object(drill)
            _withheld_terminal(drill)
            return drill.log.answer(
                analyst.read_report(services, services.principal(), cutoff=None, published=False), services
            )
        finally:
            rounds.end()
            services.close()


def _normal_job(drill: Drill) -> None:
    job_id = drill.submit("job-1", "succeeds and notifies", sample=0)
    drill.until(drill.settled(job_id))
    status = submitter.read_status(drill.services, drill.services.principal(), job_id)
    drill.log.step("job 1 succeeds", "succeeded/complete", f"{status['state']}/{status['terminal_class']}")
    drill.log.step("job 1's result is verified", True, (status["result"] or {}).get("verified"))
    drill.log.step("job 1's notification is delivered once", 1, status["notifications"]["delivered"])


def _dropped_notification(drill: Drill) -> None:
    job_id = drill.submit("job-2", "succeeds, its notification is dropped", sample=1)
    install_plan(Plan((PlannedFault("outbox_send.drop", Fault.ALTER, times=1_000),)))
    try:
        drill.until(lambda: drill.settled(job_id)() and hands.is_outbox_idle(drill.services, job_id))
    finally:
        remove_plan()
    status = submitter.read_status(drill.services, drill.services.principal(), job_id)
    drill.log.step("job 2 succeeds", "succeeded", status["state"])
    drill.log.step("job 2 was never notified", 0, status["notifications"]["delivered"])
    drill.log.step("the delivery ledger shows the drop", True, status["notifications"]["dropped"] > 0)
    tasks = reviewer.list_tasks(drill.services, drill.services.principal(), only_open=False, job_id=job_id)
    drill.log.step("the consumer got there by reconciling", 1, len(tasks))


def _failed_upload(drill: Drill) -> None:
    drill.rounds.plan = plan_text(PlannedFault("upload.before", Fault.ERROR, times=1_000))
    job_id = drill.submit("job-3", "the model finishes, the upload fails, a retry publishes", sample=2)
    pins = submitter.read_status(drill.services, drill.services.principal(), job_id)["pins"]
    drill.until(drill.settled(job_id))
    status = submitter.read_status(drill.services, drill.services.principal(), job_id)
    attempts = hands.read_attempts(drill.services, job_id)
    drill.log.step("job 3 succeeds after its retry", "succeeded", status["state"])
    outcomes = [row["outcome"] for row in attempts]
    drill.log.step("job 3's first attempt is recorded as failed", "failed", outcomes[0])
    drill.log.step("job 3 stays within its attempt bound", True, len(attempts) <= 3)
    invocations = sum(row["invocations"] for row in attempts)
    drill.log.step("the model was invoked once for job 3", 1, invocations)
    drill.log.step(
        "job 3's pins never changed",
        pins,
        submitter.read_result(drill.services, drill.services.principal(), job_id)["pins"],
    )


def _expired_job(drill: Drill) -> None:
    job_id = drill.submit("job-4", "waits until it expires", sample=3, max_queue_age_s=2)
    pinned = submitter.read_status(drill.services, drill.services.principal(), job_id)["pins"]["release_id"]
    newer = admin.promote_release(
        drill.services,
        drill.services.principal(),
        admin.shipped_release_id(drill.services, NEWER),
        alias=NEWER,
    )
    at_once = submitter.classify_scan(
        drill.services, drill.services.principal(), drill.sample(3), release=NEWER
    )
    drill.log.step("a synchronous answer comes under the newer release", newer, at_once["pins"]["release_id"])
    drill.until(drill.settled(job_id), launch=False)
    status = submitter.read_status(drill.services, drill.services.principal(), job_id)
    drill.log.step("job 4 expires", "expired/expired", f"{status['state']}/{status['terminal_class']}")
    drill.log.step("job 4 kept its older release", pinned, status["pins"]["release_id"])
    drill.log.step("job 4 is under another release than the alias names now", True, pinned != newer)
    spent = sum(row["invocations"] for row in hands.read_attempts(drill.services, job_id))
    drill.log.step("job 4 cost no model invocation", 0, spent)


def _delivered_twice(drill: Drill) -> None:
    job_id = drill.log.job_id("job-1")
    before = len(
        reviewer.list_tasks(drill.services, drill.services.principal(), only_open=False, job_id=job_id)
    )
    outcome = hands.deliver_again(drill.services, job_id)
    after = len(
        reviewer.list_tasks(drill.services, drill.services.principal(), only_open=False, job_id=job_id)
    )
    drill.log.step("the same success delivered twice is a duplicate", "duplicate", outcome)
    drill.log.step("and makes no second review task", before, after)


def _balanced_account(drill: Drill) -> None:
    maintenance.reconcile_everything(drill.services)
    report = analyst.read_report(drill.services, drill.services.principal(), cutoff=None, published=False)
    drill.log.step("the account of the four jobs", "accounted/pass", f"{report['state']}/{report['gate']}")
    counted = {name: report[name] for name in ("accepted", "succeeded", "expired", "retried", "unresolved")}
    wanted = {"accepted": 4, "succeeded": 3, "expired": 1, "retried": 1, "unresolved": 0}
    drill.log.step("its counts", wanted, counted)
    maintenance.publish_report(drill.services)
    red = maintenance.failed_checks(drill.services)
    drill.log.step("every asset check is green", [], red)


def _changed_output(drill: Drill) -> None:
    drill.rounds.plan = plan_text(
        PlannedFault("model.change_output", Fault.ALTER),
        PlannedFault("checkpoint.before", Fault.HANG, seconds=HANG_S),
    )
    job_id = drill.submit("job-5", "an attempt that lost its lease carries another output", sample=4)
    drill.until(
        lambda: bool(
            analyst.read_report(drill.services, drill.services.principal(), cutoff=None, published=False)[
                "divergent"
            ]
        )
    )
    drill.until(lambda: not drill.rounds.busy)
    maintenance.reconcile_everything(drill.services)
    report = analyst.read_report(drill.services, drill.services.principal(), cutoff=None, published=False)
    drill.log.step("a changed output under one job id is quarantined", [job_id], report["divergent"])
    drill.log.step("and is not served", "RESULT.QUARANTINED.v1", hands.result_refusal(drill.services, job_id))
    owned = [row["job_id"] for row in report["investigations"] if row["kind"] == "divergent_output"]
    drill.log.step("and has an owned investigation", [job_id], owned)


def _removed_object(drill: Drill) -> None:
    job_id = drill.log.job_id("job-1")
    hands.remove_result_object(drill.services, job_id)
    maintenance.reconcile_everything(drill.services)
    report = analyst.read_report(drill.services, drill.services.principal(), cutoff=None, published=False)
    drill.log.step("a removed object is named", [job_id], report["success_without_object"])


def _withheld_terminal(drill: Drill) -> None:
    drill.rounds.plan = plan_text(PlannedFault("commit.before", Fault.KILL, times=1_000))
    job_id = drill.submit("job-6", "its terminal record is withheld", sample=5, processing_timeout_s=20)
    drill.until(
        lambda: (
            submitter.read_status(drill.services, drill.services.principal(), job_id)["phase"] == "publishing"
            and not drill.rounds.busy
        )
    )
    overdue = hands.wait_past_limits(drill.services, job_id)
    report = analyst.read_report(drill.services, drill.services.principal(), cutoff=None, published=False)
    drill.log.step("the limits of job 6 have passed", True, overdue)
    # The quarantined job has no terminal record either, and waits for a person's decision.
    waiting = sorted([drill.log.job_id("job-5"), job_id])
    drill.log.step("a withheld terminal record is named", waiting, sorted(report["missing_terminal"]))
    drill.until(drill.settled(job_id))
    status = submitter.read_status(drill.services, drill.services.principal(), job_id)
    drill.log.step("a closing attempt ends it in truth", "succeeded", status["state"])
    spent = sum(row["invocations"] for row in hands.read_attempts(drill.services, job_id))
    drill.log.step("without another model invocation", 1, spent)
