"""Payloads due for purging, and tombstones."""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, exists, or_, select, update

from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.reasons import RESULT_RETIRED
from receipt_pipeline.ledger.effects.objects import add_tombstone, rejected_output_keys
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import OPEN as INVESTIGATION_OPEN
from receipt_pipeline.ledger.jobs.quarantine import OPEN
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.effects import effects, investigations, object_refs, quarantine, tombstones
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs, submission_rows, submissions
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND

MICROS_PER_S = 1_000_000


def due_results(tx: LedgerTransaction, *, limit: int) -> list[str]:
    """Return closed jobs past terminal time + retention that nothing holds, oldest first."""
    query = select(jobs.c.job_id).where(_is_due(tx.now())).where(~_is_held())
    return [str(row["job_id"]) for row in tx.rows(query.order_by(jobs.c.terminal_at).limit(limit))]


def _is_due(now: dt.datetime) -> ColumnElement[bool]:
    # The product exceeds 32 bits, so the database has to multiply wider than the column is.
    retained = sa.cast(jobs.c.result_retention_s, sa.BigInteger) * MICROS_PER_S
    ends = sa.type_coerce(jobs.c.terminal_at, sa.BigInteger) + retained
    return sa.and_(
        jobs.c.terminal_at.is_not(None), jobs.c.result_purged_at.is_(None), ends <= (now - EPOCH) // MICROSECOND
    )


def _is_held() -> ColumnElement[bool]:
    """An open investigation, quarantine, missing effect, unconsumed decision, open child or hold."""
    child = jobs.alias("child")
    # An upload that certainly failed holds nothing: the job closed without it, or on a later one.
    failed_upload = (effects.c.kind == EffectKind.RESULT_OBJECT) & (effects.c.state == EffectState.FAILED)
    unfinished = effects.c.state.not_in([EffectState.COMMITTED, EffectState.ABANDONED]) & ~failed_upload
    needed = or_(effects.c.required, effects.c.kind == EffectKind.REVIEW_TASKS)
    return or_(
        exists(
            select(investigations.c.investigation_id).where(
                investigations.c.job_id == jobs.c.job_id, investigations.c.state == INVESTIGATION_OPEN
            )
        ),
        exists(
            select(quarantine.c.quarantine_id).where(quarantine.c.job_id == jobs.c.job_id, quarantine.c.state == OPEN)
        ),
        exists(select(effects.c.effect_id).where(effects.c.job_id == jobs.c.job_id, needed, unfinished)),
        exists(
            select(child.c.job_id).where(
                child.c.parent_job_id == jobs.c.job_id, child.c.state.not_in(sorted(TERMINAL_STATES))
            )
        ),
        exists(select(object_refs.c.holder).where(object_refs.c.object_key == jobs.c.result_key)),
    )


def add_result_tombstones(tx: LedgerTransaction, *, job_id: str) -> list[str] | None:
    """Write tombstones for result, other uploads and refused outputs of the job; returns the keys to delete.

    None when the payload is not due, held again, or purged: the whole reason is repeated under the lock.
    A job that never stored anything has no keys and is purged all the same.
    """
    job = read_job(tx, job_id, lock=True)
    is_due = tx.row(select(jobs.c.job_id).where(jobs.c.job_id == job_id).where(_is_due(tx.now())).where(~_is_held()))
    if job is None or is_due is None:
        return None
    uploads = tx.rows(
        select(effects.c.idempotency_key, effects.c.expected_digest)
        .where(effects.c.job_id == job_id)
        .where(effects.c.kind == EffectKind.RESULT_OBJECT)
    )
    keys = {row["idempotency_key"]: row["expected_digest"] for row in uploads}
    keys |= rejected_output_keys(tx, [job_id])
    if job.result_key is not None:
        keys[job.result_key] = job.result_digest
    for key in sorted(keys):
        add_tombstone(tx, object_key=key, job_id=job_id, reason=RESULT_RETIRED.code, digest=keys[key])
    return sorted(keys)


def record_purged(tx: LedgerTransaction, *, job_id: str) -> bool:
    """Record that the payload is gone: objects deleted, extracted fields and file names removed.

    Class, decision, reasons and digests of the items are kept, so that a dispute can be explained. The
    job releases its scans: the sweep removes those that no other job holds.
    """
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state.in_(sorted(TERMINAL_STATES)))
        .where(jobs.c.result_purged_at.is_(None))
        .values(result_purged_at=tx.now())
    )
    if written.rowcount == 0:
        return False
    gone = {"fields": sa.null(), "evidence": sa.null(), "label": ""}
    tx.execute(update(items).where(items.c.job_id == job_id).values(**gone))
    tx.execute(sa.delete(object_refs).where(object_refs.c.holder == job_id))
    _forget_names(tx, job_id)
    _forget_diagnostics(tx, job_id)
    append_event(tx, EventKind.RESULT_PURGED, job_id=job_id)
    return True


def _forget_names(tx: LedgerTransaction, job_id: str) -> None:
    """Remove the file names of deliveries whose jobs are all purged."""
    mine, other = submission_rows.alias("mine"), submission_rows.alias("other")
    delivered = select(mine.c.submission_id).where(mine.c.job_id == job_id)
    needed = (
        select(other.c.submission_id)
        .join(jobs, jobs.c.job_id == other.c.job_id)
        .where(jobs.c.result_purged_at.is_(None))
    )
    tx.execute(
        update(submissions)
        .where(submissions.c.submission_id.in_(delivered))
        .where(submissions.c.submission_id.not_in(needed))
        .values(label="", place="")
    )


def due_diagnostics(tx: LedgerTransaction, *, retention_s: float, limit: int) -> list[str]:
    """Return closed jobs whose attempts still name hosts, runs and timings past their own, shorter retention.

    An open investigation keeps them: they may be its evidence.
    """
    ends = sa.type_coerce(jobs.c.terminal_at, sa.BigInteger) + int(retention_s * MICROS_PER_S)
    is_investigated = exists(
        select(investigations.c.investigation_id).where(
            investigations.c.job_id == jobs.c.job_id, investigations.c.state == INVESTIGATION_OPEN
        )
    )
    names_owner = exists(select(attempts.c.job_id).where(attempts.c.job_id == jobs.c.job_id, attempts.c.owner != ""))
    query = (
        select(jobs.c.job_id)
        .where(jobs.c.terminal_at.is_not(None))
        .where(ends <= (tx.now() - EPOCH) // MICROSECOND)
        .where(names_owner, ~is_investigated)
        .order_by(jobs.c.terminal_at)
        .limit(limit)
    )
    return [str(row["job_id"]) for row in tx.rows(query)]


def forget_diagnostics(tx: LedgerTransaction, job_id: str) -> None:
    """Remove host, run and measurements from the attempts of a job; what they came to stays."""
    _forget_diagnostics(tx, job_id)
    append_event(tx, EventKind.DIAGNOSTICS_FORGOTTEN, job_id=job_id)


def _forget_diagnostics(tx: LedgerTransaction, job_id: str) -> None:
    tx.execute(
        update(attempts)
        .where(attempts.c.job_id == job_id)
        .where(attempts.c.closed_at.is_not(None))
        .values(owner="", run_id="", facts={})
    )


def unfinished_purges(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return tombstones of results whose deletion was not recorded: a crash came between."""
    query = (
        select(tombstones.c.job_id, tombstones.c.object_key)
        .join(jobs, jobs.c.job_id == tombstones.c.job_id)
        .where(jobs.c.result_purged_at.is_(None))
        .where(tombstones.c.reason == RESULT_RETIRED.code)
        .order_by(tombstones.c.job_id, tombstones.c.object_key)
        .limit(limit)
    )
    return tx.rows(query)


def keys_being_purged(tx: LedgerTransaction) -> list[str]:
    """Return keys of results that a tombstone explains and whose removal is not recorded yet."""
    query = (
        select(tombstones.c.object_key)
        .join(jobs, jobs.c.job_id == tombstones.c.job_id)
        .where(jobs.c.result_purged_at.is_(None))
        .order_by(tombstones.c.object_key)
    )
    return [str(key) for key in tx.execute(query).scalars()]
