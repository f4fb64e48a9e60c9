"""The conditions of each alert, and the check that no alert is active."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy import and_, case, exists, func, literal, or_, select

from receipt_pipeline.core.alerts import MEANINGS, AlertKind
from receipt_pipeline.core.attempts import AttemptOutcome
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.ledger.changes import LedgerReader
from receipt_pipeline.ledger.invariants.invariant import JOB_LEDGER, Bounds, Invariant, Query
from receipt_pipeline.ledger.invariants.work import queue_beyond_capacity
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.schema.admin import alerts
from receipt_pipeline.ledger.schema.jobs import attempts, events, jobs, workers

_PHASE_EVENTS = (EventKind.ACCEPTED, EventKind.CLAIMED, EventKind.PHASE_CHANGED)


def _ago(reader: LedgerReader, seconds: float) -> dt.datetime:
    return reader.now() - dt.timedelta(seconds=seconds)


def _long_in_phase(reader: LedgerReader, bounds: Bounds) -> Query:
    at = bounds.thresholds
    entered = (
        select(func.max(events.c.at))
        .where(events.c.job_id == jobs.c.job_id, events.c.kind.in_(_PHASE_EVENTS))
        .correlate(jobs)
        .scalar_subquery()
    )
    late = [and_(jobs.c.phase == phase, entered < _ago(reader, seconds)) for phase, seconds in at.phase_s.items()]
    return (
        select(jobs.c.job_id, jobs.c.phase, entered.label("since"))
        .where(jobs.c.terminal_at.is_(None), or_(sa.false(), *late))
        .order_by(jobs.c.job_id)
    )


def _lease_expired(reader: LedgerReader, bounds: Bounds) -> Query:
    at = bounds.thresholds
    return (
        select(
            jobs.c.job_id, jobs.c.lease_owner.label("owner"), jobs.c.lease_epoch, jobs.c.lease_expires_at.label("since")
        )
        .where(jobs.c.state == JobState.RUNNING, jobs.c.lease_owner.is_not(None))
        .where(jobs.c.lease_expires_at <= _ago(reader, at.lease_expired_s))
        .order_by(jobs.c.job_id)
    )


def _owner_changes(reader: LedgerReader, bounds: Bounds) -> Query:
    at = bounds.thresholds
    return (
        select(jobs.c.job_id, jobs.c.phase, func.count().label("owners_lost"))
        .join(attempts, attempts.c.job_id == jobs.c.job_id)
        .where(jobs.c.terminal_at.is_(None), attempts.c.outcome == AttemptOutcome.LOST)
        .where(attempts.c.closed_at > _ago(reader, at.owner_changes_within_s))
        .group_by(jobs.c.job_id, jobs.c.phase)
        .having(func.count() >= at.owner_changes)
        .order_by(jobs.c.job_id)
    )


def _checkpoint_stale(reader: LedgerReader, bounds: Bounds) -> Query:
    at = bounds.thresholds
    opened = attempts.c.opened_at
    last = case((jobs.c.checkpoint_at > opened, jobs.c.checkpoint_at), else_=opened)
    return (
        select(jobs.c.job_id, jobs.c.lease_owner.label("owner"), jobs.c.checkpoint, last.label("since"))
        .join(attempts, and_(attempts.c.job_id == jobs.c.job_id, attempts.c.lease_epoch == jobs.c.lease_epoch))
        .where(jobs.c.state == JobState.RUNNING, jobs.c.lease_expires_at > reader.now())
        .where(last < _ago(reader, at.checkpoint_stale_s))
        .order_by(jobs.c.job_id)
    )


def _budget_exhausted(reader: LedgerReader, bounds: Bounds) -> Query:
    at = bounds.thresholds
    retried = jobs.alias("retried")
    # By state, so that what succeeded, which is most of the table, is never read.
    open_or_failed = and_(
        jobs.c.state.in_((JobState.ACCEPTED, JobState.RUNNING, JobState.FAILED)),
        or_(jobs.c.terminal_at.is_(None), jobs.c.terminal_at > _ago(reader, at.budget_window_s)),
    )
    return (
        select(jobs.c.job_id, jobs.c.attempts_spent, jobs.c.max_attempts, jobs.c.state, jobs.c.reason_code)
        .where(jobs.c.attempts_spent >= jobs.c.max_attempts, jobs.c.lease_owner.is_(None), open_or_failed)
        .where(jobs.c.superseded_by.is_(None))
        .where(~exists(select(retried.c.job_id).where(retried.c.parent_job_id == jobs.c.job_id)))
        .order_by(jobs.c.job_id)
    )


def _queue_age(reader: LedgerReader, bounds: Bounds) -> Query:
    at = bounds.thresholds
    return (
        select(
            literal("queue").label("subject"),
            func.count().label("jobs"),
            sa.type_coerce(func.min(jobs.c.submitted_at), jobs.c.submitted_at.type).label("oldest"),
        )
        .where(jobs.c.state == JobState.ACCEPTED, jobs.c.submitted_at < _ago(reader, at.queue_age_s))
        .having(func.count() > 0)
    )


def _daemon_silent(reader: LedgerReader, bounds: Bounds) -> Query:
    """Find open work that no code location looks at; an idle installation raises no alert."""
    at = bounds.thresholds
    limit = _ago(reader, at.daemon_silent_s)
    oldest = select(func.min(jobs.c.submitted_at)).where(jobs.c.terminal_at.is_(None)).scalar_subquery()
    heartbeat = select(func.max(workers.c.heartbeat_at)).scalar_subquery()
    return select(
        literal("code_location").label("subject"),
        sa.type_coerce(oldest, jobs.c.submitted_at.type).label("oldest_open_job"),
        sa.type_coerce(heartbeat, workers.c.heartbeat_at.type).label("last_tick"),
    ).where(and_(oldest.is_not(None), or_(heartbeat < limit, and_(heartbeat.is_(None), oldest < limit))))


def _active_alerts(reader: LedgerReader, bounds: Bounds) -> Query:
    return (
        select(alerts.c.job_id, alerts.c.kind, alerts.c.subject, alerts.c.raised_at, alerts.c.alert_id)
        .where(alerts.c.resolved_at.is_(None))
        .order_by(alerts.c.raised_at, alerts.c.alert_id)
    )


NO_ACTIVE_ALERT = Invariant(
    name="no_standing_alert",
    finding="standing_alerts",
    asset=JOB_LEDGER,
    meaning="No alert is active.",
    violations=_active_alerts,
    repair="`receipts alerts list`. Each alert names its first step.",
    whole_ledger=False,
    warns=True,
)


def _condition(kind: AlertKind, violations: Callable[[LedgerReader, Bounds], Query]) -> Invariant:
    return Invariant(
        name=kind.value,
        finding=kind.value,
        meaning=MEANINGS[kind].meaning,
        violations=violations,
        repair=MEANINGS[kind].next_step,
        alert=kind,
        whole_ledger=False,
        warns=True,
    )


ALERT_CONDITIONS = (
    _condition(AlertKind.PHASE_AGE, _long_in_phase),
    _condition(AlertKind.LEASE_EXPIRED, _lease_expired),
    _condition(AlertKind.OWNER_CHANGES, _owner_changes),
    _condition(AlertKind.CHECKPOINT_STALE, _checkpoint_stale),
    _condition(AlertKind.BUDGET_EXHAUSTED, _budget_exhausted),
    _condition(AlertKind.QUEUE_AGE, _queue_age),
    _condition(AlertKind.CAPACITY, queue_beyond_capacity),
    _condition(AlertKind.DAEMON_SILENT, _daemon_silent),
)
