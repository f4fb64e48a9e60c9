"""Failure classes decide what happens next and whether the attempt budget is spent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from receipt_pipeline.core.reasons import Remedy


class FailureClass(StrEnum):
    """What is known about a failed attempt."""

    TRANSIENT = "transient"
    WORKER_LOST = "worker_lost"
    AMBIGUOUS_UPLOAD = "ambiguous_upload"
    VALIDATION = "validation"
    IDENTITY = "identity"
    YIELDED = "yielded"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What one failure class asks for, and whether it spends budget (R108)."""

    remedy: Remedy
    spends_budget: bool


FAILURE_RULES: dict[FailureClass, FailureRule] = {
    FailureClass.TRANSIENT: FailureRule(Remedy.RETRY, spends_budget=True),
    FailureClass.WORKER_LOST: FailureRule(Remedy.RETRY, spends_budget=True),
    FailureClass.AMBIGUOUS_UPLOAD: FailureRule(Remedy.LOOK_UP, spends_budget=True),
    FailureClass.VALIDATION: FailureRule(Remedy.FIX_INPUT, spends_budget=False),
    FailureClass.IDENTITY: FailureRule(Remedy.STAND_DOWN, spends_budget=False),
    FailureClass.YIELDED: FailureRule(Remedy.RETRY, spends_budget=False),
}


def retry_delay_s(*, job_id: str, spent: int, base_s: float, cap_s: float) -> float:
    """Return the pause before the next attempt: doubling, capped, with jitter of up to a quarter.

    The jitter comes from the job id and the count, so that it spreads jobs and replays exactly.
    """
    pause = min(cap_s, base_s * float(2 ** max(0, spent - 1)))
    jitter = hashlib.sha256(f"{job_id}:{spent}".encode()).digest()[0] / 255
    return pause * (1 + 0.25 * jitter)
