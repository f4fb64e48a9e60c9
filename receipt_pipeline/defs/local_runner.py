"""Run sensors and waves without a daemon."""

import os
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


def run_drill_here(settings: Settings) -> dict[str, Any]:
    """Run the four-job drill in a throw-away home, through the real sensors and wave runs."""
    from receipt_pipeline.drill.four_jobs import run_drill

    return run_drill(settings, rounds_for=Rounds.for_home)


@dataclass(slots=True)
class Rounds:
    """Ticks the sensors of one home and runs its waves, as a daemon would, from this process.

    `plan` is the failure plan of the next wave's child; used once.
    """

    settings: Settings
    environment: Mapping[str, str]
    children: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    plan: str = ""

    @classmethod
    def for_home(cls, settings: Settings, environment: Mapping[str, str] | None = None) -> "Rounds":
        """Prepare the Dagster home and return rounds over it."""
        return cls(settings, {**prepare_dagster_home(settings), **(environment or {})})

    def tick(self, *, launch: bool = True) -> None:
        """Evaluate every sensor once, start the waves that dispatch asks for, reap ended children."""
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
        """Start a wave's child once per run key, as many at once as the home has slots.

        A wave that finds no slot is handed out again by the next tick.
        """
        assert run_key is not None
        running = sum(1 for child in self.children.values() if child.poll() is None)
        if run_key in self.children or running >= self.settings.limits.work.wave_slots:
            return
        env = {**os.environ, **self.environment}
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
        """Close the wave of every child that ended badly, as the run-failure sensor would."""
        for run_key, child in self.children.items():
            if child.poll() not in (None, 0):
                maintenance.close_wave(self._services().open(), run_key.rpartition(":")[0])

    @property
    def busy(self) -> bool:
        """Tell whether a child still runs."""
        return any(child.poll() is None for child in self.children.values())

    def end(self) -> None:
        """End every child that still runs."""
        for child in self.children.values():
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
