"""Invariants over effects, deliveries and tasks."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, bindparam, case, exists, func, literal, or_, select

from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.effects import EffectDemand, EffectKind, EffectState
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.reasons import EFFECT_GAP
from receipt_pipeline.ledger.changes import LedgerReader
from receipt_pipeline.ledger.effects.outbox import ABANDONED, DELIVERED, DUE, SENDING, SENT
from receipt_pipeline.ledger.invariants.invariant import (
    JOB_LEDGER,
    NOTIFICATIONS,
    REVIEW_TASKS,
    Bounds,
    Invariant,
    Investigate,
    Query,
    Row,
)
from receipt_pipeline.ledger.investigations import InvestigationKind
from receipt_pipeline.ledger.rows import is_terminal
from receipt_pipeline.ledger.schema.effects import deliveries, effects, outbox, quarantine, review_tasks
from receipt_pipeline.ledger.schema.jobs import items, jobs
from receipt_pipeline.ledger.schema.types import UtcMicros

# The fault of a notification that was abandoned after its last attempt: nothing sends it again.
GIVEN_UP = "required_effect_given_up"
UNFINISHED = (EffectState.INTENDED, EffectState.UNKNOWN, EffectState.FAILED)
_AGREES_AGAIN = "effect and ledger agree again"


def overdue_effects(reader: LedgerReader, bounds: Bounds) -> Query:
    """Find the gaps that time alone causes; all others appear and disappear with a change of their job."""
    return _overdue().params(now=reader.now())


@functools.cache
def _effect_gaps() -> Query:
    gaps = sa.union_all(
        _overdue(),
        _never_intended(EffectKind.REVIEW_TASKS, and_(jobs.c.state == JobState.SUCCEEDED, _wants_tasks())),
        _never_intended(EffectKind.NOTIFICATION, and_(is_terminal(), _wants_message())),
        _success_without_publication(),
        _message_missing(),
        _committed_but_undelivered(),
        _delivered_but_uncommitted(),
        _tasks_without_effect(),
    ).subquery("gaps")
    return select(gaps).order_by(gaps.c.job_id, gaps.c.fault)


def _wants_tasks() -> ColumnElement[bool]:
    return jobs.c.review_tasks != EffectDemand.NONE


def _wants_message() -> ColumnElement[bool]:
    return jobs.c.notification != EffectDemand.NONE


def _gap(fault: str, kind: EffectKind) -> sa.Select[Any]:
    effect = literal(kind.value).label("effect")
    return select(jobs.c.job_id, literal(fault).label("fault"), effect, jobs.c.state)


def _effect_of(kind: EffectKind, *states: EffectState) -> ColumnElement[bool]:
    query = select(effects.c.effect_id).where(effects.c.job_id == jobs.c.job_id, effects.c.kind == kind)
    return exists(query.where(effects.c.state.in_(states)) if states else query)


@functools.cache
def _overdue() -> sa.Select[Any]:
    # The investigation of an open quarantine owns the effects of its job.
    held = exists(
        select(quarantine.c.job_id).where(quarantine.c.job_id == effects.c.job_id, quarantine.c.state == "open")
    )
    abandoned = and_(effects.c.kind == EffectKind.NOTIFICATION, effects.c.state == EffectState.FAILED)
    fault = case((abandoned, GIVEN_UP), else_="required_effect_overdue")
    return (
        select(jobs.c.job_id, fault.label("fault"), effects.c.kind.label("effect"), jobs.c.state)
        .join(effects, effects.c.job_id == jobs.c.job_id)
        .where(effects.c.required)
        .where(effects.c.deadline_at < bindparam("now", type_=UtcMicros()))
        .where(effects.c.state.in_(UNFINISHED))
        .where(~held)
    )


def _never_intended(kind: EffectKind, wanted: ColumnElement[bool]) -> sa.Select[Any]:
    return _gap("effect_never_intended", kind).where(wanted).where(~_effect_of(kind))


def _success_without_publication() -> sa.Select[Any]:
    published = exists(
        select(effects.c.effect_id).where(
            effects.c.idempotency_key == jobs.c.result_key,
            effects.c.kind == EffectKind.RESULT_OBJECT,
            effects.c.state == EffectState.COMMITTED,
        )
    )
    return _gap("success_without_published_effect", EffectKind.RESULT_OBJECT).where(
        jobs.c.state == JobState.SUCCEEDED, ~published
    )


def _message_missing() -> sa.Select[Any]:
    message = exists(select(outbox.c.message_id).where(outbox.c.job_id == jobs.c.job_id))
    return _gap("message_missing", EffectKind.NOTIFICATION).where(is_terminal(), _wants_message(), ~message)


def _delivered() -> ColumnElement[bool]:
    return exists(
        select(deliveries.c.delivery_id).where(deliveries.c.job_id == jobs.c.job_id, deliveries.c.outcome == DELIVERED)
    )


def _committed_but_undelivered() -> sa.Select[Any]:
    return _gap("ledger_without_effect", EffectKind.NOTIFICATION).where(
        _effect_of(EffectKind.NOTIFICATION, EffectState.COMMITTED), ~_delivered()
    )


def _delivered_but_uncommitted() -> sa.Select[Any]:
    return _gap("effect_without_ledger", EffectKind.NOTIFICATION).where(
        _delivered(), ~_effect_of(EffectKind.NOTIFICATION, EffectState.COMMITTED)
    )


def _tasks_without_effect() -> sa.Select[Any]:
    tasks = exists(select(review_tasks.c.decision_id).where(review_tasks.c.job_id == jobs.c.job_id))
    return _gap("effect_without_ledger", EffectKind.REVIEW_TASKS).where(
        tasks, ~_effect_of(EffectKind.REVIEW_TASKS, EffectState.COMMITTED)
    )


def _is_given_up(row: Row) -> bool:
    return bool(row["fault"] == GIVEN_UP)


EFFECTS_HAVE_NO_GAPS = Invariant(
    name="effects_have_no_gaps",
    finding="effect_gaps",
    asset=JOB_LEDGER,
    meaning="Each effect has its ledger row, each row has its effect, and no required effect is overdue.",
    violations=lambda reader, bounds: _effect_gaps().params(now=reader.now()),
    investigation=Investigate(
        InvestigationKind.EFFECT_GAP,
        reason=EFFECT_GAP,
        subject="{job_id}:{effect}:{fault}",
        suspected_effect="{effect}: {fault}",
        resolved_when=_AGREES_AGAIN,
        evidence=("fault", "effect"),
        a_note_resolves=_is_given_up,
    ),
    alert=AlertKind.EFFECT_GAP,
    repair="`receipts status {job_id} --audience support`. Look for the effect where it would be;"
    " it is safe to deliver and consume again.",
)


@functools.cache
def _unexplained_notifications() -> Query:
    sent = (
        select(
            deliveries.c.message_id,
            func.count().label("deliveries"),
            func.sum(case((deliveries.c.outcome == DELIVERED, 1), else_=0)).label("delivered"),
        )
        .group_by(deliveries.c.message_id)
        .subquery("sent")
    )
    delivered, attempts = func.coalesce(sent.c.delivered, 0), func.coalesce(sent.c.deliveries, 0)
    late = bindparam("late", type_=UtcMicros())
    fault = case(
        (outbox.c.message_id.is_(None), "no_message"),
        (and_(outbox.c.state == SENT, delivered == 0), "sent_without_delivery"),
        (attempts < outbox.c.sends, "delivery_unrecorded"),
        (
            and_(outbox.c.state == ABANDONED, attempts < bindparam("attempts_max", type_=sa.Integer())),
            "given_up_too_early",
        ),
        (and_(outbox.c.state.in_([DUE, SENDING]), outbox.c.created_at < late), "never_sent"),
    )
    explained = (
        select(
            jobs.c.job_id,
            fault.label("fault"),
            outbox.c.message_id,
            outbox.c.state.label("message_state"),
            outbox.c.sends,
            delivered.label("delivered"),
        )
        .select_from(jobs)
        .join(outbox, outbox.c.job_id == jobs.c.job_id, isouter=True)
        .join(sent, sent.c.message_id == outbox.c.message_id, isouter=True)
        .where(is_terminal(), _wants_message())
        .subquery("explained")
    )
    return select(explained).where(explained.c.fault.is_not(None)).order_by(explained.c.job_id)


def _is_no_gap_already(row: Row) -> bool:
    """Return False for a message that was never written, which `effect_gaps` finds."""
    return bool(row["fault"] != "no_message")


EVERY_NOTIFICATION_EXPLAINED = Invariant(
    name="every_notification_delivered_or_explained",
    finding="unexplained_notifications",
    asset=NOTIFICATIONS,
    meaning="Each notification was delivered, is due in time, or was abandoned with its reasons.",
    violations=lambda reader, bounds: _unexplained_notifications().params(
        late=reader.now() - dt.timedelta(seconds=bounds.limits.delivery.effect_deadline_s),
        attempts_max=bounds.limits.delivery.delivery_attempts_max,
    ),
    investigation=Investigate(
        InvestigationKind.EFFECT_GAP,
        reason=EFFECT_GAP,
        subject="{job_id}:notification:{fault}",
        suspected_effect="the submitter may not have been notified, or notified without a record",
        resolved_when=_AGREES_AGAIN,
        evidence=("fault", "message_id", "message_state", "sends"),
        opens=_is_no_gap_already,
    ),
    repair="`receipts status {job_id} --audience support`. Look for message {message_id} in the channel;"
    " a repeat has the same message id.",
)


@functools.cache
def _task_faults() -> Query:
    # A task counts when decision ID, outcome and result are those of a classified item of a succeeded job.
    decision = and_(
        items.c.job_id == review_tasks.c.job_id,
        items.c.decision_id == review_tasks.c.decision_id,
        items.c.item_class == ItemClass.CLASSIFIED,
    )
    fault = case(
        (jobs.c.state != JobState.SUCCEEDED, "task_of_unsuccessful_job"),
        (items.c.decision_id.is_(None), "task_without_decision"),
        (
            or_(
                review_tasks.c.decision != items.c.decision,
                review_tasks.c.outcome_digest != items.c.outcome_digest,
                review_tasks.c.result_digest != jobs.c.result_digest,
            ),
            "task_differs",
        ),
    )
    wrong = (
        select(review_tasks.c.job_id, fault.label("fault"), review_tasks.c.decision_id, review_tasks.c.item_id)
        .join(jobs, jobs.c.job_id == review_tasks.c.job_id)
        .join(items, decision, isouter=True)
    )
    without_task = (
        select(items.c.job_id, literal("decision_without_task").label("fault"))
        .add_columns(items.c.decision_id, items.c.item_id)
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .join(review_tasks, decision, isouter=True)
        .where(jobs.c.state == JobState.SUCCEEDED)
        .where(items.c.item_class == ItemClass.CLASSIFIED)
        .where(_effect_of(EffectKind.REVIEW_TASKS, EffectState.COMMITTED))
        .where(review_tasks.c.decision_id.is_(None))
    )
    both = sa.union_all(wrong, without_task).subquery("both")
    return select(both).where(both.c.fault.is_not(None)).order_by(both.c.job_id, both.c.decision_id)


ONE_TASK_PER_DECISION = Invariant(
    name="one_task_per_decision",
    finding="task_faults",
    asset=REVIEW_TASKS,
    meaning="Each decision of a consumed success has one review task, and each task has its decision.",
    violations=lambda reader, bounds: _task_faults(),
    investigation=Investigate(
        InvestigationKind.EFFECT_GAP,
        reason=EFFECT_GAP,
        subject="{job_id}:task:{fault}:{decision_id}",
        suspected_effect="a reviewer may see a decision twice, not at all, or not as it was made",
        resolved_when=_AGREES_AGAIN,
        evidence=("fault", "item_id", "decision_id"),
    ),
    repair="`receipts tasks list`. Compare the task with item {item_id} of job {job_id};"
    " the consumer creates a missing task again.",
)
