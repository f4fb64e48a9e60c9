"""Plays one cell of the crash matrix: the scenario, the fault, the restart, and the verdict."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from receipt_pipeline.drill.failure_plan import Fault, PlannedFault, plan_text
from receipt_pipeline_tests.chaos.crash_matrix.cells import Cell, CellFault, Verdict
from receipt_pipeline_tests.chaos.crash_matrix.processes import Processes, Running
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import SCENARIOS, Scenario
from receipt_pipeline_tests.chaos.crash_matrix.steps import StepOrder

STEP_S_MAX = 90.0
REACH_S_MAX = 30.0
# How long the first process waits for the second, which may itself be waiting for a lock.
SECOND_S_MAX = 10.0
SECOND_ALONE_S = 0.5
POLL_S = 0.02


class CellBroken(Exception):
    """The scenario itself failed; the text says how."""


@dataclass(slots=True)
class CellRun:
    """A cell's folder and instance, and the processes that were started for it."""

    cell: Cell
    scenario: Scenario
    folder: Path
    environment: Mapping[str, str]
    processes: Processes
    started: list[Running] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def start_step(self, step: str, *, plan: str = "") -> Running:
        """Start a process for a step of the scenario."""
        scenario = self.scenario
        facts = {"page_s": scenario.page_s, "items": scenario.items, "job_limits": dict(scenario.job_limits)}
        order = StepOrder(step, str(self.folder), self.environment, plan, len(self.started), facts)
        running = self.processes.start(order)
        self.started.append(running)
        return running

    def run_step(self, step: str) -> None:
        """Run a step to its end; it must exit with status 0."""
        self.finish(self.start_step(step))

    def finish(self, running: Running, *, within_s: float = STEP_S_MAX) -> None:
        """Wait until a process exits; it must do so with status 0."""
        status = running.wait(within_s)
        if status is None:
            running.kill()
            raise CellBroken(f"the step {running.order.step} did not end within {within_s:.0f} s")
        if status != 0:
            raise CellBroken(f"the step {running.order.step} ended with {status}: {_last_log_line(self.folder)}")

    @property
    def witness(self) -> Path:
        """Return the file in which the plan records the points that were reached."""
        return self.folder / "witness"

    @property
    def resume_file(self) -> Path:
        """Return the file whose appearance lets a stopped process continue."""
        return self.folder / "resume"

    def plan(self) -> str:
        """Return the failure plan of the cell's fault."""
        waits = self.cell.fault in _INTERVENTIONS
        return plan_text(
            *(
                PlannedFault(
                    point, self.cell.planned, until=str(self.resume_file) if waits else "", witness=str(self.witness)
                )
                for point in self.cell.points
            )
        )

    def reached(self) -> list[str]:
        """Return the points at which the fault happened."""
        return self.witness.read_text().split() if self.witness.exists() else []

    def await_reached(self, running: Running) -> None:
        """Wait until the process has reached its point."""
        end = time.monotonic() + REACH_S_MAX
        while not self.reached():
            if running.ended.is_set() or time.monotonic() > end:
                raise CellBroken("the point was never reached")
            time.sleep(POLL_S)


def play_cell(cell: Cell, processes: Processes, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Play one applicable cell in its fresh instance; returns verdict and detail."""
    run = CellRun(cell, SCENARIOS[cell.boundary], folder, environment, processes)
    try:
        for prepared in run.scenario.prepared:
            _arrange(run, prepared.step, killed_at=prepared.killed_at)
        PLAYED[cell.fault](run)
        _restart(run)
        return read_verdict(run)
    except CellBroken as broken:
        return {"verdict": Verdict.BROKEN.value, "detail": str(broken)}
    finally:
        for running in run.started:
            running.kill()


def read_verdict(run: CellRun) -> dict[str, Any]:
    """Let a fresh process reconcile twice and verify; returns verdict and detail."""
    if missing := set(run.cell.points) - set(run.reached()):
        raise CellBroken(f"the point was never reached: {', '.join(sorted(missing))}")
    run.run_step("verify")
    found = json.loads((run.folder / "verdict.json").read_text())
    detail = "; ".join([*found["faults"], *run.notes, found["ending"]])
    return {"verdict": found["verdict"], "detail": detail}


def _arrange(run: CellRun, step: str, *, killed_at: str) -> None:
    if not killed_at:
        run.run_step(step)
        return
    killed = run.start_step(step, plan=plan_text(PlannedFault(killed_at, Fault.KILL)))
    if killed.wait(STEP_S_MAX) != -signal.SIGKILL:
        raise CellBroken(f"no process was killed at {killed_at}")


def _restart(run: CellRun) -> None:
    """Do what follows a crash without a person: the caller repeats its request, sensors and waves run."""
    if run.scenario.repeated_step:
        run.run_step(run.scenario.repeated_step)
    run.run_step("passes")


def _killed(run: CellRun) -> None:
    status = run.start_step(run.scenario.faulted_step, plan=run.plan()).wait(STEP_S_MAX)
    if status != -signal.SIGKILL:
        raise CellBroken(f"the point was never reached: no process was killed, it ended with {status}")


def _stalled(run: CellRun) -> None:
    """Stop the process while its heartbeats continue: its own watchdog must end it."""
    process = run.start_step(run.scenario.faulted_step, plan=run.plan())
    run.await_reached(process)
    status = process.wait(STEP_S_MAX)
    if status != -signal.SIGKILL:
        raise CellBroken(f"the watchdog did not end the process, which ended with {status}")
    run.notes.append("ended by its watchdog")


def _hung(run: CellRun) -> None:
    process = run.start_step(run.scenario.faulted_step, plan=run.plan())
    run.await_reached(process)
    if run.scenario.is_exclusive:
        process.kill()
    _restart(run)
    process.kill()


def _failed(run: CellRun) -> None:
    run.finish(run.start_step(run.scenario.faulted_step, plan=run.plan()))


def _delivered_twice(run: CellRun) -> None:
    _while_held(run, lambda: _second(run, run.scenario.duplicate_step))


def _canceled(run: CellRun) -> None:
    _while_held(run, lambda: _second(run, "cancel"))


def _lease_stolen(run: CellRun) -> None:
    _while_held(run, lambda: _restart(run))


def _second(run: CellRun, step: str) -> None:
    run.start_step(step).wait(SECOND_ALONE_S if run.scenario.is_exclusive else SECOND_S_MAX)


def _while_held(run: CellRun, meanwhile: Callable[[], None]) -> None:
    """Do something while the process waits at its point, then let it continue to its end."""
    before = len(run.started)
    process = run.start_step(run.scenario.faulted_step, plan=run.plan())
    run.await_reached(process)
    meanwhile()
    run.resume_file.touch()
    for running in run.started[before:]:
        run.finish(running)


_INTERVENTIONS = frozenset({CellFault.DUPLICATE_DELIVERY, CellFault.LEASE_THEFT, CellFault.CANCELLATION})
PLAYED: Mapping[CellFault, Callable[[CellRun], None]] = {
    CellFault.KILL_BEFORE: _killed,
    CellFault.KILL_AFTER: _killed,
    CellFault.ERROR: _failed,
    CellFault.HANG: _hung,
    CellFault.STALL: _stalled,
    CellFault.DUPLICATE_DELIVERY: _delivered_twice,
    CellFault.LEASE_THEFT: _lease_stolen,
    CellFault.CANCELLATION: _canceled,
}


def _last_log_line(folder: Path) -> str:
    """Return the last line in the log of the cell's processes."""
    log = folder / "processes.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "no log"
