"""Invariants over budgets, leases and capacity."""

from __future__ import annotations

import datetime as dt
import functools

import sqlalchemy as sa
from sqlalchemy import case, func, literal, or_, select

from receipt_pipeline.core.alerts import AlertThresholds
from receipt_pipeline.core.attempts import AttemptOutcome
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.records import Finding, Query, find
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND

GIVEN_BACK = (AttemptOutcome.YIELDED, AttemptOutcome.REQUEUED)


def attempts_beyond_budget(tx: LedgerTransaction, *, limits: Limits) -> Finding:
    """Find jobs that were tried more often than their bounds allow (R078).

    attempts ≤ max_attempts + item_losses_max × items + yields + closing attempts; one that an operator
    requeued counts as a yield.
    """
    return find(
        tx,
        name="attempts_beyond_budget",
        meaning="no job is tried more often than its bounds allow",
        query=_beyond_budget(limits.work.item_losses_max, limits.work.closing_attempts_max),
    )


@functools.cache
def _beyond_budget(item_losses_max: int, closing_attempts_max: int) -> Query:
    kinds = (
        select(
            attempts.c.job_id,
            func.count().label("attempts"),
            func.sum(
                case((attempts.c.outcome.in_([AttemptOutcome.YIELDED, AttemptOutcome.REQUEUED]), 1), else_=0)
            ).label("yields"),
            func.sum(case((attempts.c.kind == "closing", 1), else_=0)).label("closing"),
        )
        .group_by(attempts.c.job_id)
        .subquery("tried")
    )
    allowed = (
        jobs.c.max_attempts + item_losses_max * jobs.c.items_requested + kinds.c.yields + kinds.c.closing
    )
    worst = (
        select(items.c.job_id, func.max(items.c.losses).label("losses"))
        .group_by(items.c.job_id)
        .subquery("worst")
    )
    return (
        select(
            jobs.c.job_id,
            kinds.c.attempts,
            allowed.label("allowed"),
            jobs.c.attempts_spent,
            jobs.c.max_attempts,
            jobs.c.closing_attempts,
            worst.c.losses.label("most_item_losses"),
        )
        .join(kinds, kinds.c.job_id == jobs.c.job_id)
        .join(worst, worst.c.job_id == jobs.c.job_id)
        .where(
            or_(
                kinds.c.attempts > allowed,
                jobs.c.attempts_spent > jobs.c.max_attempts,
                jobs.c.closing_attempts > closing_attempts_max,
                worst.c.losses > item_losses_max,
            )
        )
        .order_by(jobs.c.job_id)
    )


def abandoned_leases(tx: LedgerTransaction, *, limits: Limits) -> Finding:
    """Find leases that ended and that nobody took over, and open attempts that own nothing any more."""
    limit = tx.now() - dt.timedelta(seconds=limits.work.lease_ttl_s)
    running = jobs.c.state == JobState.RUNNING
    expired = select(
        jobs.c.job_id,
        literal("lease_expired").label("fault"),
        jobs.c.lease_epoch,
        jobs.c.lease_owner.label("owner"),
        jobs.c.lease_expires_at.label("since"),
    ).where(running, jobs.c.lease_owner.is_not(None), jobs.c.lease_expires_at <= limit)
    left = (
        select(
            attempts.c.job_id,
            literal("attempt_never_closed").label("fault"),
            attempts.c.lease_epoch,
            attempts.c.owner,
            attempts.c.opened_at.label("since"),
        )
        .join(jobs, jobs.c.job_id == attempts.c.job_id)
        .where(attempts.c.closed_at.is_(None))
        .where(or_(jobs.c.lease_epoch != attempts.c.lease_epoch, jobs.c.lease_owner.is_(None)))
    )
    both = sa.union_all(expired, left).subquery("abandoned")
    return find(
        tx,
        name="abandoned_leases",
        meaning="a lease that ended is taken over, and its attempt is closed",
        query=select(both).order_by(both.c.job_id, both.c.lease_epoch),
    )


def queue_age_beyond_capacity(tx: LedgerTransaction, *, queue_age_s: float) -> Finding:
    """Find accepted jobs that have waited for a worker longer than the age that operators are warned of."""
    limit = tx.now() - dt.timedelta(seconds=queue_age_s)
    query = (
        select(
            jobs.c.job_id,
            jobs.c.phase,
            jobs.c.release_id,
            jobs.c.items_requested,
            jobs.c.submitted_at,
            jobs.c.queue_deadline,
        )
        .where(jobs.c.state == JobState.ACCEPTED)
        .where(jobs.c.submitted_at < limit)
        .order_by(jobs.c.submitted_at, jobs.c.job_id)
    )
    return find(
        tx,
        name="queue_age_beyond_capacity",
        meaning="no job waits for its first claim longer than the warning age",
        query=query,
    )


RECENT_JOBS = 50
RECENT_ITEMS = 200
MICROSECONDS = 1_000_000


def item_seconds(tx: LedgerTransaction, *, assumed_s: float) -> float:
    """Return the mean seconds of the items finished last, or what is assumed until there are some.

    Of the newest successes those items count that were computed, and of these the newest.
    """
    began = sa.type_coerce(items.c.begun_at, sa.BigInteger)
    ended = sa.type_coerce(items.c.finished_at, sa.BigInteger)
    newest = (
        select(jobs.c.job_id)
        .where(jobs.c.state == JobState.SUCCEEDED)
        .order_by(jobs.c.submitted_at.desc(), jobs.c.job_id.desc())
        .limit(RECENT_JOBS)
    )
    recent = (
        select((ended - began).label("took"))
        .where(items.c.job_id.in_(newest))
        .where(items.c.begun_at.is_not(None), items.c.finished_at.is_not(None), items.c.invocations > 0)
        .order_by(items.c.finished_at.desc(), items.c.job_id, items.c.ordinal)
        .limit(RECENT_ITEMS)
        .subquery("recent")
    )
    mean = tx.scalar(select(func.avg(recent.c.took)))
    return float(mean) / MICROSECONDS if mean else assumed_s


def beyond_capacity(tx: LedgerTransaction, limits: Limits, at: AlertThresholds) -> Finding:
    """Find the earliest deadline by which the open items up to it cannot be done, in order of deadlines."""
    each_s = item_seconds(tx, assumed_s=at.item_s)
    waiting = (
        select(
            jobs.c.job_id,
            jobs.c.queue_deadline,
            func.sum(jobs.c.items_requested - jobs.c.checkpoint)
            .over(order_by=(jobs.c.queue_deadline, jobs.c.job_id))
            .label("items_before"),
        )
        .where(jobs.c.terminal_at.is_(None))
        .subquery("waiting")
    )
    each_us = each_s * MICROSECONDS / max(1, limits.work.wave_slots)
    now_us = (tx.now() - EPOCH) // MICROSECOND
    done_us = now_us + waiting.c.items_before * each_us
    query = (
        select(
            literal("capacity").label("subject"),
            waiting.c.items_before.label("items_waiting"),
            literal(round(each_s, 3)).label("seconds_per_item"),
            literal(limits.work.wave_slots).label("slots"),
            waiting.c.queue_deadline.label("deadline"),
        )
        .where(sa.type_coerce(waiting.c.queue_deadline, sa.BigInteger) < done_us)
        .order_by(waiting.c.queue_deadline, waiting.c.items_before.desc())
        .limit(1)
    )
    return find(tx, name="capacity", meaning="the queue is worked off before its deadlines", query=query)
