"""Gives up a result that is lost: the record stays, nothing is served, and nobody looks for it any more."""

from __future__ import annotations

from sqlalchemy import update

from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.reasons import RESULT_WITHDRAWN, STATE_REFUSES
from receipt_pipeline.ledger.effects.objects import bury
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.failures import read_job
from receipt_pipeline.ledger.jobs.finalize import settle_if_done
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.effects import effects, review_tasks


def withdraw_result(tx: LedgerTransaction, *, job_id: str, by: str) -> None:
    """Record that the result of a succeeded job is given up; whatever lies under its key stays there.

    State and class stay. Tasks that were made are disputed, those that were not are never made.

    Raises:
        NotAllowed: STATE.REFUSES.v1 when the job has not succeeded.
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job["state"] != JobState.SUCCEEDED:
        raise NotAllowed(STATE_REFUSES, job_id=job_id)
    bury(
        tx,
        object_key=job["result_key"],
        job_id=job_id,
        reason=RESULT_WITHDRAWN.code,
        digest=job["result_digest"],
    )
    tx.execute(update(review_tasks).where(review_tasks.c.job_id == job_id).values(disputed=True))
    tx.execute(
        update(effects)
        .where(effects.c.job_id == job_id)
        .where(effects.c.kind == EffectKind.REVIEW_TASKS)
        .where(effects.c.state.not_in([EffectState.COMMITTED, EffectState.ABANDONED]))
        .values(state=EffectState.ABANDONED, reason_code=RESULT_WITHDRAWN.code, updated_at=tx.now())
    )
    append_event(
        tx,
        EventKind.RESULT_WITHDRAWN,
        job_id=job_id,
        tenant=job["tenant"],
        digest=job["result_digest"],
        by=by,
    )
    settle_if_done(tx, job_id)
