"""The durable boundaries by name, and the seam at which drills and tests act.

In production `point` and `altered` do nothing. A drill installs a plan once, at process start.
"""

from __future__ import annotations

from typing import Any, Protocol

BOUNDARIES: tuple[str, ...] = (
    "accept",
    "hold",
    "reserve",
    "claim",
    "begin",
    "model",
    "checkpoint",
    "intent",
    "upload",
    "read_back",
    "commit",
    "yield",
    "takeover",
    "expire",
    "cancel",
    "supersede",
    "requeue",
    "outbox_send",
    "delivery_record",
    "consume",
    "quarantine",
    "investigate",
    "retention",
    "publish_report",
)
POINTS: frozenset[str] = frozenset(f"{name}.{side}" for name in BOUNDARIES for side in ("before", "after"))
ALTERATIONS: frozenset[str] = frozenset({"model.change_output", "outbox_send.drop"})


class FailurePlan(Protocol):
    """What a drill wants to happen at the named points."""

    def reached(self, point_name: str) -> None:
        """Act at a point: return, raise, hang or end the process."""

    def altered(self, alteration: str, value: Any) -> Any:
        """Return the value, changed where the plan says so."""


_installed: list[FailurePlan] = []


def install_plan(plan: FailurePlan) -> None:
    """Install the one plan of this process; a later one replaces it."""
    _installed[:] = [plan]


def remove_plan() -> None:
    """Return to production behavior."""
    _installed.clear()


def point(point_name: str) -> None:
    """Mark a durable boundary, `<boundary>.before` or `<boundary>.after`."""
    assert point_name in POINTS, point_name
    if _installed:
        _installed[0].reached(point_name)


def altered(alteration: str, value: Any) -> Any:
    """Pass a value through the installed plan; unchanged in production."""
    assert alteration in ALTERATIONS, alteration
    return _installed[0].altered(alteration, value) if _installed else value
