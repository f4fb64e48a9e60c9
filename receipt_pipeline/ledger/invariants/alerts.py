"""The conditions of each alert."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, case, exists, func, literal, or_, select

from receipt_pipeline.core.alerts import AlertKind, AlertThresholds
from receipt_pipeline.core.attempts import AttemptOutcome
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.effects import effect_gaps
from receipt_pipeline.ledger.invariants.records import Finding, find, unbalanced_items
from receipt_pipeline.ledger.invariants.work import beyond_capacity
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.schema.jobs import attempts, events, jobs, workers

_PHASE_EVENTS = (EventKind.ACCEPTED, EventKind.CLAIMED, EventKind.PHASE_CHANGED)


@dataclass(frozen=True, slots=True)
class AlertFinding:
    """Something to warn of. `subject` is the job id, or a word for what concerns no single job."""

    kind: AlertKind
    subject: str
    job_id: str | None
    detail: Mapping[str, Any]


def find_alerts(
    tx: LedgerTransaction,
    *,
    kinds: Collection[AlertKind],
    limits: Limits,
    thresholds: AlertThresholds,
) -> list[AlertFinding]:
    """Return what is worth an alert of these kinds right now, ordered by kind and subject."""
    found = [
        AlertFinding(kind, str(row.get("subject") or row["job_id"]), row.get("job_id"), _plain(row))
        for kind in sorted(kinds)
        for row in FINDERS[kind](tx, limits, thresholds).rows
    ]
    once = {(line.kind, line.subject): line for line in found}
    return [once[name] for name in sorted(once)]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's facts as plain JSON."""
    kept = {name: value for name, value in row.items() if name not in ("job_id", "subject")}
    return {
        name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in kept.items()
    }


def _ago(tx: LedgerTransaction, seconds: float) -> dt.datetime:
    return tx.now() - dt.timedelta(seconds=seconds)


def _long_in_phase(tx: LedgerTransaction, _limits: Limits, at: AlertThresholds) -> Finding:
    entered = (
        select(func.max(events.c.at))
        .where(events.c.job_id == jobs.c.job_id, events.c.kind.in_(_PHASE_EVENTS))
        .correlate(jobs)
        .scalar_subquery()
    )
    late = [and_(jobs.c.phase == phase, entered < _ago(tx, seconds)) for phase, seconds in at.phase_s.items()]
    query = (
        select(jobs.c.job_id, jobs.c.phase, entered.label("since"))
        .where(jobs.c.terminal_at.is_(None), or_(sa.false(), *late))
        .order_by(jobs.c.job_id)
    )
    return find(tx, name="phase_age", meaning="no open job stands in one phase for too long", query=query)


def _lease_expired(tx: LedgerTransaction, _limits: Limits, at: AlertThresholds) -> Finding:
    query = (
        select(
            jobs.c.job_id,
            jobs.c.lease_owner.label("owner"),
            jobs.c.lease_epoch,
            jobs.c.lease_expires_at.label("since"),
        )
        .where(jobs.c.state == JobState.RUNNING, jobs.c.lease_owner.is_not(None))
        .where(jobs.c.lease_expires_at <= _ago(tx, at.lease_expired_s))
        .order_by(jobs.c.job_id)
    )
    return find(tx, name="lease_expired", meaning="a lease that ended is taken over at once", query=query)


def _owner_changes(tx: LedgerTransaction, _limits: Limits, at: AlertThresholds) -> Finding:
    query = (
        select(jobs.c.job_id, jobs.c.phase, func.count().label("owners_lost"))
        .join(attempts, attempts.c.job_id == jobs.c.job_id)
        .where(jobs.c.terminal_at.is_(None), attempts.c.outcome == AttemptOutcome.LOST)
        .where(attempts.c.closed_at > _ago(tx, at.owner_changes_within_s))
        .group_by(jobs.c.job_id, jobs.c.phase)
        .having(func.count() >= at.owner_changes)
        .order_by(jobs.c.job_id)
    )
    return find(
        tx, name="owner_changes", meaning="workers are not lost at one job again and again", query=query
    )


def _checkpoint_stale(tx: LedgerTransaction, _limits: Limits, at: AlertThresholds) -> Finding:
    opened = attempts.c.opened_at
    last = case((jobs.c.checkpoint_at > opened, jobs.c.checkpoint_at), else_=opened)
    query = (
        select(jobs.c.job_id, jobs.c.lease_owner.label("owner"), jobs.c.checkpoint, last.label("since"))
        .join(
            attempts,
            and_(attempts.c.job_id == jobs.c.job_id, attempts.c.lease_epoch == jobs.c.lease_epoch),
        )
        .where(jobs.c.state == JobState.RUNNING, jobs.c.lease_expires_at > tx.now())
        .where(last < _ago(tx, at.checkpoint_stale_s))
        .order_by(jobs.c.job_id)
    )
    return find(tx, name="checkpoint_stale", meaning="a live worker finishes items", query=query)


def _budget_exhausted(tx: LedgerTransaction, _limits: Limits, at: AlertThresholds) -> Finding:
    retried = jobs.alias("retried")
    # By state, so that what succeeded, which is most of the table, is never read.
    open_or_failed = and_(
        jobs.c.state.in_((JobState.ACCEPTED, JobState.RUNNING, JobState.FAILED)),
        or_(jobs.c.terminal_at.is_(None), jobs.c.terminal_at > _ago(tx, at.budget_window_s)),
    )
    query = (
        select(jobs.c.job_id, jobs.c.attempts_spent, jobs.c.max_attempts, jobs.c.state, jobs.c.reason_code)
        .where(jobs.c.attempts_spent >= jobs.c.max_attempts, jobs.c.lease_owner.is_(None), open_or_failed)
        .where(jobs.c.superseded_by.is_(None))
        .where(~exists(select(retried.c.job_id).where(retried.c.parent_job_id == jobs.c.job_id)))
        .order_by(jobs.c.job_id)
    )
    return find(tx, name="budget_exhausted", meaning="jobs end before their attempts do", query=query)


def _effect_gap(tx: LedgerTransaction, _limits: Limits, _at: AlertThresholds) -> Finding:
    return effect_gaps(tx)


def _unbalanced(tx: LedgerTransaction, _limits: Limits, _at: AlertThresholds) -> Finding:
    return unbalanced_items(tx)


def _queue_age(tx: LedgerTransaction, _limits: Limits, at: AlertThresholds) -> Finding:
    query = (
        select(
            literal("queue").label("subject"),
            func.count().label("jobs"),
            sa.type_coerce(func.min(jobs.c.submitted_at), jobs.c.submitted_at.type).label("oldest"),
        )
        .where(jobs.c.state == JobState.ACCEPTED, jobs.c.submitted_at < _ago(tx, at.queue_age_s))
        .having(func.count() > 0)
    )
    return find(tx, name="queue_age", meaning="no job waits too long for its first claim", query=query)


def _daemon_silent(tx: LedgerTransaction, _limits: Limits, at: AlertThresholds) -> Finding:
    """Find open work that no code location looks at; a quiet home without work is no alert."""
    limit = _ago(tx, at.daemon_silent_s)
    oldest = select(func.min(jobs.c.submitted_at)).where(jobs.c.terminal_at.is_(None)).scalar_subquery()
    beat = select(func.max(workers.c.heartbeat_at)).scalar_subquery()
    query = select(
        literal("code_location").label("subject"),
        sa.type_coerce(oldest, jobs.c.submitted_at.type).label("oldest_open_job"),
        sa.type_coerce(beat, workers.c.heartbeat_at.type).label("last_tick"),
    ).where(
        and_(
            oldest.is_not(None),
            or_(beat < limit, and_(beat.is_(None), oldest < limit)),
        )
    )
    return find(tx, name="daemon_silent", meaning="somebody looks at open work", query=query)


Finder = Callable[[LedgerTransaction, Limits, AlertThresholds], Finding]
FINDERS: Mapping[AlertKind, Finder] = {
    AlertKind.PHASE_AGE: _long_in_phase,
    AlertKind.LEASE_EXPIRED: _lease_expired,
    AlertKind.OWNER_CHANGES: _owner_changes,
    AlertKind.CHECKPOINT_STALE: _checkpoint_stale,
    AlertKind.BUDGET_EXHAUSTED: _budget_exhausted,
    AlertKind.EFFECT_GAP: _effect_gap,
    AlertKind.UNBALANCED_TOTALS: _unbalanced,
    AlertKind.QUEUE_AGE: _queue_age,
    AlertKind.CAPACITY: beyond_capacity,
    AlertKind.DAEMON_SILENT: _daemon_silent,
}
# These read the whole ledger, closed jobs too: for a run or a person, not for a sensor's tick.
SWEPT_KINDS = frozenset({AlertKind.EFFECT_GAP, AlertKind.UNBALANCED_TOTALS})
QUICK_KINDS = frozenset(FINDERS) - SWEPT_KINDS
