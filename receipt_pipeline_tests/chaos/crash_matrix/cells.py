"""The cells of the crash matrix: every durable boundary crossed with every fault, and what cannot happen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from receipt_pipeline.core.failure_points import BOUNDARIES
from receipt_pipeline.drill.failure_plan import Fault

SERVICES = "services"
DAGSTER = "dagster"


class CellFault(StrEnum):
    """What happens at a boundary."""

    KILL_BEFORE = "kill_before"
    KILL_AFTER = "kill_after"
    ERROR = "error"
    HANG = "hang"
    STALL = "stall"
    DUPLICATE_DELIVERY = "duplicate_delivery"
    LEASE_THEFT = "lease_theft"
    CANCELLATION = "cancellation"


MEANINGS: dict[CellFault, str] = {
    CellFault.KILL_BEFORE: "SIGKILL right before the boundary",
    CellFault.KILL_AFTER: "SIGKILL right after it",
    CellFault.ERROR: "an error before it, and another one after it when the step is repeated",
    CellFault.HANG: "the process and its heartbeats stop; it is ended after all others are done",
    CellFault.STALL: "the process stops while its heartbeats continue; its watchdog ends it",
    CellFault.DUPLICATE_DELIVERY: "a second process gets the same order while the first waits there",
    CellFault.LEASE_THEFT: "the process waits until another has taken over its job and closed it",
    CellFault.CANCELLATION: "the caller cancels the job while the process waits there",
}


class Verdict(StrEnum):
    """How a cell ended."""

    CONVERGED = "converged"
    OWNED = "owned"
    BROKEN = "BROKEN"
    NOT_APPLICABLE = "not_applicable"


# Between claim and release a worker holds a lease, sends heartbeats, and has a watchdog.
UNDER_LEASE = frozenset({"claim", "begin", "model", "checkpoint", "intent", "upload", "read_back", "commit", "yield"})
_PLANNED: dict[CellFault, Fault] = {
    CellFault.KILL_BEFORE: Fault.KILL,
    CellFault.KILL_AFTER: Fault.KILL,
    CellFault.ERROR: Fault.ERROR,
    CellFault.HANG: Fault.HANG,
    CellFault.STALL: Fault.STALL,
    CellFault.DUPLICATE_DELIVERY: Fault.STALL,
    CellFault.LEASE_THEFT: Fault.HANG,
    CellFault.CANCELLATION: Fault.STALL,
}
_AFTER = frozenset({CellFault.KILL_AFTER, CellFault.HANG})
# Before a claim there is no lease to lose; before an acceptance there is no job to cancel.
_ONLY_AFTER = frozenset(
    {("claim", CellFault.STALL), ("claim", CellFault.LEASE_THEFT), ("accept", CellFault.CANCELLATION)}
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One boundary under one fault on one ledger.

    `through` is how the work is executed: `services`, called in processes of the matrix, or
    `dagster`, the real sensors and a Dagster run per wave.
    """

    boundary: str
    fault: CellFault
    ledger: str
    through: str = SERVICES

    @property
    def name(self) -> str:
        """Return the cell's name, also the name of its folder."""
        return f"{self.boundary}-{self.fault}-{self.through}"

    @property
    def planned(self) -> Fault:
        """Return what the failure plan does at the point."""
        return _PLANNED[self.fault]

    @property
    def points(self) -> tuple[str, ...]:
        """Return the points at which the fault must have happened; a run is failed once."""
        points = points_of(self.boundary, self.fault)
        return points if self.through == SERVICES else points[:1]


def points_of(boundary: str, fault: CellFault) -> tuple[str, ...]:
    """Return the failure points at which this fault happens."""
    if fault is CellFault.ERROR:
        return (f"{boundary}.before", f"{boundary}.after")
    after = fault in _AFTER or (boundary, fault) in _ONLY_AFTER
    return (f"{boundary}.{'after' if after else 'before'}",)


def why_not(boundary: str, fault: CellFault) -> str:
    """Return the rule by which a fault cannot happen at a boundary, "" where it can."""
    if fault is CellFault.LEASE_THEFT and boundary not in UNDER_LEASE:
        return "no lease is held at this boundary, so none can be stolen"
    if fault is CellFault.STALL and boundary not in UNDER_LEASE:
        return "no heartbeat runs at this boundary, so a stopped process is the fault `hang`"
    if fault is CellFault.CANCELLATION and boundary == "hold":
        return "no job exists at this boundary yet, so there is nothing to cancel"
    return ""


def cells_of(boundaries: Iterable[str], *, ledger: str) -> tuple[Cell, ...]:
    """Return the full cross product of these boundaries and every fault."""
    return tuple(Cell(boundary, fault, ledger) for boundary in boundaries for fault in CellFault)


def all_cells(*, ledger: str) -> tuple[Cell, ...]:
    """Return every cell of the matrix on one ledger."""
    return cells_of(BOUNDARIES, ledger=ledger)


# One wave's run in a process of Dagster's own: a sample of ten cells.
DAGSTER_SAMPLE: tuple[tuple[str, CellFault], ...] = (
    ("claim", CellFault.KILL_BEFORE),
    ("claim", CellFault.KILL_AFTER),
    ("model", CellFault.KILL_BEFORE),
    ("checkpoint", CellFault.ERROR),
    ("intent", CellFault.KILL_AFTER),
    ("upload", CellFault.ERROR),
    ("upload", CellFault.HANG),
    ("read_back", CellFault.STALL),
    ("commit", CellFault.KILL_BEFORE),
    ("commit", CellFault.KILL_AFTER),
)


def dagster_cells(*, ledger: str) -> tuple[Cell, ...]:
    """Return the cells whose work goes through Dagster runs."""
    return tuple(Cell(boundary, fault, ledger, through=DAGSTER) for boundary, fault in DAGSTER_SAMPLE)
