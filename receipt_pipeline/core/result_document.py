"""The result of a job as bytes: canonical JSON lines, so that equal results are equal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.items import ItemClass, ItemOutcome, count_classes, is_balanced
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.reasons import RESULT_MISMATCH

RESULT_CONTRACT = "receipt-result/v1"


@dataclass(frozen=True, slots=True)
class ResultItem:
    """One item's line.

    Attributes:
        ordinal: place of the item in the accepted scope, from 0.
        decision_id: of this job, or of the earlier job whose decision an unchanged item keeps.
        sha256: full digest of the scan that was accepted.
        outcome_digest: None where no outcome was computed (unresolved, expired, cancelled).
        unchanged_from: the earlier job of an unchanged item, else None.
    """

    ordinal: int
    item_id: str
    decision_id: str
    sha256: str
    outcome: ItemOutcome
    outcome_digest: str | None
    unchanged_from: str | None = None

    def as_document(self) -> dict[str, Any]:
        """Return the line as plain JSON."""
        return {
            "ordinal": self.ordinal,
            "item_id": self.item_id,
            "decision_id": self.decision_id,
            "sha256": self.sha256,
            "outcome": self.outcome.as_document(),
            "outcome_digest": self.outcome_digest,
            "unchanged_from": self.unchanged_from,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ResultItem:
        """Read a line back; an outcome that does not hash to its own digest raises ValueError."""
        outcome = ItemOutcome.from_document(document["outcome"])
        digest = document["outcome_digest"]
        if digest is not None and digest != outcome.outcome_digest:
            raise ValueError("an outcome does not hash to its digest")
        return cls(
            ordinal=int(document["ordinal"]),
            item_id=str(document["item_id"]),
            decision_id=str(document["decision_id"]),
            sha256=str(document["sha256"]),
            outcome=outcome,
            outcome_digest=digest,
            unchanged_from=document["unchanged_from"],
        )


@dataclass(frozen=True, slots=True)
class ResultDocument:
    """The whole result: the job, the identities it used, and every item of its scope.

    It holds no attempt, time or processor facts: the same outcomes make the same bytes on every try.
    """

    job_id: str
    pins: Pins
    items: tuple[ResultItem, ...]

    @property
    def counts(self) -> dict[ItemClass, int]:
        """Return the number of items per class."""
        return count_classes(item.outcome.item_class for item in self.items)

    def header(self) -> dict[str, Any]:
        """Return the first line as plain JSON."""
        return {
            "contract": RESULT_CONTRACT,
            "job_id": self.job_id,
            "pins": self.pins.as_document(),
            "requested": len(self.items),
            "items": {name.value: count for name, count in self.counts.items()},
        }

    def encode(self) -> bytes:
        """Return the bytes that are stored: the header, then one line per item in order."""
        ordered = sorted(self.items, key=lambda item: item.ordinal)
        lines = [self.header(), *(item.as_document() for item in ordered)]
        return b"".join(canonical_json(line) + b"\n" for line in lines)

    @property
    def digest(self) -> str:
        """Return the digest of the stored bytes."""
        return digest_of_bytes(self.encode())


def parse_result(data: bytes) -> ResultDocument:
    """Read a result back from its bytes and check that they are whole and in balance.

    Raises:
        ObjectFault: RESULT.MISMATCH.v1 when the bytes are no such document.
    """
    try:
        header, *lines = _lines(data)
        if header["contract"] != RESULT_CONTRACT:
            raise ValueError("unknown contract")
        document = ResultDocument(
            job_id=str(header["job_id"]),
            pins=Pins.from_document(header["pins"]),
            items=tuple(ResultItem.from_document(line) for line in lines),
        )
        if not is_balanced(requested=int(header["requested"]), counts=document.counts):
            raise ValueError("the items do not sum to the scope")
        if document.encode() != data:
            raise ValueError("the bytes are not in canonical form")
    except (ValueError, KeyError, TypeError) as error:
        raise ObjectFault(RESULT_MISMATCH, detail=f"not a {RESULT_CONTRACT} document") from error
    return document


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("a line is no object")
        yield value
