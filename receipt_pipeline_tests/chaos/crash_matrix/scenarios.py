"""One scenario per boundary: the steps before it, the step that passes it, what is repeated after a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# On the real clock and short: a lost lease costs a cell two seconds.
MATRIX_LIMITS: Mapping[str, str] = MappingProxyType(
    {
        "RECEIPTS_LIMIT_LEASE_TTL_S": "2",
        "RECEIPTS_LIMIT_HEARTBEAT_S": "0.4",
        "RECEIPTS_LIMIT_ITEM_TIMEOUT_S": "60",
        "RECEIPTS_LIMIT_RETRY_BASE_S": "0.1",
        "RECEIPTS_LIMIT_RETRY_CAP_S": "0.3",
        "RECEIPTS_LIMIT_WAVE_TTL_S": "2",
        "RECEIPTS_LIMIT_WAVE_START_S": "2",
        "RECEIPTS_LIMIT_DELIVERY_RETRY_S": "0.1",
        "RECEIPTS_LIMIT_OVERRUN_GRACE_S": "1",
        "RECEIPTS_LIMIT_ORPHAN_GRACE_S": "0",
        "RECEIPTS_LIMIT_WORKER_TTL_S": "600",
    }
)
# Where the watchdog is to act; elsewhere a slow machine must not trigger it.
WATCHED_LIMITS: Mapping[str, str] = MappingProxyType({"RECEIPTS_LIMIT_ITEM_TIMEOUT_S": "2"})
# Long enough to use up a slice within one item, so that the worker yields after it.
SLOW_PAGE_S = 0.35


@dataclass(frozen=True, slots=True)
class Preparation:
    """One step before the fault, in a process of its own; with `killed_at` it is killed at that point."""

    step: str
    killed_at: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How a cell gets to its boundary.

    Attributes:
        faulted_step: the step whose process passes the boundary.
        prepared: the steps before it, in order.
        duplicate_step: what a duplicate delivery runs in the second process.
        repeated_step: what its caller repeats after the fault, "" where the passes do it by themselves.
        items: how many scans the cell's job has.
        job_limits: the manifest's own limits.
        limits: further `RECEIPTS_LIMIT_…` of the instance.
        page_s: how long the scripted reader takes for a page.
        is_exclusive: whether the step takes a lock, so that a hung process must be ended first.
    """

    faulted_step: str
    prepared: tuple[Preparation, ...] = ()
    duplicate_step: str = ""
    repeated_step: str = ""
    items: int = 2
    job_limits: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    page_s: float = 0.0
    is_exclusive: bool = False


_SUBMITTED = (Preparation("submit"),)
_FINISHED = (Preparation("submit"), Preparation("passes"))
_WORKING = Scenario("passes", prepared=_SUBMITTED, duplicate_step="same_waves")
_SENDING = Scenario("passes", prepared=_SUBMITTED, duplicate_step="effects")

SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "accept": Scenario("submit", duplicate_step="submit", repeated_step="submit"),
        "hold": Scenario("submit", duplicate_step="submit", repeated_step="submit"),
        "reserve": Scenario("passes", prepared=_SUBMITTED, duplicate_step="passes"),
        "claim": _WORKING,
        "begin": _WORKING,
        "model": _WORKING,
        "checkpoint": _WORKING,
        "intent": _WORKING,
        "upload": _WORKING,
        "read_back": _WORKING,
        "commit": _WORKING,
        "yield": Scenario(
            "passes",
            prepared=_SUBMITTED,
            duplicate_step="same_waves",
            items=4,
            limits={"RECEIPTS_LIMIT_WAVE_SLICE_S": "0.3"},
            page_s=SLOW_PAGE_S,
        ),
        "takeover": Scenario(
            "reconcile",
            prepared=(*_SUBMITTED, Preparation("passes", killed_at="model.before"), Preparation("await_lease_end")),
            duplicate_step="reconcile",
        ),
        "expire": Scenario(
            "reconcile",
            prepared=(*_SUBMITTED, Preparation("await_queue_deadline")),
            duplicate_step="reconcile",
            job_limits={"max_queue_age_s": 1},
        ),
        "cancel": Scenario("cancel", prepared=_SUBMITTED, duplicate_step="cancel", repeated_step="cancel"),
        "supersede": Scenario("supersede", prepared=_SUBMITTED, duplicate_step="supersede", repeated_step="supersede"),
        # The job's worker was killed and its lease is still valid: a requeue does not wait for its end.
        "requeue": Scenario(
            "requeue",
            prepared=(*_SUBMITTED, Preparation("passes", killed_at="model.before")),
            duplicate_step="requeue",
            repeated_step="requeue",
        ),
        "outbox_send": _SENDING,
        "delivery_record": _SENDING,
        "consume": _SENDING,
        "quarantine": Scenario(
            "reconcile",
            prepared=(*_FINISHED, Preparation("write_late")),
            duplicate_step="reconcile",
            repeated_step="reconcile",
        ),
        "investigate": Scenario(
            "reconcile",
            prepared=(*_FINISHED, Preparation("lose_object")),
            duplicate_step="reconcile",
            repeated_step="reconcile",
        ),
        "retention": Scenario(
            "purge",
            prepared=(*_FINISHED, Preparation("await_retention")),
            duplicate_step="purge",
            repeated_step="purge",
            job_limits={"result_retention_s": 1},
        ),
        "publish_report": Scenario(
            "publish", prepared=_FINISHED, duplicate_step="publish", repeated_step="publish", is_exclusive=True
        ),
    }
)
