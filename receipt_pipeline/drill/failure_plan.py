"""Which failure points fail, and how."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from receipt_pipeline.core.errors import InputRefused, NotAllowed, PipelineError
from receipt_pipeline.core.failure_points import ALTERATIONS, POINTS, install_plan
from receipt_pipeline.core.reasons import DRILL_FAILED_HERE, DRILLS_DISABLED, SETTING_INVALID

UNTIL_POLL_S = 0.02


class Fault(StrEnum):
    """What a point does when its turn comes."""

    ERROR = "error"
    KILL = "kill"
    HANG = "hang"
    STALL = "stall"
    ALTER = "alter"


class DrillFault(PipelineError):
    """The error that a plan raises; services handle it like any failure at that point."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One line of a plan: from passage number `first`, for `times` passages, the point does `fault`.

    Attributes:
        seconds: how long `hang` and `stall` last.
        until: a file whose appearance ends a `hang` or `stall` earlier, "" for none.
        witness: a file that gets the point's name as a line before the fault, "" for none.
    """

    point: str
    fault: Fault
    first: int = 1
    times: int = 1
    seconds: float = 3600.0
    until: str = ""
    witness: str = ""


@dataclass(slots=True)
class Plan:
    """Counts passages per point and acts when a line of the plan is due."""

    faults: tuple[PlannedFault, ...]
    silence: Callable[[], None] = lambda: None
    passages: dict[str, int] = field(default_factory=dict)

    def reached(self, point_name: str) -> None:
        """Act at a point, or let it pass."""
        fault = self._due(point_name)
        if fault is None:
            return
        _write_witness(fault)
        if fault.fault is Fault.ERROR:
            raise DrillFault(DRILL_FAILED_HERE, failure_point=point_name)
        if fault.fault is Fault.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.fault is Fault.HANG:  # The whole worker pauses, so its heartbeats stop too.
            self.silence()
        _pause(fault)

    def altered(self, alteration: str, value: Any) -> Any:
        """Return the value, changed when the plan says so: dropped, or with another decision."""
        if self._due(alteration) is None:
            return value
        if alteration == "outbox_send.drop":
            return None
        return value.altered_for_drill()

    def _due(self, name: str) -> PlannedFault | None:
        passage = self.passages.get(name, 0) + 1
        self.passages[name] = passage
        for fault in self.faults:
            if fault.point == name and fault.first <= passage < fault.first + fault.times:
                return fault
        return None


def _write_witness(fault: PlannedFault) -> None:
    """Write the point's name to the witness file, so that it is there even after SIGKILL."""
    if fault.witness:
        with Path(fault.witness).open("a") as file:
            file.write(fault.point + "\n")


def _pause(fault: PlannedFault) -> None:
    if not fault.until:
        time.sleep(fault.seconds)
        return
    end = time.monotonic() + fault.seconds
    while time.monotonic() < end and not Path(fault.until).exists():
        time.sleep(UNTIL_POLL_S)


def read_plan(text: str) -> tuple[PlannedFault, ...]:
    """Read a plan from its JSON list.

    Raises:
        InputRefused: SETTING.INVALID.v1 when it is no list of known points and faults.
    """
    try:
        entries = json.loads(text)
        faults = tuple(PlannedFault(**(entry | {"fault": Fault(entry["fault"])})) for entry in entries)
    except (ValueError, TypeError, KeyError) as error:
        raise InputRefused(SETTING_INVALID, variable="RECEIPTS_DRILL_PLAN") from error
    for fault in faults:
        if fault.point not in POINTS | ALTERATIONS:
            raise InputRefused(SETTING_INVALID, variable="RECEIPTS_DRILL_PLAN", failure_point=fault.point)
    return faults


def install_from(text: str, *, enabled: bool, silence: Callable[[], None]) -> bool:
    """Install the plan of the environment; returns False when there is none.

    Args:
        text: the plan's JSON, empty for none.
        enabled: whether drills are enabled.
        silence: stops the worker's heartbeats, for `hang`.
    Raises:
        NotAllowed: DRILL.DISABLED.v1 when a plan is given where drills are not enabled.
    """
    if not text:
        return False
    if not enabled:
        raise NotAllowed(DRILLS_DISABLED)
    install_plan(Plan(read_plan(text), silence))
    return True


def plan_text(*faults: PlannedFault) -> str:
    """Return the JSON of a plan, for the environment of a child process."""
    return json.dumps([asdict(fault) for fault in faults])
