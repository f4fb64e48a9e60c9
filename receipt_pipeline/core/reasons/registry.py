"""What a reason is, and the register of all reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Remedy(StrEnum):
    """What a caller may do about a reason."""

    RETRY = "retry"
    LOOK_UP = "look_up"
    FIX_INPUT = "fix_input"
    STAND_DOWN = "stand_down"
    REVIEW = "review"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Reason:
    """A stable code, what callers may do, what happened, and what to do next; both texts are sentences."""

    code: str
    remedy: Remedy
    meaning: str
    next_step: str


REASONS: dict[str, Reason] = {}


def declare(code: str, remedy: Remedy, meaning: str, next_step: str) -> Reason:
    """Register a reason once and return it."""
    assert code not in REASONS, code
    REASONS[code] = Reason(code, remedy, meaning, next_step)
    return REASONS[code]
