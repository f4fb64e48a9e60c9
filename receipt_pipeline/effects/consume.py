"""Consume events and create review tasks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import bindparam, or_, select

from receipt_pipeline.core.canonical import is_digest
from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.errors import InputRefused, ObjectFault
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState
from receipt_pipeline.core.reasons import (
    EVENT_CONFLICT,
    EVENT_LATE,
    FIELD_INVALID,
    FIELD_MISSING,
    NOT_FOUND,
    RESULT_MISMATCH,
    RESULT_MISSING,
    RESULT_NOT_READY,
    RESULT_QUARANTINED,
    Reason,
)
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.consumption import (
    ConsumedEvent,
    due_consumption,
    make_review_tasks,
    record_consumed,
)
from receipt_pipeline.ledger.effects.outbox import unconsumed_deliveries
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent, open_quarantines
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.ledger.schema.effects import consumed, effects

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


def evaluate_event(event: ReceivedEvent, known: KnownJob | None) -> EventOutcome:
    """Return what the event leads to; `acted` also needs a verified object."""
    if known is None:
        return EventOutcome.UNKNOWN
    outcome = _evaluate_claim(event, known)
    # An event that changed under its own id is no repeat: a differing result stays a conflict.
    is_repeatable = outcome in (EventOutcome.LATE, EventOutcome.NOTED, EventOutcome.UNVERIFIED)
    return EventOutcome.DUPLICATE if known.event_seen and is_repeatable else outcome


def _evaluate_claim(event: ReceivedEvent, known: KnownJob) -> EventOutcome:
    claimed, actual = _rank(event.state), _rank(known.state)
    if claimed > actual:
        return EventOutcome.UNVERIFIED
    if claimed < actual or event.state is not known.state:
        return EventOutcome.LATE
    if known.state is JobState.SUCCEEDED:
        return _evaluate_success(event, known)
    return EventOutcome.DUPLICATE if known.claim_seen else EventOutcome.NOTED


def _evaluate_success(event: ReceivedEvent, known: KnownJob) -> EventOutcome:
    if event.result_digest is not None and event.result_digest != known.result_digest:
        return EventOutcome.CONFLICT
    if known.tasks_due:
        return EventOutcome.HELD if known.held else EventOutcome.ACTED
    # The first event of a success on which the consumer acted by itself is nothing new, and no repeat.
    return EventOutcome.DUPLICATE if known.claim_seen else EventOutcome.NOTED


def _rank(state: JobState) -> int:
    if state in TERMINAL_STATES:
        return 2
    return 1 if state is JobState.RUNNING else 0


POLL = "poll"
CHANNEL = "channel"
_DUE_STATES = frozenset({EffectState.INTENDED, EffectState.UNKNOWN, EffectState.FAILED})


@dataclass(frozen=True, slots=True)
class ConsumptionSummary:
    """What one pass consumed: events by outcome, and the review tasks that are new."""

    outcomes: Mapping[str, int]
    tasks_made: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Consumed:
    """What one event led to."""

    outcome: EventOutcome
    tasks_made: int = 0


def consume_due(
    context: EffectContext, *, limit: int, time_bound_s: float, job_id: str | None = None
) -> ConsumptionSummary:
    """Consume delivered notifications, then what the ledger shows due although no notification came.

    A result that cannot be read stays due, and is looked at again after all others.
    """
    started = time.monotonic()
    work = [*_delivered(context, limit=limit, job_id=job_id)]
    work += [*_polled(context, limit=limit, job_id=job_id, known={event.job_id for event, _ in work})]
    outcomes: Counter[str] = Counter()
    tasks_made = done = 0
    for event, source in work:
        if done and time.monotonic() - started > time_bound_s:
            break
        result = _consume(context, event, source=source)
        outcomes[result.outcome.value] += 1
        tasks_made += result.tasks_made
        done += 1
    return ConsumptionSummary(outcomes=dict(outcomes), tasks_made=tasks_made, left=len(work) - done)


def receive_event(context: EffectContext, document: Mapping[str, Any], *, source: str) -> Consumed:
    """Consume one delivered event, in any order and however often it comes.

    Args:
        document: `event_id`, `job_id`, `state`, and `result_digest` where there is a result.
    Raises:
        InputRefused: the document is no event; nothing was recorded.
    """
    return _consume(context, read_event(document), source=source)


def _delivered(context: EffectContext, *, limit: int, job_id: str | None) -> list[tuple[ReceivedEvent, str]]:
    with context.ledger.reading() as tx:
        rows = unconsumed_deliveries(tx, limit=limit)
    return [
        (read_event(row["payload"] | {"event_id": row["delivery_id"]}), CHANNEL)
        for row in rows
        if job_id in (None, row["job_id"])
    ]


def _polled(
    context: EffectContext, *, limit: int, job_id: str | None, known: set[str]
) -> list[tuple[ReceivedEvent, str]]:
    """Return due jobs as events of the ledger itself; those that could not be verified come last."""
    with context.ledger.reading() as tx:
        doubtful = set(
            tx.execute(
                select(consumed.c.job_id)
                .where(consumed.c.source == POLL)
                .where(consumed.c.outcome == EventOutcome.UNVERIFIED)
            ).scalars()
        )
        rows = due_consumption(tx, limit=limit + len(doubtful) + len(known), job_id=job_id)
    rows = [row for row in rows if row["job_id"] not in known]
    rows.sort(key=lambda row: row["job_id"] in doubtful)
    return [
        (ReceivedEvent(f"{POLL}:{row['job_id']}", row["job_id"], JobState.SUCCEEDED, row["result_digest"]), POLL)
        for row in rows[:limit]
    ]


def _consume(context: EffectContext, event: ReceivedEvent, *, source: str) -> Consumed:
    """Verify outside, evaluate again under the job's lock, act and record in one transaction."""
    with context.ledger.reading() as tx:
        job = read_job(tx, event.job_id)
        acts = evaluate_event(event, _known(tx, event, job, source)) is EventOutcome.ACTED
    fault: Reason | None = RESULT_MISSING
    if acts and job is not None:
        fault = result_fault(context, job)
    point("consume.before")
    with context.ledger.transaction() as tx:
        job = read_job(tx, event.job_id, lock=True)
        known = _known(tx, event, job, source)
        outcome = evaluate_event(event, known)
        if source == CHANNEL and known is not None and known.event_seen:
            # Another consumer recorded this delivery meanwhile; that is no second delivery.
            return Consumed(EventOutcome.NOTED)
        reason = REASON_OF_OUTCOME.get(outcome)
        if outcome is EventOutcome.ACTED and (fault is not None or not acts):
            result, reason = Consumed(EventOutcome.UNVERIFIED), fault
        else:
            result = _act(context, tx, event, job, outcome)
        _record(tx, event, source=source, result=result, reason=reason)
    point("consume.after")
    return result


def result_fault(context: EffectContext, job: JobRow) -> Reason | None:
    """Read a succeeded job's object: None when digest and size equal the ledger's, else what is wrong."""
    if job.result_key is None:
        return RESULT_MISSING
    try:
        found = context.objects.digest(job.result_key)
    except ObjectFault as error:
        return error.reason
    if found is None:
        return RESULT_MISSING
    return None if found == (job.result_digest, job.result_size_bytes) else RESULT_MISMATCH


def _act(
    context: EffectContext, tx: LedgerTransaction, event: ReceivedEvent, job: JobRow | None, outcome: EventOutcome
) -> Consumed:
    if job is not None and outcome is EventOutcome.ACTED:
        return Consumed(outcome, tasks_made=make_review_tasks(tx, job))
    if job is not None and outcome is EventOutcome.CONFLICT:
        point("quarantine.before")
        theirs = {"digest": event.result_digest, "source": f"event {event.event_id}", "lease_epoch": None}
        hold_divergent(tx, job_id=event.job_id, subject="result", limits=context.limits, further=[theirs])
        point("quarantine.after")
    return Consumed(outcome)


def _record(
    tx: LedgerTransaction, event: ReceivedEvent, *, source: str, result: Consumed, reason: Reason | None
) -> None:
    if source == POLL and not _worth_recording(tx, event, result.outcome):
        return
    record_consumed(
        tx,
        ConsumedEvent(
            event_id=event.event_id,
            job_id=event.job_id,
            event_kind=event.state.value,
            source=source,
            outcome=result.outcome.value,
            result_digest=event.result_digest,
            reason_code=reason.code if reason else "",
            tasks_made=result.tasks_made,
        ),
    )


def _worth_recording(tx: LedgerTransaction, event: ReceivedEvent, outcome: EventOutcome) -> bool:
    """A poll is no event: what it could not do yet is recorded once, not on every pass."""
    if outcome is EventOutcome.ACTED:
        return True
    seen = tx.row(select(consumed.c.consumed_id).where(consumed.c.event_id == event.event_id))
    return outcome is EventOutcome.UNVERIFIED and seen is None


# Every delivery runs these, twice if it acts.
_TASKS_STATE = (
    select(effects.c.state)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.kind == EffectKind.REVIEW_TASKS)
)
_RECEIVED = select(consumed.c.consumed_id).where(consumed.c.job_id == bindparam("of_job"))
_SAME_EVENT = _RECEIVED.where(consumed.c.event_id == bindparam("event"))
_SAME_CLAIM = (
    _RECEIVED.where(consumed.c.source != POLL)
    .where(consumed.c.event_kind == bindparam("claimed"))
    .where(or_(consumed.c.result_digest.is_(None), consumed.c.result_digest == bindparam("result")))
)


def _known(tx: LedgerTransaction, event: ReceivedEvent, job: JobRow | None, source: str) -> KnownJob | None:
    if job is None:
        return None
    of_job = {"of_job": event.job_id}
    tasks_state = tx.scalar(_TASKS_STATE, of_job)
    claim = of_job | {"claimed": event.state.value, "result": job.result_digest}
    return KnownJob(
        state=job.state,
        result_digest=job.result_digest,
        tasks_due=job.state is JobState.SUCCEEDED and tasks_state in _DUE_STATES,
        held=bool(open_quarantines(tx, event.job_id)),
        event_seen=source != POLL and tx.row(_SAME_EVENT, of_job | {"event": event.event_id}) is not None,
        claim_seen=tx.row(_SAME_CLAIM, claim) is not None,
    )
