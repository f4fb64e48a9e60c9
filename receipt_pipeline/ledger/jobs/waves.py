"""Reserve, extend and close waves; register workers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, insert, literal, not_, or_, select, update
from sqlalchemy.sql import ColumnElement

from receipt_pipeline.core.lifecycle import HELD_PHASES, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.schema.jobs import jobs, waves, workers

OPEN = "open"
CLOSED = "closed"
READY_SCAN_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Wave:
    """A reservation: its id, dispatch number and size."""

    wave_id: str
    dispatch_no: int
    items_total: int
    jobs_total: int

    @property
    def run_key(self) -> str:
        """Return the key under which Dagster launches this dispatch, and never another."""
        return f"{self.wave_id}:{self.dispatch_no}"


def _is_ready(now: dt.datetime) -> ColumnElement[bool]:
    """Ready: accepted, or running without a live lease, due, and not held; in no live wave.

    It is written as what an open job must not be, so that the databases walk the index of open jobs
    in order of submission and stop at the limit.
    """
    not_ready = and_(
        jobs.c.state == JobState.RUNNING,
        or_(
            and_(jobs.c.lease_owner.is_not(None), jobs.c.lease_expires_at > now),
            and_(jobs.c.retry_at.is_not(None), jobs.c.retry_at > now),
            jobs.c.phase.in_(HELD_PHASES),
        ),
    )
    return and_(jobs.c.terminal_at.is_(None), jobs.c.wave_id.is_(None), not_(not_ready))


def supported_release_ids(tx: LedgerTransaction, *, worker_ttl_s: float) -> set[str]:
    """Return the release ids that some live worker supports."""
    since = tx.now() - dt.timedelta(seconds=worker_ttl_s)
    rows = tx.rows(select(workers.c.release_ids).where(workers.c.heartbeat_at >= since))
    return {release_id for row in rows for release_id in row["release_ids"]}


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for a wave, how many waves are open, and the next queue deadline of a waiting job."""

    jobs: int
    items: int
    waves: int
    deadline: dt.datetime | None


def read_queue(tx: LedgerTransaction) -> Queue:
    """Return what waits for a wave now."""
    query = select(
        func.count().label("jobs"),
        func.coalesce(func.sum(jobs.c.items_requested), 0).label("items"),
        func.min(jobs.c.queue_deadline).label("deadline"),
    ).where(_is_ready(tx.now()))
    (row,) = tx.rows(query)
    return Queue(int(row["jobs"]), int(row["items"]), len(open_waves(tx)), row["deadline"])


def count_ready_items(tx: LedgerTransaction) -> int:
    """Return how many items of ready jobs wait for a wave."""
    return int(tx.scalar(select(func.sum(jobs.c.items_requested)).where(_is_ready(tx.now()))) or 0)


def _choose_ready(
    tx: LedgerTransaction, *, items_max: int, jobs_max: int, worker_ttl_s: float
) -> tuple[list[str], int]:
    """Return ready jobs that a live worker can claim, oldest first, and how many items they have.

    A closing job computes nothing, so that any worker can claim it.
    """
    supported = sorted(supported_release_ids(tx, worker_ttl_s=worker_ttl_s))
    ready = (
        select(jobs.c.job_id, jobs.c.items_requested)
        .where(_is_ready(tx.now()), or_(jobs.c.release_id.in_(supported), jobs.c.close_cause.is_not(None)))
        .order_by(jobs.c.submitted_at, jobs.c.job_id)
        .limit(min(jobs_max, READY_SCAN_MAX))
        .with_for_update(skip_locked=True)
    )
    chosen: list[str] = []
    total = 0
    for row in tx.rows(ready):
        if chosen and total + row["items_requested"] > items_max:
            break
        chosen.append(row["job_id"])
        total += row["items_requested"]
    return chosen, total


def reserve_wave(tx: LedgerTransaction, *, items_max: int, jobs_max: int, worker_ttl_s: float) -> Wave | None:
    """Reserve ready jobs, oldest first, for one new wave; None when nothing is ready.

    Jobs that no live worker supports are left in phase `no_capable_worker`. One large job may
    exceed `items_max` by itself: a job is never split.
    """
    now = tx.now()
    chosen, total = _choose_ready(tx, items_max=items_max, jobs_max=jobs_max, worker_ttl_s=worker_ttl_s)
    if not chosen:
        return None
    wave = Wave(new_id(tx, "wave"), 1, total, len(chosen))
    tx.execute(
        insert(waves).values(
            wave_id=wave.wave_id,
            dispatch_no=wave.dispatch_no,
            state=OPEN,
            items_total=total,
            jobs_total=len(chosen),
            created_at=now,
            heartbeat_at=now,
        )
    )
    tx.execute(update(jobs).where(jobs.c.job_id.in_(chosen)).values(wave_id=wave.wave_id))
    return wave


def extend_wave(tx: LedgerTransaction, wave_id: str, *, items_max: int, worker_ttl_s: float) -> list[str]:
    """Reserve further ready jobs for a wave that is still open; returns their ids, oldest first."""
    is_open = select(waves.c.wave_id).where(waves.c.wave_id == wave_id, waves.c.state == OPEN)
    if tx.row(is_open) is None:
        return []
    chosen, total = _choose_ready(tx, items_max=items_max, jobs_max=items_max, worker_ttl_s=worker_ttl_s)
    if chosen:
        tx.execute(update(jobs).where(jobs.c.job_id.in_(chosen)).values(wave_id=wave_id))
        tx.execute(
            update(waves)
            .where(waves.c.wave_id == wave_id)
            .values(items_total=waves.c.items_total + total, jobs_total=waves.c.jobs_total + len(chosen))
        )
    return chosen


def mark_incapable(tx: LedgerTransaction, *, worker_ttl_s: float) -> list[str]:
    """Show ready accepted jobs that no live worker supports as `no_capable_worker`, and back again."""
    supported = jobs.c.release_id.in_(sorted(supported_release_ids(tx, worker_ttl_s=worker_ttl_s)))
    is_waiting = and_(jobs.c.state == JobState.ACCEPTED, jobs.c.wave_id.is_(None))
    waiting = select(jobs.c.job_id).where(is_waiting)
    stranded = tx.rows(waiting.where(jobs.c.phase == Phase.QUEUED, not_(supported)))
    found = tx.rows(waiting.where(jobs.c.phase == Phase.NO_CAPABLE_WORKER, supported))
    for rows, phase in ((stranded, Phase.NO_CAPABLE_WORKER), (found, Phase.QUEUED)):
        for row in rows:
            # A claim may have come in between.
            changed = tx.execute(update(jobs).where(jobs.c.job_id == row["job_id"], is_waiting).values(phase=phase))
            if changed.rowcount == 1:
                append_event(tx, EventKind.PHASE_CHANGED, job_id=row["job_id"], phase=phase.value)
    return [row["job_id"] for row in stranded]


def open_waves(tx: LedgerTransaction) -> list[dict[str, Any]]:
    """Return waves that are not closed, oldest first."""
    return tx.rows(select(waves).where(waves.c.state == OPEN).order_by(waves.c.created_at))


def wave_jobs(tx: LedgerTransaction, wave_id: str) -> list[dict[str, Any]]:
    """Return the jobs still reserved for a wave, oldest first: id, items and release."""
    return tx.rows(
        select(jobs.c.job_id, jobs.c.items_requested, jobs.c.release_id)
        .where(jobs.c.wave_id == wave_id)
        .order_by(jobs.c.submitted_at, jobs.c.job_id)
    )


def renew_wave(tx: LedgerTransaction, wave_id: str, *, run_id: str) -> bool:
    """Keep a wave alive; False when it was closed meanwhile and its run should end."""
    now = tx.now()
    renewed = tx.execute(
        update(waves)
        .where(waves.c.wave_id == wave_id, waves.c.state == OPEN)
        .values(
            heartbeat_at=now,
            started_at=func.coalesce(waves.c.started_at, literal(now, waves.c.started_at.type)),
            run_id=run_id,
        )
    )
    return renewed.rowcount == 1


def close_wave(tx: LedgerTransaction, wave_id: str) -> int:
    """Close a wave and release what it still reserves; returns how many jobs were released."""
    tx.execute(
        update(waves).where(waves.c.wave_id == wave_id, waves.c.state == OPEN).values(state=CLOSED, closed_at=tx.now())
    )
    return int(tx.execute(update(jobs).where(jobs.c.wave_id == wave_id).values(wave_id=None)).rowcount)


def close_silent_waves(tx: LedgerTransaction, *, limits: Limits) -> list[str]:
    """Close every wave that was silent for `wave_ttl_s`; its unclaimed jobs are ready again.

    One that never began has `wave_start_s`: a run may be slow to start, and would find its wave closed
    and its jobs waiting for another run that is as slow. A launch that failed or was lost closes its
    wave, or is requested again, long before that.
    """
    now = tx.now()
    silent_since = now - dt.timedelta(seconds=limits.work.wave_ttl_s)
    requested_before = now - dt.timedelta(seconds=limits.work.wave_start_s)
    silent = tx.rows(
        select(waves.c.wave_id).where(
            waves.c.state == OPEN,
            waves.c.heartbeat_at <= silent_since,
            or_(waves.c.started_at.is_not(None), waves.c.heartbeat_at <= requested_before),
        )
    )
    for row in silent:
        close_wave(tx, row["wave_id"])
    return [row["wave_id"] for row in silent]


def register_worker(tx: LedgerTransaction, *, worker_id: str, release_ids: Sequence[str]) -> None:
    """Record which releases a worker's installation supports, and that it is alive."""
    now = tx.now()
    facts = {"release_ids": list(release_ids), "heartbeat_at": now}
    known = update(workers).where(workers.c.worker_id == worker_id).values(**facts)
    if tx.execute(known).rowcount:
        return
    # Two first registrations go one after another; the second finds the row of the first.
    tx.serialise(f"worker:{worker_id}")
    if tx.execute(known).rowcount == 0:
        tx.execute(insert(workers).values(worker_id=worker_id, started_at=now, **facts))
