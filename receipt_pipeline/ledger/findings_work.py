"""Finds what is wrong with the work on jobs in the ledger alone: attempt budgets, leases, queue age."""

from __future__ import annotations

import datetime as dt
import functools

import sqlalchemy as sa
from sqlalchemy import case, func, literal, or_, select

from receipt_pipeline.core.attempt_outcome import AttemptOutcome
from receipt_pipeline.core.job_lifecycle import JobState
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.findings import Finding, Query, find
from receipt_pipeline.ledger.tables import attempts, items, jobs

GIVEN_BACK = (AttemptOutcome.YIELDED, AttemptOutcome.REQUEUED)


def attempts_beyond_budget(tx: LedgerTransaction, *, limits: ServiceLimits) -> Finding:
    """Find jobs that were tried more often than their bounds allow (R078).

    attempts ≤ max_attempts + item_losses_max × items + yields + closing attempts; one that an operator
    requeued counts as a yield.
    """
    return find(
        tx,
        name="attempts_beyond_budget",
        meaning="no job is tried more often than its bounds allow",
        query=_beyond_budget(limits.item_losses_max, limits.closing_attempts_max),
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


def abandoned_leases(tx: LedgerTransaction, *, limits: ServiceLimits) -> Finding:
    """Find leases that ended and that nobody took over, and open attempts that own nothing any more."""
    limit = tx.now() - dt.timedelta(seconds=limits.lease_ttl_s)
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
