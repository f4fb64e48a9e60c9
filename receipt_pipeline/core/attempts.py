"""Fencing tokens, attempt outcomes, failure rules and retry delays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from receipt_pipeline.core.reasons import Remedy


@dataclass(frozen=True, slots=True)
class FencingToken:
    """The job and the lease epoch under which its holder may write."""

    job_id: str
    lease_epoch: int


class AttemptOutcome(StrEnum):
    """What became of one attempt; its row is closed with it once."""

    COMMITTED = "committed"
    FAILED = "failed"
    LOST = "lost"
    YIELDED = "yielded"
    HELD = "held"
    OVERRUN = "overrun"
    QUARANTINED = "quarantined"
    REQUEUED = "requeued"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"


class FailureClass(StrEnum):
    """What is known about a failed attempt."""

    TRANSIENT = "transient"
    WORKER_LOST = "worker_lost"
    AMBIGUOUS_UPLOAD = "ambiguous_upload"
    VALIDATION = "validation"
    IDENTITY = "identity"
    DIVERGENT = "divergent"
    YIELDED = "yielded"


class Answer(StrEnum):
    """What happens automatically after a failed attempt."""

    REPEAT = "repeat"
    LOOK_UP = "look_up"
    STOP = "stop"
    REVIEW = "review"


class AtBound(StrEnum):
    """What follows when all attempts are used."""

    CLOSE = "close_on_what_was_kept"
    HOLD = "hold_with_an_owned_investigation"
    NONE = "no_bound"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What one failure class asks for, and whether it spends budget.

    Attributes:
        known: what is known when this class is given.
        spends_budget: of the begun item where there is one, of the job otherwise.
    """

    answer: Answer
    remedy: Remedy
    spends_budget: bool
    at_bound: AtBound
    known: str


FAILURE_RULES: dict[FailureClass, FailureRule] = {
    FailureClass.TRANSIENT: FailureRule(
        Answer.REPEAT,
        Remedy.RETRY,
        spends_budget=True,
        at_bound=AtBound.CLOSE,
        known="a dependency failed before anything was committed, such as a refused upload",
    ),
    FailureClass.WORKER_LOST: FailureRule(
        Answer.REPEAT,
        Remedy.RETRY,
        spends_budget=True,
        at_bound=AtBound.CLOSE,
        known="the worker was killed, hung or broke; its last checkpoint is kept",
    ),
    FailureClass.AMBIGUOUS_UPLOAD: FailureRule(
        Answer.LOOK_UP,
        Remedy.LOOK_UP,
        spends_budget=True,
        at_bound=AtBound.HOLD,
        known="it is not known whether an upload happened, and the store does not answer",
    ),
    FailureClass.VALIDATION: FailureRule(
        Answer.STOP,
        Remedy.FIX_INPUT,
        spends_budget=False,
        at_bound=AtBound.NONE,
        known="the scan itself cannot be processed; its item is rejected and the others continue",
    ),
    FailureClass.IDENTITY: FailureRule(
        Answer.STOP,
        Remedy.STAND_DOWN,
        spends_budget=False,
        at_bound=AtBound.NONE,
        known="the pinned release is missing, altered or retired; the job closes as identity_failed",
    ),
    FailureClass.DIVERGENT: FailureRule(
        Answer.REVIEW,
        Remedy.REVIEW,
        spends_budget=False,
        at_bound=AtBound.NONE,
        known="two different outputs exist for one decision; the job is quarantined and a person decides",
    ),
    FailureClass.YIELDED: FailureRule(
        Answer.REPEAT,
        Remedy.RETRY,
        spends_budget=False,
        at_bound=AtBound.NONE,
        known="no failure: the worker released the job between two items",
    ),
}


def retry_delay_s(*, job_id: str, spent: int, base_s: float, cap_s: float) -> float:
    """Return the pause before the next attempt: doubling, capped, with jitter of up to a quarter.

    The jitter comes from the job id and the count, so that it spreads jobs and replays exactly.
    """
    pause = min(cap_s, base_s * float(2 ** max(0, spent - 1)))
    jitter = hashlib.sha256(f"{job_id}:{spent}".encode()).digest()[0] / 255
    return pause * (1 + 0.25 * jitter)
