"""Turns ready jobs into waves: bounded reservations that a run is launched for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction
from receipt_pipeline.ledger.jobs.waves import (
    Wave,
    close_silent_waves,
    count_ready_items,
    mark_incapable,
    open_waves,
    register_worker,
    reserve_wave,
)

READY_POLL_S = 0.6


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one pass did: waves to launch (new and not started yet), silent ones closed, jobs stranded."""

    to_launch: tuple[Wave, ...]
    closed: tuple[str, ...]
    stranded: tuple[str, ...]


def dispatch_waves(ledger: Ledger, *, worker_id: str, release_ids: Sequence[str], limits: Limits) -> Dispatched:
    """Register this installation, close silent waves, reserve ready jobs for the free slots.

    A wave that was reserved but whose run never started is handed out again: its run key is the
    same, so that it is launched once however often the pass is repeated.
    """
    with ledger.transaction() as tx:
        register_worker(tx, worker_id=worker_id, release_ids=release_ids)
        closed = close_silent_waves(tx, limits=limits)
        stranded = mark_incapable(tx, worker_ttl_s=limits.work.worker_ttl_s)
    point("reserve.before")
    with ledger.transaction() as tx:
        _reserve_free_slots(tx, limits)
        waiting = [row for row in open_waves(tx) if row["started_at"] is None]
    point("reserve.after")
    waves = tuple(Wave(row["wave_id"], row["dispatch_no"], row["items_total"], row["jobs_total"]) for row in waiting)
    return Dispatched(waves, tuple(closed), tuple(stranded))


def await_ready(
    ledger: Ledger,
    *,
    wait_s: float,
    limits: Limits,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Wait a moment for work that one wave should take together; returns the ready items.

    A manifest is accepted row by row: what is ready is taken up once it has stopped growing, so
    that the waves share it fairly. Returns at once when no slot is free, and after `wait_s` anyway.
    """
    ends_at = monotonic() + wait_s
    seen = 0
    while True:
        with ledger.reading() as tx:
            free = len(open_waves(tx)) < limits.work.wave_slots
            ready = count_ready_items(tx) if free else 0
        if not free or (ready and ready == seen) or monotonic() >= ends_at:
            return ready
        seen = ready
        sleep(READY_POLL_S)


def _reserve_free_slots(tx: LedgerTransaction, limits: Limits) -> None:
    """Share what is ready fairly among the free slots, so that all cores end at about the same time."""
    free = limits.work.wave_slots - len(open_waves(tx))
    ready = count_ready_items(tx)
    while free > 0 and ready > 0:
        share = min(limits.work.wave_items_max, max(1, -(-ready // free)))
        wave = reserve_wave(
            tx, items_max=share, jobs_max=limits.work.wave_jobs_max, worker_ttl_s=limits.work.worker_ttl_s
        )
        if wave is None:
            return
        ready -= wave.items_total
        free -= 1


def plan_groups(wave: Sequence[tuple[str, int]], *, items_per_group: int) -> list[list[str]]:
    """Split a wave's jobs (id, items) into groups of about `items_per_group`, in order.

    A step costs a third of a second, so small jobs share one; a large job has its own.
    """
    groups: list[list[str]] = []
    filled = items_per_group
    for job_id, count in wave:
        if filled + count > items_per_group or not groups:
            groups.append([])
            filled = 0
        groups[-1].append(job_id)
        filled += count
    return groups
