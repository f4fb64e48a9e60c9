"""Invariants over budgets, leases and capacity."""

from __future__ import annotations

import datetime as dt
import functools

import sqlalchemy as sa
from sqlalchemy import bindparam, case, func, literal, or_, select

from receipt_pipeline.core.attempts import AttemptOutcome
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.reasons import ATTEMPTS_BEYOND_BUDGET
from receipt_pipeline.ledger.changes import LedgerReader
from receipt_pipeline.ledger.invariants.invariant import JOB_LEDGER, Bounds, Invariant, Investigate, Query, always
from receipt_pipeline.ledger.investigations import InvestigationKind
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND

YIELDED_OR_REQUEUED = (AttemptOutcome.YIELDED, AttemptOutcome.REQUEUED)


@functools.cache
def _attempts_beyond_budget() -> Query:
    """attempts <= max_attempts + item_losses_max * items + yields + closing attempts, per job.

    An attempt that an operator requeued counts as a yield.
    """
    item_losses_max = bindparam("item_losses_max", type_=sa.Integer())
    made = (
        select(
            attempts.c.job_id,
            func.count().label("attempts"),
            func.sum(case((attempts.c.outcome.in_(YIELDED_OR_REQUEUED), 1), else_=0)).label("yields"),
            func.sum(case((attempts.c.kind == "closing", 1), else_=0)).label("closing"),
        )
        .group_by(attempts.c.job_id)
        .subquery("made")
    )
    allowed = jobs.c.max_attempts + item_losses_max * jobs.c.items_requested + made.c.yields + made.c.closing
    worst = select(items.c.job_id, func.max(items.c.losses).label("losses")).group_by(items.c.job_id).subquery("worst")
    return (
        select(
            jobs.c.job_id,
            made.c.attempts,
            allowed.label("allowed"),
            jobs.c.attempts_spent,
            jobs.c.max_attempts,
            jobs.c.closing_attempts,
            worst.c.losses.label("most_item_losses"),
        )
        .join(made, made.c.job_id == jobs.c.job_id)
        .join(worst, worst.c.job_id == jobs.c.job_id)
        .where(
            or_(
                made.c.attempts > allowed,
                jobs.c.attempts_spent > jobs.c.max_attempts,
                jobs.c.closing_attempts > bindparam("closing_attempts_max", type_=sa.Integer()),
                worst.c.losses > item_losses_max,
            )
        )
        .order_by(jobs.c.job_id)
    )


ATTEMPTS_WITHIN_BUDGET = Invariant(
    name="attempts_within_budget",
    finding="attempts_beyond_budget",
    asset=JOB_LEDGER,
    meaning="No job is attempted more often than its limits allow.",
    violations=lambda reader, bounds: _attempts_beyond_budget().params(
        item_losses_max=bounds.limits.work.item_losses_max, closing_attempts_max=bounds.limits.work.closing_attempts_max
    ),
    investigation=Investigate(
        InvestigationKind.ATTEMPTS_BEYOND_BUDGET,
        reason=ATTEMPTS_BEYOND_BUDGET,
        suspected_effect="the model may have been called more often than was paid for",
        resolved_when="the attempts are within their limits again",
        evidence=("attempts", "allowed", "attempts_spent", "max_attempts"),
        a_note_resolves=always,
    ),
    repair="`receipts status {job_id} --audience engineering`. Find out who claimed the job so often;"
    " nothing is taken back.",
)


def _abandoned_leases(reader: LedgerReader, bounds: Bounds) -> Query:
    limit = reader.now() - dt.timedelta(seconds=bounds.limits.work.lease_ttl_s)
    expired = select(
        jobs.c.job_id,
        literal("lease_expired").label("fault"),
        jobs.c.lease_epoch,
        jobs.c.lease_owner.label("owner"),
        jobs.c.lease_expires_at.label("since"),
    ).where(jobs.c.state == JobState.RUNNING, jobs.c.lease_owner.is_not(None), jobs.c.lease_expires_at <= limit)
    never_closed = (
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
    both = sa.union_all(expired, never_closed).subquery("abandoned")
    return select(both).order_by(both.c.job_id, both.c.lease_epoch)


NO_ABANDONED_LEASE = Invariant(
    name="no_abandoned_lease",
    finding="abandoned_leases",
    asset=JOB_LEDGER,
    meaning="Each lease that ended is taken over, and its attempt is closed.",
    violations=_abandoned_leases,
    repair="`receipts reconcile`. It takes over expired leases; if nothing reconciles, start: `receipts up`",
)


def _queue_age_beyond_capacity(reader: LedgerReader, bounds: Bounds) -> Query:
    limit = reader.now() - dt.timedelta(seconds=bounds.thresholds.queue_age_s)
    return (
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


QUEUE_AGE_WITHIN_CAPACITY = Invariant(
    name="queue_age_within_capacity",
    finding="queue_age_beyond_capacity",
    asset=JOB_LEDGER,
    meaning="No job waits for its first claim longer than the age at which operators are warned.",
    violations=_queue_age_beyond_capacity,
    repair="Add workers, or cancel what is no longer needed: `receipts cancel {job_id}`",
    whole_ledger=False,
    warns=True,
)


RECENT_JOBS = 50
RECENT_ITEMS = 200
MICROSECONDS = 1_000_000


def item_seconds(reader: LedgerReader, *, assumed_s: float) -> float:
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
    (row,) = reader.rows(select(func.avg(recent.c.took).label("mean_us")))
    return float(row["mean_us"]) / MICROSECONDS if row["mean_us"] else assumed_s


def queue_beyond_capacity(reader: LedgerReader, bounds: Bounds) -> Query:
    """Find the earliest deadline by which the open items up to it cannot be done, in order of deadlines."""
    each_s = item_seconds(reader, assumed_s=bounds.thresholds.item_s)
    slots = bounds.limits.work.wave_slots
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
    now_us = (reader.now() - EPOCH) // MICROSECOND
    done_us = now_us + waiting.c.items_before * (each_s * MICROSECONDS / max(1, slots))
    return (
        select(
            literal("capacity").label("subject"),
            waiting.c.items_before.label("items_waiting"),
            literal(round(each_s, 3)).label("seconds_per_item"),
            literal(slots).label("slots"),
            waiting.c.queue_deadline.label("deadline"),
        )
        .where(sa.type_coerce(waiting.c.queue_deadline, sa.BigInteger) < done_us)
        .order_by(waiting.c.queue_deadline, waiting.c.items_before.desc())
        .limit(1)
    )
