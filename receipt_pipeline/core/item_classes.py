"""Item classes and the balance that every closed job must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class ItemClass(StrEnum):
    """What became of one item of the accepted scope (D1)."""

    CLASSIFIED = "classified"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    UNRESOLVED = "unresolved"


KEPT_CLASSES = frozenset({ItemClass.CLASSIFIED, ItemClass.UNCHANGED})


def count_classes(classes: Iterable[ItemClass | None]) -> dict[ItemClass, int]:
    """Count items per class; items without a class yet are left out."""
    counts = dict.fromkeys(ItemClass, 0)
    for item_class in classes:
        if item_class is not None:
            counts[item_class] += 1
    return counts


def balances(*, requested: int, counts: Mapping[ItemClass, int]) -> bool:
    """Tell whether the classes of a closed job sum to its accepted denominator (R120)."""
    return requested == sum(counts.values())
