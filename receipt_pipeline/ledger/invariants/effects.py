"""Invariants over effects, deliveries and tasks."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, bindparam, case, exists, func, literal, or_, select

from receipt_pipeline.core.effects import EffectDemand, EffectKind, EffectState
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.effects.outbox import ABANDONED, DELIVERED, DUE, SENDING, SENT
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.records import Finding, Query, find, is_terminal
from receipt_pipeline.ledger.schema.effects import deliveries, effects, outbox, quarantine, review_tasks
from receipt_pipeline.ledger.schema.jobs import items, jobs
from receipt_pipeline.ledger.schema.types import UtcMicros

# A notification that was given up after its bound: nothing sends it again, so a person decides about it.
GIVEN_UP = "required_effect_given_up"
UNSETTLED = (EffectState.INTENDED, EffectState.UNKNOWN, EffectState.FAILED)


def effect_gaps(tx: LedgerTransaction) -> Finding:
    """Find every gap between effects and ledger (R096): none without the other, none overdue.

    A required effect of a job in open quarantine is not overdue: the quarantine's question owns it.
    """
    return find(
        tx,
        name="effect_gaps",
        meaning="every effect has its ledger row, every row its effect, and no required one is overdue",
        query=_effect_gaps(),
        parameters={"now": tx.now()},
    )


def overdue_effects(tx: LedgerTransaction) -> Finding:
    """Find the gaps that time alone brings about; every other comes and goes with a change of its job."""
    return find(
        tx,
        name="overdue_effects",
        meaning="no required effect is overdue",
        query=_overdue(),
        parameters={"now": tx.now()},
    )


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


def _overdue() -> sa.Select[Any]:
    held = exists(
        select(quarantine.c.job_id).where(
            quarantine.c.job_id == effects.c.job_id, quarantine.c.state == "open"
        )
    )
    given_up = and_(effects.c.kind == EffectKind.NOTIFICATION, effects.c.state == EffectState.FAILED)
    fault = case((given_up, GIVEN_UP), else_="required_effect_overdue")
    return (
        select(jobs.c.job_id, fault.label("fault"), effects.c.kind.label("effect"), jobs.c.state)
        .join(effects, effects.c.job_id == jobs.c.job_id)
        .where(effects.c.required)
        .where(effects.c.deadline_at < bindparam("now", type_=UtcMicros()))
        .where(effects.c.state.in_(UNSETTLED))
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
        select(deliveries.c.delivery_id).where(
            deliveries.c.job_id == jobs.c.job_id, deliveries.c.outcome == DELIVERED
        )
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


def unexplained_notifications(tx: LedgerTransaction, *, limits: Limits) -> Finding:
    """Find notifications that were neither delivered nor have a delivery ledger that says why not."""
    late = tx.now() - dt.timedelta(seconds=limits.delivery.effect_deadline_s)
    return find(
        tx,
        name="unexplained_notifications",
        meaning="every notification was delivered, is due in time, or was given up with its reasons",
        query=_unexplained_notifications(),
        parameters={"late": late, "attempts_max": limits.delivery.delivery_attempts_max},
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
        .subquery("tried")
    )
    delivered, tried = func.coalesce(sent.c.delivered, 0), func.coalesce(sent.c.deliveries, 0)
    late = bindparam("late", type_=UtcMicros())
    fault = case(
        (outbox.c.message_id.is_(None), "no_message"),
        (and_(outbox.c.state == SENT, delivered == 0), "sent_without_delivery"),
        (tried < outbox.c.sends, "delivery_unrecorded"),
        (
            and_(outbox.c.state == ABANDONED, tried < bindparam("attempts_max", type_=sa.Integer())),
            "given_up_too_early",
        ),
        (and_(outbox.c.state.in_([DUE, SENDING]), outbox.c.created_at < late), "never_sent"),
    )
    told = (
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
        .subquery("told")
    )
    return select(told).where(told.c.fault.is_not(None)).order_by(told.c.job_id)


def task_faults(tx: LedgerTransaction) -> Finding:
    """Find decisions without their one task, and tasks without their one decision (D12).

    A task counts when its decision ID, outcome and result are those of a classified item of a
    succeeded job.
    """
    return find(
        tx,
        name="task_faults",
        meaning="every decision of a consumed success has one review task, and every task its decision",
        query=_task_faults(),
    )


@functools.cache
def _task_faults() -> Query:
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
        select(
            review_tasks.c.job_id,
            fault.label("fault"),
            review_tasks.c.decision_id,
            review_tasks.c.item_id,
        )
        .join(jobs, jobs.c.job_id == review_tasks.c.job_id)
        .join(items, decision, isouter=True)
    )
    untaken = (
        select(items.c.job_id, literal("decision_without_task").label("fault"))
        .add_columns(items.c.decision_id, items.c.item_id)
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .join(review_tasks, decision, isouter=True)
        .where(jobs.c.state == JobState.SUCCEEDED)
        .where(items.c.item_class == ItemClass.CLASSIFIED)
        .where(_effect_of(EffectKind.REVIEW_TASKS, EffectState.COMMITTED))
        .where(review_tasks.c.decision_id.is_(None))
    )
    both = sa.union_all(wrong, untaken).subquery("both")
    return select(both).where(both.c.fault.is_not(None)).order_by(both.c.job_id, both.c.decision_id)
