"""Evaluate sensors and run waves without a daemon."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.app.context import open_app
from receipt_pipeline.defs.sensors import reconcile_now, reserve_waves
from receipt_pipeline.defs.waves import WAVE_TAG
from receipt_pipeline.drill.four_jobs import run_drill
from receipt_pipeline.runtime.supervisor import prepare_dagster_home
from receipt_pipeline.settings import Settings

STOP_GRACE_S = 10


def run_drill_here() -> dict[str, Any]:
    """Run the four-job drill in a sandbox, through the passes of the sensors and real wave runs."""
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
        """Do the pass of every sensor once, start the requested waves, close those of failed children."""
        app = open_app(self.settings)
        if launch:
            maintenance.sweep_inbox(app)
        reconcile_now(app)
        if launch:
            result = reserve_waves(app)
            for request in (result.run_requests or []) if isinstance(result, dg.SensorResult) else []:
                self._launch(request.run_key or "", request.tags[WAVE_TAG])
        maintenance.deliver_and_consume(app)
        self.close_failed_waves()

    def _launch(self, run_key: str, wave_id: str) -> None:
        """Start the child of a wave, once per run key, while a slot is free; the next tick asks again."""
        running = sum(1 for child in self.children.values() if child.poll() is None)
        if run_key in self.children or running >= self.settings.limits.work.wave_slots:
            return
        env = dict(self.environment)
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

    def close_failed_waves(self) -> None:
        """Close the wave of every child that failed, as the run-failure sensor would."""
        for run_key, child in self.children.items():
            if child.poll() not in (None, 0):
                maintenance.close_wave(open_app(self.settings), run_key.rpartition(":")[0])

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
                    child.wait(STOP_GRACE_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
