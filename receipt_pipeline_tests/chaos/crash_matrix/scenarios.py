"""Which story reaches which boundary: what is arranged, which step passes it, what is repeated afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# On the real clock, and short: a lost lease costs a cell two seconds.
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
# Where the watchdog is to act; elsewhere a slow machine must not wake it.
WATCHED_LIMITS: Mapping[str, str] = MappingProxyType({"RECEIPTS_LIMIT_ITEM_TIMEOUT_S": "2"})
# Long enough to use up a slice within one item, so that the worker yields after it.
SLOW_PAGE_S = 0.35


@dataclass(frozen=True, slots=True)
class Arranged:
    """One step before the fault, in a process of its own; with `dies_at` it is killed at that point."""

    step: str
    dies_at: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """How a cell gets to its boundary.

    Attributes:
        under_fault: the step whose process passes the boundary.
        arranged: the steps before it, in order.
        twice: what a duplicate delivery runs in the second process.
        again: what its caller repeats after the fault, "" where the rounds do it by themselves.
        items: how many scans the cell's job has.
        job_limits: the manifest's own limits.
        limits: further `RECEIPTS_LIMIT_…` of the home.
        page_s: how long the scripted reader takes for a page.
        alone: whether the step keeps others out by a lock, so that a hung process must be ended first.
    """

    under_fault: str
    arranged: tuple[Arranged, ...] = ()
    twice: str = ""
    again: str = ""
    items: int = 2
    job_limits: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    page_s: float = 0.0
    alone: bool = False


_SUBMITTED = (Arranged("submit"),)
_SETTLED = (Arranged("submit"), Arranged("rounds"))
_WORKING = Story("rounds", arranged=_SUBMITTED, twice="same_waves")
_SENDING = Story("rounds", arranged=_SUBMITTED, twice="effects")

STORIES: Mapping[str, Story] = MappingProxyType(
    {
        "accept": Story("submit", twice="submit", again="submit"),
        "hold": Story("submit", twice="submit", again="submit"),
        "reserve": Story("rounds", arranged=_SUBMITTED, twice="rounds"),
        "claim": _WORKING,
        "begin": _WORKING,
        "model": _WORKING,
        "checkpoint": _WORKING,
        "intent": _WORKING,
        "upload": _WORKING,
        "read_back": _WORKING,
        "commit": _WORKING,
        "yield": Story(
            "rounds",
            arranged=_SUBMITTED,
            twice="same_waves",
            items=4,
            limits={"RECEIPTS_LIMIT_WAVE_SLICE_S": "0.3"},
            page_s=SLOW_PAGE_S,
        ),
        "takeover": Story(
            "reconcile",
            arranged=(*_SUBMITTED, Arranged("rounds", dies_at="model.before"), Arranged("await_lease_end")),
            twice="reconcile",
        ),
        "expire": Story(
            "reconcile",
            arranged=(*_SUBMITTED, Arranged("await_queue_deadline")),
            twice="reconcile",
            job_limits={"max_queue_age_s": 1},
        ),
        "cancel": Story("cancel", arranged=_SUBMITTED, twice="cancel", again="cancel"),
        "supersede": Story("supersede", arranged=_SUBMITTED, twice="supersede", again="supersede"),
        # Its worker was killed and its lease still runs: who would wait for it is spared that.
        "requeue": Story(
            "requeue",
            arranged=(*_SUBMITTED, Arranged("rounds", dies_at="model.before")),
            twice="requeue",
            again="requeue",
        ),
        "outbox_send": _SENDING,
        "delivery_record": _SENDING,
        "consume": _SENDING,
        "quarantine": Story(
            "reconcile", arranged=(*_SETTLED, Arranged("write_late")), twice="reconcile", again="reconcile"
        ),
        "investigate": Story(
            "reconcile", arranged=(*_SETTLED, Arranged("lose_object")), twice="reconcile", again="reconcile"
        ),
        "retention": Story(
            "purge",
            arranged=(*_SETTLED, Arranged("await_retention")),
            twice="purge",
            again="purge",
            job_limits={"result_retention_s": 1},
        ),
        "publish_report": Story("publish", arranged=_SETTLED, twice="publish", again="publish", alone=True),
    }
)
