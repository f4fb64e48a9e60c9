"""How far this product has taken over from an older one: whose decisions leave, whose are compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RolloutStage(StrEnum):
    """The stages, in order; going back a stage changes nothing that was accepted before."""

    SHADOW = "shadow"
    COHORT = "cohort"
    TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class Rollout:
    """The stage of this installation.

    Attributes:
        cohort: callers who are served in the stage `cohort`; the others' jobs are shadows.
    """

    stage: RolloutStage = RolloutStage.TRUTH
    cohort: frozenset[str] = frozenset()

    def is_shadow(self, caller: str) -> bool:
        """Tell whether a caller's job is worked, recorded and compared, and nothing of it leaves."""
        if self.stage is RolloutStage.COHORT:
            return caller not in self.cohort
        return self.stage is RolloutStage.SHADOW


SERVES_ALL = Rollout()
