"""Judges a received event against the ledger: events trigger, only the ledger tells the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from receipt_pipeline.core.canonical import is_digest
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.job_lifecycle import TERMINAL_STATES, JobState
from receipt_pipeline.core.reasons import (
    EVENT_CONFLICT,
    EVENT_LATE,
    FIELD_INVALID,
    FIELD_MISSING,
    NOT_FOUND,
    RESULT_NOT_READY,
    RESULT_QUARANTINED,
    Reason,
)

EVENT_ID_LENGTH_MAX = 200


class EventOutcome(StrEnum):
    """What one received event led to."""

    ACTED = "acted"
    NOTED = "noted"
    DUPLICATE = "duplicate"
    LATE = "late"
    CONFLICT = "conflict"
    UNVERIFIED = "unverified"
    HELD = "held"
    UNKNOWN = "unknown"


REASON_OF_OUTCOME: Mapping[EventOutcome, Reason] = {
    EventOutcome.LATE: EVENT_LATE,
    EventOutcome.CONFLICT: EVENT_CONFLICT,
    EventOutcome.UNVERIFIED: RESULT_NOT_READY,
    EventOutcome.HELD: RESULT_QUARANTINED,
    EventOutcome.UNKNOWN: NOT_FOUND,
}


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One delivered status event: what it claims, which is evidence and never the state."""

    event_id: str
    job_id: str
    state: JobState
    result_digest: str | None = None


@dataclass(frozen=True, slots=True)
class KnownJob:
    """What the ledger knows of the event's job.

    Attributes:
        tasks_due: a verified success whose review tasks are not made yet.
        held: a quarantine of the job is open.
        event_seen, claim_seen: this very event, or another event with the same claim, came before.
    """

    state: JobState
    result_digest: str | None
    tasks_due: bool
    held: bool
    event_seen: bool
    claim_seen: bool


def read_event(document: Mapping[str, Any]) -> ReceivedEvent:
    """Read an event strictly.

    Raises:
        InputRefused: FIELD.MISSING.v1 or FIELD.INVALID.v1 with a pointer; the value is not repeated.
    """
    state = _text(document, "state")
    if state not in tuple(JobState):
        raise InputRefused(FIELD_INVALID, pointer="/state")
    digest = document.get("result_digest")
    if digest is not None and not is_digest(digest):
        raise InputRefused(FIELD_INVALID, pointer="/result_digest")
    return ReceivedEvent(
        event_id=_text(document, "event_id"),
        job_id=_text(document, "job_id"),
        state=JobState(state),
        result_digest=digest,
    )


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if value is None:
        raise InputRefused(FIELD_MISSING, pointer=f"/{name}")
    if not isinstance(value, str) or not 0 < len(value) <= EVENT_ID_LENGTH_MAX:
        raise InputRefused(FIELD_INVALID, pointer=f"/{name}")
    return value


def judge(event: ReceivedEvent, known: KnownJob | None) -> EventOutcome:
    """Say what the event leads to; `acted` still asks for a verified object."""
    if known is None:
        return EventOutcome.UNKNOWN
    outcome = _judge_claim(event, known)
    # An event that changed under its own id is no repeat: a differing result stays a conflict.
    settled = outcome in (EventOutcome.LATE, EventOutcome.NOTED, EventOutcome.UNVERIFIED)
    return EventOutcome.DUPLICATE if known.event_seen and settled else outcome


def _judge_claim(event: ReceivedEvent, known: KnownJob) -> EventOutcome:
    claimed, stands = _rank(event.state), _rank(known.state)
    if claimed > stands:
        return EventOutcome.UNVERIFIED
    if claimed < stands or event.state is not known.state:
        return EventOutcome.LATE
    if known.state is JobState.SUCCEEDED:
        return _judge_success(event, known)
    return EventOutcome.DUPLICATE if known.claim_seen else EventOutcome.NOTED


def _judge_success(event: ReceivedEvent, known: KnownJob) -> EventOutcome:
    if event.result_digest is not None and event.result_digest != known.result_digest:
        return EventOutcome.CONFLICT
    if known.tasks_due:
        return EventOutcome.HELD if known.held else EventOutcome.ACTED
    # The first word of a success on which the consumer acted by itself tells nothing new, and is no repeat.
    return EventOutcome.DUPLICATE if known.claim_seen else EventOutcome.NOTED


def _rank(state: JobState) -> int:
    if state in TERMINAL_STATES:
        return 2
    return 1 if state is JobState.RUNNING else 0
