"""What a worker needs."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from receipt_pipeline.core.items import ItemContext, ItemOutcome
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.objects.store import ObjectStore


class Classifier(Protocol):
    """A loaded chain, as far as a worker knows it."""

    def classify(
        self, data: bytes, *, duplicate_bytes: bool, on_page: Callable[[], None], context: ItemContext
    ) -> ItemOutcome:
        """Return what the pinned chain says of one scan; raises StageFailed or IdentityMismatch."""


def end_own_process() -> None:
    """End this process at once, as the watchdog does: nothing is tidied up, the lease runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def never_stop() -> bool:
    """Say that nobody asked this worker to stop."""
    return False


# Is handed a heartbeat's beat, lets it beat from then on, and returns what ends that.
StartHeartbeat = Callable[[Callable[[], None]], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Worker:
    """AppContext, limits and identity of one worker.

    Attributes:
        chains: returns the loaded chain of a job's pins; raises IdentityMismatch.
        owner: names this worker in leases; `run_id` is the Dagster run it works in.
        monotonic: seconds that never go back, for slices, beats and the watchdog.
        stop_asked: whether the worker should yield at its next item boundary.
        end_process: what the watchdog does when no progress was made for too long.
        start_heartbeat: what makes heartbeats beat; None for a thread of their own.
    """

    ledger: Ledger
    objects: ObjectStore
    chains: Callable[[Pins], Classifier]
    limits: Limits
    owner: str
    run_id: str = ""
    monotonic: Callable[[], float] = time.monotonic
    stop_asked: Callable[[], bool] = never_stop
    end_process: Callable[[], None] = end_own_process
    start_heartbeat: StartHeartbeat | None = None


class Outcome(StrEnum):
    """What became of one job in one group; the ledger holds the truth about the job itself."""

    CLOSED = "closed"
    YIELDED = "yielded"
    FAILED = "attempt_failed"
    QUARANTINED = "quarantined"
    STOOD_DOWN = "stood_down"
    REFUSED = "claim_refused"
    NOT_CARRIED = "not_carried"
    LEFT = "left"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job's line in the report of its group.

    Attributes:
        outcome: what this worker did; `state`, `terminal_class`, `phase`, `reason` are the ledger's after it.
        items_done: items that this attempt finished, of `items_requested`.
        seconds: how long this worker had the job.
    """

    job_id: str
    outcome: str
    state: str
    phase: str
    terminal_class: str | None
    reason: str
    items_done: int
    items_requested: int
    seconds: float

    def as_document(self) -> dict[str, Any]:
        """Return the line as plain JSON."""
        return dataclasses.asdict(self)
