"""Progress as bounded evidence: a denominator where there is one, the durable checkpoint, and its age."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.item_classes import ItemClass
from receipt_pipeline.core.reasons import REASONS


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Items whose counter moved without a worker's checkpoint, and why (R119)."""

    item_class: ItemClass
    reason_code: str
    count: int

    def as_document(self) -> dict[str, Any]:
        """Return class, count, and the reason with its meaning."""
        known = REASONS.get(self.reason_code)
        return {
            "class": self.item_class.value,
            "count": self.count,
            "reason": self.reason_code,
            "meaning": known.meaning if known else "",
        }


def item_progress(
    job: Mapping[str, Any],
    counts: Mapping[ItemClass, int],
    adjustments: Iterable[Adjustment],
    *,
    delayed_for_s: float | None,
    read_at: dt.datetime,
) -> dict[str, Any]:
    """Return the progress of an accepted job: its scope is fixed, so the denominator never moves (R116).

    `finished` counts what workers committed at checkpoints; `adjustments` is everything else that has a
    class, so that both together are the sum of the classes. Nothing is promised about the time to come.
    """
    listed = list(adjustments)
    classed = sum(counts.values())
    checkpoint_at = job["checkpoint_at"]
    return {
        "scope": "fixed",
        "denominator": job["items_requested"],
        "checkpoint": job["checkpoint"],
        "finished": classed - sum(entry.count for entry in listed),
        "adjustments": [entry.as_document() for entry in listed],
        "observed_at": read_at.isoformat(),
        "checkpoint_at": checkpoint_at.isoformat() if checkpoint_at else None,
        "checkpoint_age_s": round((read_at - checkpoint_at).total_seconds(), 3) if checkpoint_at else None,
        "delayed": delayed_for_s is not None,
        "delayed_for_s": delayed_for_s,
    }


def discovered_progress(
    *, decided: int, phase: str, total: int | None, read_at: dt.datetime
) -> dict[str, Any]:
    """Return the progress of work whose scope is found on the way: a count and a phase (R117).

    Args:
        total: the number of rows once the whole delivery was read, None while it is not known; then there
            is no denominator, and no share of it is shown.
    """
    shown: dict[str, Any] = {"scope": "discovered" if total is None else "fixed", "phase": phase}
    if total is not None:
        shown["denominator"] = total
    return shown | {"decided": decided, "observed_at": read_at.isoformat()}
