"""Item classes and outcomes, the balance rule, and which items a retry may touch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.reasons import INPUT_CHANGED, INPUT_GONE


class ItemClass(StrEnum):
    """The final class of an accepted item."""

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


def is_balanced(*, requested: int, counts: Mapping[ItemClass, int]) -> bool:
    """Return whether the classes of a closed job add up to its accepted items."""
    return requested == sum(counts.values())


class Decision(StrEnum):
    """What the policy says about one classified item."""

    CLEAR = "clear"
    REVIEW = "review"


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """What the chain says of one scan.

    Attributes:
        item_class: `classified` or `rejected` from the chain; other classes come from the ledger.
        decision: present on classified items only.
        risk_ppm: probability of tampering in parts per million, 0..1_000_000; None when rejected.
        fields: extracted fields as plain JSON; money in integer minor units.
        reasons: reason codes of the decision, strongest first.
        reason_code: why the item was rejected, else "".
        evidence: plain JSON that explains the outcome (pages, contributions); part of the result.
    """

    item_class: ItemClass
    decision: Decision | None = None
    risk_ppm: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    reason_code: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """Return the outcome as plain JSON, without job, item or decision id."""
        return {
            "class": self.item_class.value,
            "decision": self.decision.value if self.decision else None,
            "risk_ppm": self.risk_ppm,
            "fields": dict(self.fields),
            "reasons": list(self.reasons),
            "reason_code": self.reason_code,
            "evidence": dict(self.evidence),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ItemOutcome:
        """Read an outcome back from the JSON that `as_document` wrote."""
        decision = document["decision"]
        return cls(
            item_class=ItemClass(document["class"]),
            decision=Decision(decision) if decision else None,
            risk_ppm=document["risk_ppm"],
            fields=dict(document["fields"]),
            reasons=tuple(document["reasons"]),
            reason_code=document["reason_code"],
            evidence=dict(document["evidence"]),
        )

    @property
    def outcome_digest(self) -> str:
        """Return the digest by which outcomes of two jobs or attempts are compared."""
        return digest_of(self.as_document())

    def altered_for_drill(self) -> ItemOutcome:
        """Return this outcome with the opposite decision, as a drill's changed output."""
        opposite = Decision.REVIEW if self.decision is Decision.CLEAR else Decision.CLEAR
        return replace(self, decision=opposite)


@dataclass(frozen=True, slots=True)
class EarlierItem:
    """An item of the same job and a lower ordinal, its outcome committed; fields and print as plain JSON."""

    item_id: str
    fields: Mapping[str, Any]
    scan_print: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ItemContext:
    """The circumstances of one item, all of them frozen when it is evaluated.

    Attributes:
        accepted_at: when the job was accepted, by the ledger; None for a scan without a job.
        earlier: the items before it in the accepted order that left a print, in that order.
    """

    accepted_at: dt.datetime | None = None
    earlier: tuple[EarlierItem, ...] = ()


NO_CONTEXT = ItemContext()


# Rejections that say nothing about the scan itself: its stored copy was not there as it was accepted.
INFRASTRUCTURE_REJECTIONS = frozenset({INPUT_GONE.code, INPUT_CHANGED.code})


def can_retry(item_class: ItemClass | None, reason_code: str, *, result_unpublished: bool) -> bool:
    """Return whether a retry may process an item of a closed job, by its class and reason code.

    Unresolved and expired items may be retried; so may rejections for the store's sake, and the finished
    items of a job whose result certainly could not be published.
    """
    if item_class is ItemClass.REJECTED:
        return reason_code in INFRASTRUCTURE_REJECTIONS
    return item_class in (ItemClass.UNRESOLVED, ItemClass.EXPIRED) or (
        result_unpublished and item_class in KEPT_CLASSES
    )
