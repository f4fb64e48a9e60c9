"""Conducts one cell of the crash matrix: the story, the fault, the restart, and the judge."""

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
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import STORIES, Story
from receipt_pipeline_tests.chaos.crash_matrix.steps import Order

STEP_S_MAX = 90.0
REACH_S_MAX = 30.0
# How long a second process may take before the first goes on anyway, because it may be kept out by a lock.
SECOND_S_MAX = 10.0
SECOND_ALONE_S = 0.5
POLL_S = 0.02


class CellBroken(Exception):
    """The story itself went wrong; the text says how."""


@dataclass(slots=True)
class Conductor:
    """A cell's folder and home, and the processes that were started for it."""

    cell: Cell
    story: Story
    folder: Path
    environment: Mapping[str, str]
    processes: Processes
    started: list[Running] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def start(self, step: str, *, plan: str = "") -> Running:
        """Start a process for a step of the story."""
        story = self.story
        facts = {"page_s": story.page_s, "items": story.items, "job_limits": dict(story.job_limits)}
        order = Order(step, str(self.folder), self.environment, plan, len(self.started), facts)
        running = self.processes.start(order)
        self.started.append(running)
        return running

    def run(self, step: str) -> None:
        """Run a step to its end, which must be a good one."""
        self.finish(self.start(step))

    def finish(self, running: Running, *, within_s: float = STEP_S_MAX) -> None:
        """Wait for the good end of a process."""
        status = running.wait(within_s)
        if status is None:
            running.kill()
            raise CellBroken(f"the step {running.order.step} did not end within {within_s:.0f} s")
        if status != 0:
            raise CellBroken(f"the step {running.order.step} ended with {status}: {_last_words(self.folder)}")

    @property
    def witness(self) -> Path:
        """Return the file in which the plan says what happened."""
        return self.folder / "witness"

    @property
    def go_on(self) -> Path:
        """Return the file whose appearance lets a process go on that stands still."""
        return self.folder / "go-on"

    def plan(self) -> str:
        """Return the failure plan of the cell's fault."""
        waits = self.cell.fault in _INTERVENTIONS
        return plan_text(
            *(
                PlannedFault(
                    point,
                    self.cell.planned,
                    until=str(self.go_on) if waits else "",
                    witness=str(self.witness),
                )
                for point in self.cell.points
            )
        )

    def reached(self) -> list[str]:
        """Return the points at which the fault happened."""
        return self.witness.read_text().split() if self.witness.exists() else []

    def await_reached(self, running: Running) -> None:
        """Wait until the process stands at its point."""
        end = time.monotonic() + REACH_S_MAX
        while not self.reached():
            if running.ended.is_set() or time.monotonic() > end:
                raise CellBroken("the point was never reached")
            time.sleep(POLL_S)


def conduct(cell: Cell, processes: Processes, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Play one applicable cell in its fresh home; returns verdict and detail."""
    at = Conductor(cell, STORIES[cell.boundary], folder, environment, processes)
    try:
        for arranged in at.story.arranged:
            _arrange(at, arranged.step, dies_at=arranged.dies_at)
        PLAYED[cell.fault](at)
        _restart(at)
        return judged(at)
    except CellBroken as broken:
        return {"verdict": Verdict.BROKEN.value, "detail": str(broken)}
    finally:
        for running in at.started:
            running.kill()


def judged(at: Conductor) -> dict[str, Any]:
    """Let a fresh process reconcile twice and judge; returns verdict and detail."""
    if missing := set(at.cell.points) - set(at.reached()):
        raise CellBroken(f"the point was never reached: {', '.join(sorted(missing))}")
    at.run("judge")
    found = json.loads((at.folder / "verdict.json").read_text())
    detail = "; ".join([*found["faults"], *at.notes, found["ending"]])
    return {"verdict": found["verdict"], "detail": detail}


def _arrange(at: Conductor, step: str, *, dies_at: str) -> None:
    if not dies_at:
        at.run(step)
        return
    killed = at.start(step, plan=plan_text(PlannedFault(dies_at, Fault.KILL)))
    if killed.wait(STEP_S_MAX) != -signal.SIGKILL:
        raise CellBroken(f"nobody was killed at {dies_at}")


def _restart(at: Conductor) -> None:
    """Do what follows a crash by itself: the caller repeats its order, sensors and waves go round."""
    if at.story.again:
        at.run(at.story.again)
    at.run("rounds")


def _killed(at: Conductor) -> None:
    status = at.start(at.story.under_fault, plan=at.plan()).wait(STEP_S_MAX)
    if status != -signal.SIGKILL:
        raise CellBroken(f"the point was never reached: nobody was killed, the process ended with {status}")


def _stalled(at: Conductor) -> None:
    """Let the process stand still while it beats: its own watchdog must end it."""
    process = at.start(at.story.under_fault, plan=at.plan())
    at.await_reached(process)
    status = process.wait(STEP_S_MAX)
    if status != -signal.SIGKILL:
        raise CellBroken(f"the watchdog did not end the process, which ended with {status}")
    at.notes.append("ended by its watchdog")


def _hung(at: Conductor) -> None:
    process = at.start(at.story.under_fault, plan=at.plan())
    at.await_reached(process)
    if at.story.alone:
        process.kill()
    _restart(at)
    process.kill()


def _failed(at: Conductor) -> None:
    at.finish(at.start(at.story.under_fault, plan=at.plan()))


def _delivered_twice(at: Conductor) -> None:
    _held_up(at, lambda: _second(at, at.story.twice))


def _canceled(at: Conductor) -> None:
    _held_up(at, lambda: _second(at, "cancel"))


def _robbed(at: Conductor) -> None:
    _held_up(at, lambda: _restart(at))


def _second(at: Conductor, step: str) -> None:
    at.start(step).wait(SECOND_ALONE_S if at.story.alone else SECOND_S_MAX)


def _held_up(at: Conductor, meanwhile: Callable[[], None]) -> None:
    """Do something while the process stands at its point, then let it go on to its end."""
    before = len(at.started)
    process = at.start(at.story.under_fault, plan=at.plan())
    at.await_reached(process)
    meanwhile()
    at.go_on.touch()
    for running in at.started[before:]:
        at.finish(running)


_INTERVENTIONS = frozenset({CellFault.DUPLICATE_DELIVERY, CellFault.LEASE_THEFT, CellFault.CANCELLATION})
PLAYED: Mapping[CellFault, Callable[[Conductor], None]] = {
    CellFault.KILL_BEFORE: _killed,
    CellFault.KILL_AFTER: _killed,
    CellFault.ERROR: _failed,
    CellFault.HANG: _hung,
    CellFault.STALL: _stalled,
    CellFault.DUPLICATE_DELIVERY: _delivered_twice,
    CellFault.LEASE_THEFT: _robbed,
    CellFault.CANCELLATION: _canceled,
}


def _last_words(folder: Path) -> str:
    """Return the last line that a process of the cell wrote."""
    log = folder / "processes.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it said nothing"
