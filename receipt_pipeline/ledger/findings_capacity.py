"""Finds whether the queue can be worked off before its next deadline, at the rate that was seen."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import func, literal, select

from receipt_pipeline.core.alerts import AlertThresholds
from receipt_pipeline.core.job_lifecycle import JobState
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.ledger.columns import EPOCH, MICROSECOND
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.findings import Finding, find
from receipt_pipeline.ledger.tables import items, jobs

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


def beyond_capacity(tx: LedgerTransaction, limits: ServiceLimits, at: AlertThresholds) -> Finding:
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
    each_us = each_s * MICROSECONDS / max(1, limits.wave_slots)
    now_us = (tx.now() - EPOCH) // MICROSECOND
    done_us = now_us + waiting.c.items_before * each_us
    query = (
        select(
            literal("capacity").label("subject"),
            waiting.c.items_before.label("items_waiting"),
            literal(round(each_s, 3)).label("seconds_per_item"),
            literal(limits.wave_slots).label("slots"),
            waiting.c.queue_deadline.label("deadline"),
        )
        .where(sa.type_coerce(waiting.c.queue_deadline, sa.BigInteger) < done_us)
        .order_by(waiting.c.queue_deadline, waiting.c.items_before.desc())
        .limit(1)
    )
    return find(tx, name="capacity", meaning="the queue is worked off before its deadlines", query=query)
