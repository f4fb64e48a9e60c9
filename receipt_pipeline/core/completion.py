"""The completion contract: what each terminal class requires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.effects import EffectDemand, EffectKind
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState, TerminalClass


@dataclass(frozen=True, slots=True)
class FollowingEffect:
    """An effect that follows a terminal record and never gates it.

    Attributes:
        demand_from: the field of the request, and the column of the job, that says how much it matters.
        after: the terminal states that it follows.
    """

    kind: EffectKind
    demand_from: str
    after: frozenset[JobState]


@dataclass(frozen=True, slots=True)
class CompletionContract:
    """What closes one class of operation.

    Attributes:
        required: effects without which no job of the class succeeds.
        following: effects that the request demands as required, best effort, or not at all.
        balanced: item classes that must add up to the accepted items.
        evidence: per terminal class what must be known before it is written.
    """

    name: str
    operation_class: str
    promise: str
    required: tuple[EffectKind, ...]
    following: tuple[FollowingEffect, ...]
    balanced: tuple[ItemClass, ...]
    evidence: Mapping[TerminalClass, str]

    def effects_after(self, state: JobState, demands: Mapping[str, Any]) -> list[tuple[EffectKind, bool]]:
        """Return the effects that follow a terminal record and whether each is required.

        Args:
            demands: the job's row, or anything else that holds the fields of `demand_from`.
        """
        return [
            (effect.kind, demands[effect.demand_from] == EffectDemand.REQUIRED)
            for effect in self.following
            if state in effect.after and demands[effect.demand_from] != EffectDemand.NONE
        ]

    def as_promised(self, demands: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the requester of one job was promised, as plain JSON."""
        wanted = {effect.kind: EffectDemand(demands[effect.demand_from]) for effect in self.following}
        return {
            "contract": self.name,
            "promise": self.promise,
            "required": [kind.value for kind in self.required]
            + [kind.value for kind, demand in wanted.items() if demand is EffectDemand.REQUIRED],
            "best_effort": [kind.value for kind, demand in wanted.items() if demand is EffectDemand.BEST_EFFORT],
        }


RECEIPT_CLASSIFICATION = CompletionContract(
    name="receipt-classification/v1",
    operation_class="receipt-classification",
    promise="every accepted scan has one class, and all decisions are in one verified object",
    required=(EffectKind.RESULT_OBJECT,),
    following=(
        FollowingEffect(EffectKind.REVIEW_TASKS, "review_tasks", frozenset({JobState.SUCCEEDED})),
        FollowingEffect(EffectKind.NOTIFICATION, "notification", TERMINAL_STATES),
    ),
    balanced=tuple(ItemClass),
    evidence={
        TerminalClass.COMPLETE: "the result object was read back, size and digest equal the ledger's, and"
        " every item is classified or unchanged",
        TerminalClass.PARTIAL: "the result object was read back in the same way; items that are not in it are"
        " listed as rejected, expired or unresolved",
        TerminalClass.REJECTED: "every item was rejected, each with its reason; there is no object",
        TerminalClass.DEPENDENCY_FAILED: "the result is certainly not stored, and all attempts are used",
        TerminalClass.IDENTITY_FAILED: "a file of the pinned release is certainly missing or altered,"
        " or a person withdrew divergent outputs",
        TerminalClass.ATTEMPTS_EXHAUSTED: "all attempts are used, nothing was kept, and each unresolved item"
        " has an investigation with an owner",
        TerminalClass.TIMED_OUT: "the cutoff or the processing timeout passed, and nothing was kept",
        TerminalClass.EXPIRED: "the queue deadline passed before the first claim; no model was invoked",
        TerminalClass.CANCELED: "no later claim can succeed; finished items stay counted",
        TerminalClass.SUPERSEDED: "the replacing job is accepted, and both records name each other",
    },
)

COMPLETION_CONTRACTS: Mapping[str, CompletionContract] = {
    contract.operation_class: contract for contract in (RECEIPT_CLASSIFICATION,)
}
