"""Run sensors and waves without a daemon."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.defs.sensors import (
    deliveries_sensor,
    dispatch_sensor,
    reconcile_sensor,
    submissions_sensor,
)
from receipt_pipeline.defs.waves import WAVE_TAG
from receipt_pipeline.drill.failure_plan import install_from
from receipt_pipeline.runtime.supervisor import prepare_dagster_home
from receipt_pipeline.settings import Settings, read_settings


def install_plan_of_environment() -> bool:
    """Install the failure plan that the environment carries, if any."""
    from receipt_pipeline.worker.heartbeat import stop_all

    settings = read_settings()
    return install_from(settings.drill_plan, enabled=settings.drills_enabled, silence=stop_all)


def run_drill_here() -> dict[str, Any]:
    """Run the four-job drill in a sandbox, through the real sensors and wave runs."""
    from receipt_pipeline.drill.four_jobs import run_drill

    return run_drill(runner_for=LocalRunner.prepare)


@dataclass(slots=True)
class LocalRunner:
    """Evaluates the sensors of one instance and runs its waves from this process, as a daemon would.

    `plan` is the failure plan of the next wave's child; used once.
    """

    settings: Settings
    environment: Mapping[str, str]
    children: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    plan: str = ""

    @classmethod
    def prepare(cls, settings: Settings, environ: Mapping[str, str] | None = None) -> "LocalRunner":
        """Prepare Dagster's storage and return the runner; `environ` is by default that of this process."""
        return cls(settings, prepare_dagster_home(settings, environ))

    def tick(self, *, launch: bool = True) -> None:
        """Evaluate every sensor once, start the requested waves, close those of failed children."""
        quiet = (reconcile_sensor, deliveries_sensor)
        full = (submissions_sensor, reconcile_sensor, dispatch_sensor, deliveries_sensor)
        for make in full if launch else quiet:
            sensor = make(self._services())
            context = dg.build_sensor_context(sensor_name=sensor.name)
            for request in sensor.evaluate_tick(context).run_requests or []:
                self._launch(request.run_key, request.tags[WAVE_TAG])
        self.reap()

    def _services(self) -> ReceiptServices:
        return ReceiptServices(environment=dict(self.environment))

    def _launch(self, run_key: str | None, wave_id: str) -> None:
        """Start the child of a wave, once per run key, while a slot is free; the next tick asks again."""
        assert run_key is not None
        running = sum(1 for child in self.children.values() if child.poll() is None)
        if run_key in self.children or running >= self.settings.limits.work.wave_slots:
            return
        env = {**self.environment}
        if self.plan:
            env |= {"RECEIPTS_DRILLS": "enabled", "RECEIPTS_DRILL_PLAN": self.plan}
            self.plan = ""
        with (self.settings.dagster_home / "waves.log").open("ab") as log:
            self.children[run_key] = subprocess.Popen(
                [sys.executable, "-m", "receipt_pipeline.defs.run_wave", wave_id],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def reap(self) -> None:
        """Close the wave of every child that failed, as the run-failure sensor would."""
        for run_key, child in self.children.items():
            if child.poll() not in (None, 0):
                maintenance.close_wave(self._services().open(), run_key.rpartition(":")[0])

    @property
    def is_busy(self) -> bool:
        """Return whether a child still runs."""
        return any(child.poll() is None for child in self.children.values())

    def stop(self) -> None:
        """Stop every child that still runs."""
        for child in self.children.values():
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
