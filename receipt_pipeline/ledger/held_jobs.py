"""Jobs held for an unknown effect: which there are, and how they go on once the effect is known."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer, bindparam, select, update

from receipt_pipeline.core.effect_lifecycle import EffectKind, EffectState
from receipt_pipeline.core.item_classes import ItemClass
from receipt_pipeline.core.job_lifecycle import CloseCause, JobState, Phase
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.core.reasons import ATTEMPTS_EXHAUSTED
from receipt_pipeline.ledger.closing import settle_open_items
from receipt_pipeline.ledger.effect_tables import effects
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.findings import is_terminal
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.losses import read_job
from receipt_pipeline.ledger.tables import jobs

UNDECIDED = (EffectState.INTENDED, EffectState.UNKNOWN)


_AT_MOST = bindparam("at_most", type_=Integer())
_RECONCILING = (
    select(jobs.c.job_id, jobs.c.lease_epoch)
    .where(jobs.c.state == JobState.RUNNING)
    .where(jobs.c.phase == Phase.RECONCILING)
    .where(jobs.c.lease_owner.is_(None))
    .order_by(jobs.c.latest_seq)
    .limit(_AT_MOST)
)
_IS_HELD = (jobs.c.state == JobState.RUNNING) & (jobs.c.phase == Phase.RECONCILING)
_UNDECIDED_UPLOADS = (
    select(effects, is_terminal().label("closed"))
    .join(jobs, jobs.c.job_id == effects.c.job_id)
    .where(effects.c.kind == EffectKind.RESULT_OBJECT)
    .where(effects.c.state.in_(UNDECIDED))
    .where(_IS_HELD | is_terminal())
    .order_by(effects.c.intended_at, effects.c.effect_id)
    .limit(_AT_MOST)
)


def reconciling_jobs(tx: LedgerTransaction, *, at_most: int) -> list[dict[str, Any]]:
    """Return the jobs in phase `reconciling`, longest held first: id and epoch."""
    return tx.rows(_RECONCILING, {"at_most": at_most})


def undecided_uploads(tx: LedgerTransaction, *, at_most: int) -> list[dict[str, Any]]:
    """Return uploads that may or may not have happened and that no worker will look up.

    Those are intents of jobs that are held, and of jobs that closed without naming them.
    """
    return tx.rows(_UNDECIDED_UPLOADS, {"at_most": at_most})


def release_held(
    tx: LedgerTransaction, *, job_id: str, seen_epoch: int, granted: bool, limits: ServiceLimits
) -> bool:
    """Let a held job go on to closing attempts; False when it moved on or its closing bound is spent.

    A closing attempt computes nothing: it publishes what the checkpoints hold, under an object that is
    already there where one is. Only a person's grant gives a new bound (R112).
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job["phase"] != Phase.RECONCILING or job["lease_epoch"] != seen_epoch:
        return False
    spent = job["closing_attempts"] >= limits.closing_attempts_max
    if spent and not granted:
        return False
    settle_open_items(
        tx, job_id, begun=ItemClass.UNRESOLVED, waiting=ItemClass.UNRESOLVED, reason=ATTEMPTS_EXHAUSTED
    )
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.phase == Phase.RECONCILING)
        .where(jobs.c.lease_epoch == seen_epoch)
        .values(
            phase=Phase.CLOSING,
            close_cause=job["close_cause"] or CloseCause.FINISHED,
            closing_attempts=0 if spent else job["closing_attempts"],
            retry_at=None,
            wave_id=None,
        )
    )
    if written.rowcount == 1:
        append_event(tx, EventKind.CLOSING, job_id=job_id, cause="effect_known", granted=granted or None)
    return written.rowcount == 1
