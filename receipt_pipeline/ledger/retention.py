"""Retention of results: what is due, the tombstone before the deletion, and what is left afterwards."""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, exists, or_, select, update

from receipt_pipeline.core.effect_lifecycle import EffectKind, EffectState
from receipt_pipeline.core.job_lifecycle import TERMINAL_STATES, JobState
from receipt_pipeline.core.reasons import RESULT_RETIRED
from receipt_pipeline.ledger.columns import EPOCH, MICROSECOND
from receipt_pipeline.ledger.effect_tables import (
    effects,
    investigations,
    object_refs,
    quarantine,
    tombstones,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import OPEN as QUESTION_OPEN
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.losses import read_job
from receipt_pipeline.ledger.object_records import bury
from receipt_pipeline.ledger.quarantines import OPEN
from receipt_pipeline.ledger.tables import items, jobs

MICROS_PER_S = 1_000_000


def due_results(tx: LedgerTransaction, *, at_most: int) -> list[str]:
    """Return succeeded jobs past terminal time + retention that nothing holds, oldest first."""
    query = select(jobs.c.job_id).where(_is_due(tx.now())).where(~_is_held())
    return [str(row["job_id"]) for row in tx.rows(query.order_by(jobs.c.terminal_at).limit(at_most))]


def _is_due(now: dt.datetime) -> ColumnElement[bool]:
    # The product exceeds 32 bits, so the database has to multiply wider than the column is.
    retained = sa.cast(jobs.c.result_retention_s, sa.BigInteger) * MICROS_PER_S
    ends = sa.type_coerce(jobs.c.terminal_at, sa.BigInteger) + retained
    return sa.and_(
        jobs.c.state == JobState.SUCCEEDED,
        jobs.c.result_purged_at.is_(None),
        ends <= (now - EPOCH) // MICROSECOND,
    )


def _is_held() -> ColumnElement[bool]:
    """An open question, quarantine, missing effect, unconsumed decision, open child or hold."""
    child = jobs.alias("child")
    unsettled = effects.c.state.not_in([EffectState.COMMITTED, EffectState.ABANDONED])
    needed = or_(effects.c.required, effects.c.kind == EffectKind.REVIEW_TASKS)
    return or_(
        exists(
            select(investigations.c.investigation_id).where(
                investigations.c.job_id == jobs.c.job_id, investigations.c.state == QUESTION_OPEN
            )
        ),
        exists(
            select(quarantine.c.quarantine_id).where(
                quarantine.c.job_id == jobs.c.job_id, quarantine.c.state == OPEN
            )
        ),
        exists(select(effects.c.effect_id).where(effects.c.job_id == jobs.c.job_id, needed, unsettled)),
        exists(
            select(child.c.job_id).where(
                child.c.parent_job_id == jobs.c.job_id, child.c.state.not_in(sorted(TERMINAL_STATES))
            )
        ),
        exists(select(object_refs.c.holder).where(object_refs.c.object_key == jobs.c.result_key)),
    )


def bury_result(tx: LedgerTransaction, *, job_id: str) -> list[str]:
    """Write tombstones for the result and every other upload of the job; returns the keys to delete.

    Empty when the result is not due, held again, or purged: the whole reason is repeated under the lock.
    """
    job = read_job(tx, job_id, lock=True)
    still = tx.row(
        select(jobs.c.job_id).where(jobs.c.job_id == job_id).where(_is_due(tx.now())).where(~_is_held())
    )
    if job is None or still is None:
        return []
    uploads = tx.rows(
        select(effects.c.idempotency_key, effects.c.expected_digest)
        .where(effects.c.job_id == job_id)
        .where(effects.c.kind == EffectKind.RESULT_OBJECT)
    )
    keys = {row["idempotency_key"]: row["expected_digest"] for row in uploads}
    keys[job["result_key"]] = job["result_digest"]
    for key in sorted(keys):
        bury(tx, object_key=key, job_id=job_id, reason=RESULT_RETIRED.code, digest=keys[key])
    return sorted(keys)


def record_purged(tx: LedgerTransaction, *, job_id: str) -> bool:
    """Record that the payload is gone: objects deleted, extracted fields removed; the record stays.

    Class, decision, reasons and digests of the items are kept, so that a dispute can be explained.
    """
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state == JobState.SUCCEEDED)
        .where(jobs.c.result_purged_at.is_(None))
        .values(result_purged_at=tx.now())
    )
    if written.rowcount == 0:
        return False
    tx.execute(update(items).where(items.c.job_id == job_id).values(fields=sa.null(), evidence=sa.null()))
    append_event(tx, EventKind.RESULT_PURGED, job_id=job_id)
    return True


def buried_but_unpurged(tx: LedgerTransaction, *, at_most: int) -> list[dict[str, Any]]:
    """Return tombstones of results whose deletion was not recorded: a crash came between."""
    query = (
        select(tombstones.c.job_id, tombstones.c.object_key)
        .join(jobs, jobs.c.job_id == tombstones.c.job_id)
        .where(jobs.c.result_purged_at.is_(None))
        .where(tombstones.c.reason == RESULT_RETIRED.code)
        .order_by(tombstones.c.job_id, tombstones.c.object_key)
        .limit(at_most)
    )
    return tx.rows(query)
