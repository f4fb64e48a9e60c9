"""Job states, phases and the transition table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass


class JobState(StrEnum):
    """The six states of a job."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELED = "canceled"


TERMINAL_STATES = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.EXPIRED, JobState.CANCELED})


class TerminalClass(StrEnum):
    """The versioned class of a terminal state."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    REJECTED = "rejected"
    DEPENDENCY_FAILED = "dependency_failed"
    IDENTITY_FAILED = "identity_failed"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"


class Phase(StrEnum):
    """The stored phase of an open job; see `DerivedPhase` for what time adds."""

    QUEUED = "queued"
    NO_CAPABLE_WORKER = "no_capable_worker"
    WORKING = "working"
    RETRY_WAIT = "retry_wait"
    PUBLISHING = "publishing"
    CLOSING = "closing"
    RECONCILING = "reconciling"
    QUARANTINED = "quarantined"
    CLOSED = "closed"


class DerivedPhase(StrEnum):
    """What is shown instead of the stored phase after a deadline has passed; never stored."""

    OVERDUE = "overdue"
    DELAYED = "delayed"


HELD_PHASES = frozenset({Phase.RECONCILING, Phase.QUARANTINED})


class JobEvent(StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    QUEUE_AGE_REACHED = "queue_age_reached"
    RETIRE_RELEASE = "retire_release"
    TAKE_OVER = "take_over"
    RELEASE_LEASE = "release_lease"
    HOLD = "hold"
    COMMIT_RESULT = "commit_result"
    CLOSE_FAILED = "close_failed"
    REQUEUE = "requeue"
    CANCEL = "cancel"


JOB_TRANSITIONS: dict[tuple[JobState, JobEvent], JobState] = {
    (JobState.ACCEPTED, JobEvent.CLAIM): JobState.RUNNING,
    (JobState.ACCEPTED, JobEvent.QUEUE_AGE_REACHED): JobState.EXPIRED,
    (JobState.ACCEPTED, JobEvent.RETIRE_RELEASE): JobState.FAILED,
    (JobState.ACCEPTED, JobEvent.CANCEL): JobState.CANCELED,
    (JobState.RUNNING, JobEvent.CLAIM): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.TAKE_OVER): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.RELEASE_LEASE): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.HOLD): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.REQUEUE): JobState.RUNNING,
    (JobState.RUNNING, JobEvent.COMMIT_RESULT): JobState.SUCCEEDED,
    (JobState.RUNNING, JobEvent.CLOSE_FAILED): JobState.FAILED,
    (JobState.RUNNING, JobEvent.RETIRE_RELEASE): JobState.FAILED,
    (JobState.RUNNING, JobEvent.CANCEL): JobState.CANCELED,
}  # A terminal state has no line here, so nothing leaves it.


class CloseCause(StrEnum):
    """Why a job closes; the first matching line of `terminal_outcome` decides the class."""

    FINISHED = "finished"
    SUPERSEDED = "superseded"
    CANCELED = "canceled"
    QUEUE_AGE = "queue_age"
    IDENTITY = "identity"
    PUBLICATION = "publication"
    CUTOFF = "cutoff"
    TIMEOUT = "timeout"
    EXHAUSTED = "exhausted"


_BY_CAUSE: dict[CloseCause, tuple[JobState, TerminalClass]] = {
    CloseCause.SUPERSEDED: (JobState.CANCELED, TerminalClass.SUPERSEDED),
    CloseCause.CANCELED: (JobState.CANCELED, TerminalClass.CANCELED),
    CloseCause.QUEUE_AGE: (JobState.EXPIRED, TerminalClass.EXPIRED),
    CloseCause.IDENTITY: (JobState.FAILED, TerminalClass.IDENTITY_FAILED),
    CloseCause.PUBLICATION: (JobState.FAILED, TerminalClass.DEPENDENCY_FAILED),
}


def terminal_outcome(
    counts: Mapping[ItemClass, int], cause: CloseCause, *, object_verified: bool
) -> tuple[JobState, TerminalClass]:
    """Return state and class of a closing job from its item counts and the cause.

    A caller that has kept items and no verified object, and no cause that explains it, has not
    finished: for it the answer is `failed/attempts_exhausted` (or `timed_out`), never success.
    """
    if cause in _BY_CAUSE:
        return _BY_CAUSE[cause]
    requested = sum(counts.values())
    kept = sum(counts.get(item_class, 0) for item_class in KEPT_CLASSES)
    if requested and counts.get(ItemClass.REJECTED, 0) == requested:
        return JobState.FAILED, TerminalClass.REJECTED
    if kept and object_verified:
        whole = kept == requested
        return JobState.SUCCEEDED, TerminalClass.COMPLETE if whole else TerminalClass.PARTIAL
    if cause in (CloseCause.CUTOFF, CloseCause.TIMEOUT):
        return JobState.FAILED, TerminalClass.TIMED_OUT
    return JobState.FAILED, TerminalClass.ATTEMPTS_EXHAUSTED


def async_job_state(job: Mapping[str, Any], now_seconds: float) -> str:
    """Return the state of an `accepted` job as its submitter's clock sees it.

    The pure reference of source 001, with the same behavior: the ledger's persisted
    transitions must agree with it, and it decides nothing by itself.

    Args:
        job: `state`, `submitted_at` and `max_queue_age` in seconds, `input_digest`, `model_digest`.
        now_seconds: the time of asking, in the same seconds as `submitted_at`.
    Raises:
        ValueError: when the clock stands before submission.
    """
    if now_seconds < job["submitted_at"]:
        raise ValueError("clock before submission")
    state = str(job["state"])
    if state in TERMINAL_STATES:
        return state
    if now_seconds - job["submitted_at"] > job["max_queue_age"]:
        return JobState.EXPIRED.value
    if not job["input_digest"] or not job["model_digest"]:
        return JobState.FAILED.value
    return state
