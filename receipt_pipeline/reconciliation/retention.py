"""Purge payloads after their retention, and scans without a hold; the job's row stays."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from receipt_pipeline.core.failure_points import point
from receipt_pipeline.ledger.effects.objects import (
    condemn_scan,
    held_keys,
    mark_scan,
    marked_scans,
    release_stale_copies,
    removed_scans,
)
from receipt_pipeline.ledger.effects.retention import (
    add_result_tombstones,
    due_diagnostics,
    due_results,
    forget_diagnostics,
    record_purged,
    unfinished_purges,
)
from receipt_pipeline.objects.store import SCANS_PREFIX, SET_ASIDE_PREFIX, ObjectEntry
from receipt_pipeline.reconciliation.context import JOBS_BATCH_MAX, OBJECTS_BATCH_MAX, ReconciliationContext


def expire_results(context: ReconciliationContext) -> list[str]:
    """Purge the payload of every closed job whose retention has passed and that nothing holds.

    A crash after the tombstone is finished by the next pass: the tombstone is the decision.

    Returns:
        The ids of the jobs that were purged.
    Raises:
        ObjectFault: the store refused a deletion; the next pass repeats it.
    """
    with context.ledger.reading() as tx:
        begun = unfinished_purges(tx, limit=JOBS_BATCH_MAX)
        due = due_results(tx, limit=JOBS_BATCH_MAX)
    left: dict[str, list[str]] = {}
    for row in begun:
        left.setdefault(row["job_id"], []).append(row["object_key"])
    purged = [job_id for job_id, keys in left.items() if _purge(context, job_id, keys)]
    for job_id in due:
        if job_id in left:
            continue
        with context.ledger.transaction() as tx:
            keys = add_result_tombstones(tx, job_id=job_id)
        if keys is not None and _purge(context, job_id, keys):
            purged.append(job_id)
    return purged


def _purge(context: ReconciliationContext, job_id: str, keys: Sequence[str]) -> bool:
    point("retention.before")
    for key in keys:
        context.objects.delete(key)
    point("retention.after")
    with context.ledger.transaction() as tx:
        return record_purged(tx, job_id=job_id)


def expire_diagnostics(context: ReconciliationContext) -> list[str]:
    """Remove hosts, runs and measurements of attempts, sooner than any payload; returns job ids."""
    with context.ledger.reading() as tx:
        due = due_diagnostics(tx, retention_s=context.limits.retention.diagnostics_retention_s, limit=JOBS_BATCH_MAX)
    for job_id in due:
        with context.ledger.transaction() as tx:
            forget_diagnostics(tx, job_id)
    return due


@dataclass(frozen=True, slots=True)
class ScanSweep:
    """What one sweep of the stored scans changed.

    Attributes:
        removed: keys of scans that had no hold for the grace.
        marked: scans without a hold, marked now for a later pass.
        holds_released: holds of acceptances that never answered, past `copy_hold_s`.
    """

    removed: tuple[str, ...]
    marked: int
    holds_released: int


def sweep_scans(context: ReconciliationContext) -> ScanSweep:
    """Remove scans without a hold: marked now, removed when they have none a grace later.

    Nothing that an accepted, unpurged job names is ever marked or removed, with or without a hold.
    What was set aside under the key of a removed scan goes with it. The next pass finishes a deletion
    that a crash prevented: the tombstone is the decision.
    """
    limits = context.limits
    with context.ledger.transaction() as tx:
        now = tx.now()
        released = release_stale_copies(tx, before=now - dt.timedelta(seconds=limits.retention.copy_hold_s))
        due = marked_scans(
            tx, before=now - dt.timedelta(seconds=limits.retention.orphan_grace_s), limit=OBJECTS_BATCH_MAX
        )
    for key in due:
        with context.ledger.transaction() as tx:
            condemn_scan(tx, key)
    removed: list[str] = []
    marked = 0
    old = now - dt.timedelta(seconds=limits.retention.orphan_grace_s)
    for batch in _stored_scans(context):
        with context.ledger.reading() as tx:
            condemned = removed_scans(tx, [entry.key for entry in batch])
            held = held_keys(tx, [entry.key for entry in batch])
        removed += [key for key in sorted(condemned - held) if _remove(context, key)]
        unheld = [entry.key for entry in batch if entry.key not in held | condemned and entry.modified_at <= old]
        marked += _mark(context, unheld)
    return ScanSweep(tuple(removed), marked, released)


def _mark(context: ReconciliationContext, keys: Sequence[str]) -> int:
    """Mark scans in one transaction; returns how many are newly marked."""
    if not keys:
        return 0
    with context.ledger.transaction() as tx:
        return sum(mark_scan(tx, key) for key in keys)


def _stored_scans(context: ReconciliationContext) -> Iterator[list[ObjectEntry]]:
    entries = context.objects.listing(SCANS_PREFIX)
    while batch := list(islice(entries, OBJECTS_BATCH_MAX)):
        yield batch


def _remove(context: ReconciliationContext, key: str) -> bool:
    """Remove a scan, unless it got a hold meanwhile: then it is put back as it was.

    Acceptance writes its hold before it looks for the scan, so one of the two sees the other.
    """
    data = context.objects.read(key)
    context.objects.delete(key)
    with context.ledger.reading() as tx:
        is_held = bool(held_keys(tx, [key]))
    if is_held:
        context.objects.put(key, data)
        return False
    for aside in list(context.objects.listing(f"{SET_ASIDE_PREFIX}{key}/")):
        context.objects.delete(aside.key)
    return True
