"""Legacy job records: states, classes and what a row must hold."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.reasons import REASONS

# How a job of this product itself is marked where both kinds stand side by side.
OWN_ORIGIN = "here"
OPEN_WORD = "open"

# The words that older systems use, in lower case; None stands for a job that has not ended.
CLASS_OF_WORD: Mapping[str, TerminalClass | None] = (
    {terminal_class.value: terminal_class for terminal_class in TerminalClass}
    | dict.fromkeys(("succeeded", "success", "done", "completed", "finished"), TerminalClass.COMPLETE)
    | dict.fromkeys(("failed", "failure", "error", "dead"), TerminalClass.ATTEMPTS_EXHAUSTED)
    | dict.fromkeys(("timeout", "timed out"), TerminalClass.TIMED_OUT)
    | dict.fromkeys(("cancelled", "aborted"), TerminalClass.CANCELED)
    | dict.fromkeys((OPEN_WORD, "accepted", "queued", "pending", "waiting", "scheduled"))
    | dict.fromkeys(("running", "started", "processing", "in progress", "retrying", "unknown", "lost"))
)


@dataclass(frozen=True, slots=True)
class LegacyJob:
    """One job as an older system tells of it.

    Attributes:
        external_id: what the older system calls it; unique within its origin.
        word: its state in the older system's own word.
        terminal_class: what that word means here, None for a job that has not ended.
        idempotency_key: the key under which the same request was handed in here too, if it was.
        decision: the one decision over all its items (`review` if any item went there), if told.
    """

    external_id: str
    word: str
    terminal_class: TerminalClass | None
    submitted_at: dt.datetime
    ended_at: dt.datetime | None
    items_requested: int
    caller: str
    idempotency_key: str | None
    decision: Decision | None

    def as_row(self) -> dict[str, Any]:
        """Return the facts as columns."""
        return {
            "external_id": self.external_id,
            "state_as_written": self.word,
            "terminal_class": self.terminal_class.value if self.terminal_class else None,
            "submitted_at": self.submitted_at,
            "ended_at": self.ended_at,
            "items_requested": self.items_requested,
            "caller": self.caller,
            "idempotency_key": self.idempotency_key,
            "decision": self.decision.value if self.decision else None,
        }

    @property
    def digest(self) -> str:
        """Return the digest of all facts: equal rows are equal digests, whatever file they came in."""
        facts = self.as_row()
        times = {name: value.isoformat() for name, value in facts.items() if isinstance(value, dt.datetime)}
        return digest_of(facts | times)


def class_of(word: str, given: Mapping[str, TerminalClass | None]) -> TerminalClass | None:
    """Return what a word of the older system means; what the operator has said comes first.

    Raises:
        KeyError: nobody has said what the word means.
    """
    plain = word.strip().lower()
    return given[plain] if plain in given else CLASS_OF_WORD[plain]


def legacy_job_document(row: Mapping[str, Any], question: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an imported job's status: what stands and on whose word, then what is safe, evidence, ids.

    Args:
        row: the imported job's row. question: its investigation's row, None where none was asked.
    """
    reason = REASONS[row["reason_code"]]
    asked = None
    if question is not None:
        asked = {"investigation_id": question["investigation_id"], "state": question["state"]} | {
            name: question[name] for name in ("owner", "deadline_at", "allowed_repair")
        }
    return {
        "contract": "older-job/v1",
        "stands": {
            "terminal_class": row["terminal_class"],
            "reason": {"code": reason.code, "meaning": reason.meaning, "next_step": reason.next_step},
            "items_requested": row["items_requested"],
            "decision_there": row["decision"],
            "verified_here": False,
        },
        "safe_now": {
            "next_step": asked["allowed_repair"] if asked and asked["state"] == "open" else reason.next_step
        },
        "investigation": asked,
        "times": {name: row[name] for name in ("submitted_at", "ended_at", "imported_at")},
        "evidence": {"state_as_written": row["state_as_written"], "row_digest": row["row_digest"]},
        "identity": {
            name: row[name]
            for name in (
                "job_id",
                "tenant",
                "caller",
                "origin",
                "external_id",
                "idempotency_key",
                "imported_by",
            )
        },
    }
