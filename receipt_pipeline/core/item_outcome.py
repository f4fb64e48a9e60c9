"""The outcome of one item, and its digest without job and decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.item_classes import ItemClass


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
