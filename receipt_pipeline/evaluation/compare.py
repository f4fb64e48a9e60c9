"""Paired bootstrap of two releases."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.evaluation.risk import roc_auc
from receipt_pipeline.evaluation.scans import DECIDING_FIELDS

RESAMPLES = 400
SEED = 1
# Six measures are compared together: each at 1 % two-sided keeps the chance of a false alarm to 3 %.
TAIL = 0.005

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure of both releases, and the interval of candidate minus approved; higher is better."""

    name: str
    candidate: float
    approved: float
    low: float
    high: float

    @property
    def worse(self) -> bool:
        """Check whether even the upper end of the difference is below zero."""
        return self.high < 0

    def as_document(self) -> dict[str, Any]:
        """Return the measure as plain JSON."""
        return {
            "measure": self.name,
            "candidate": round(self.candidate, 4),
            "standing": round(self.approved, 4),
            "difference_low": round(self.low, 4),
            "difference_high": round(self.high, 4),
            "worse": self.worse,
        }


def compare_evaluations(
    candidate: Mapping[str, Any], approved: Mapping[str, Any], *, resamples: int = RESAMPLES
) -> tuple[Measured, ...] | None:
    """Compare two evaluation documents scan by scan; None where they are not of one labeled set.

    The same scans are drawn for both in every resample, within forged and within genuine, so that only
    the difference between the releases remains.
    """
    if candidate["set_digest"] != approved["set_digest"]:
        return None
    ours = {item["scan_id"]: item for item in candidate["items"]}
    theirs = {item["scan_id"]: item for item in approved["items"]}
    forged = sorted(scan for scan, item in ours.items() if item["forged"])
    genuine = sorted(scan for scan, item in ours.items() if not item["forged"])
    rng = random.Random(SEED)
    drawn = [rng.choices(forged, k=len(forged)) + rng.choices(genuine, k=len(genuine)) for _ in range(resamples)]
    return tuple(
        _measured(name, measure, ours, theirs, everything=forged + genuine, drawn=drawn)
        for name, measure in MEASURES.items()
        if name != "risk_auc" or (forged and genuine)
    )


def _measured(
    name: str,
    measure: Callable[[Sequence[Item]], float],
    ours: Mapping[str, Item],
    theirs: Mapping[str, Item],
    *,
    everything: Sequence[str],
    drawn: Sequence[Sequence[str]],
) -> Measured:
    gaps = sorted(
        measure([ours[scan] for scan in scans]) - measure([theirs[scan] for scan in scans]) for scans in drawn
    )
    cut = int(TAIL * len(gaps))
    return Measured(
        name,
        measure([ours[scan] for scan in everything]),
        measure([theirs[scan] for scan in everything]),
        gaps[cut],
        gaps[-1 - cut],
    )


def _micro_f1(items: Sequence[Item], kind: str) -> float:
    values = [value for item in items for value in item["fields"].values() if value is not None]
    right = sum(bool(value[kind]) for value in values)
    predicted = sum(bool(value["read"]) for value in values)
    return 2 * right / max(1, predicted + len(values))


def _risk_auc(items: Sequence[Item]) -> float:
    return roc_auc(
        [item["suspicion"] for item in items if item["forged"]],
        [item["suspicion"] for item in items if not item["forged"]],
    )


def _cleared_share(items: Sequence[Item]) -> float:
    genuine = [item for item in items if not item["forged"]]
    return sum(bool(item["decision"] == "clear") for item in genuine) / max(1, len(genuine))


def _cleared_right_share(items: Sequence[Item]) -> float:
    return 1.0 - _share_of_cleared(items, _misread)


def _cleared_genuine_share(items: Sequence[Item]) -> float:
    return 1.0 - _share_of_cleared(items, lambda item: bool(item["forged"]))


def _share_of_cleared(items: Sequence[Item], counted: Callable[[Item], bool]) -> float:
    cleared = [item for item in items if item["decision"] == "clear"]
    return sum(counted(item) for item in cleared) / max(1, len(cleared))


def _misread(item: Item) -> bool:
    values = [item["fields"][field] for field in DECIDING_FIELDS]
    return any(value is not None and not value["normalised"] for value in values)


MEASURES: Mapping[str, Callable[[Sequence[Item]], float]] = {
    "strict_micro_f1": lambda items: _micro_f1(items, "strict"),
    "normalised_micro_f1": lambda items: _micro_f1(items, "normalised"),
    "risk_auc": _risk_auc,
    "cleared_share": _cleared_share,
    "cleared_right_share": _cleared_right_share,
    "cleared_genuine_share": _cleared_genuine_share,
}
