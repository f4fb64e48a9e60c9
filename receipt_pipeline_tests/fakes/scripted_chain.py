"""A chain that answers from a script and counts how often it was asked, across killed processes too."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.items import Decision, ItemClass, ItemContext, ItemOutcome

Answer = ItemOutcome | Exception | Callable[[], ItemOutcome]


def scripted_outcome(data: bytes, *, decision: Decision = Decision.CLEAR) -> ItemOutcome:
    """Return the outcome that a scan gets without a script: its total comes from its bytes."""
    minor = int(digest_of_bytes(data)[7:13], 16)
    return ItemOutcome(
        item_class=ItemClass.CLASSIFIED,
        decision=decision,
        risk_ppm=minor % 1_000_000,
        fields={"total": {"minor": minor, "currency": "EUR", "printed": "as scripted"}},
        evidence={"pages": 1, "confidence_mean": 0.5},
    )


@dataclass(slots=True)
class ScriptedChain:
    """Answers by the scan's bytes; an exception is raised, a callable is called, the rest is derived.

    Attributes:
        tally: a file that gets one line per invocation before the answer, so that it survives SIGKILL.
        on_classify: called with the scan's bytes before the answer.
    """

    answers: Mapping[bytes, Answer] = field(default_factory=dict)
    tally: Path | None = None
    on_classify: Callable[[bytes], None] = lambda data: None
    asked: list[bytes] = field(default_factory=list)
    duplicates: dict[bytes, bool] = field(default_factory=dict)
    circumstances: dict[bytes, ItemContext] = field(default_factory=dict)

    def classify(
        self, data: bytes, *, duplicate_bytes: bool, on_page: Callable[[], None], context: ItemContext
    ) -> ItemOutcome:
        self.asked.append(data)
        self.duplicates[data] = duplicate_bytes
        self.circumstances[data] = context
        if self.tally is not None:
            with self.tally.open("ab") as file:
                file.write(base64.b64encode(data) + b"\n")
        self.on_classify(data)
        answer = self.answers.get(data)
        if isinstance(answer, Exception):
            raise answer
        outcome = answer() if callable(answer) else answer or scripted_outcome(data)
        on_page()
        return outcome


def invocations_in(tally: Path) -> Counter[bytes]:
    """Return how often each scan was classified, by every process that wrote to the tally."""
    lines = tally.read_bytes().splitlines() if tally.exists() else []
    return Counter(base64.b64decode(line) for line in lines)
