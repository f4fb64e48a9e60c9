"""Upload intent and upload state of a result."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.effects import EFFECT_TRANSITIONS, EffectKind, EffectState
from receipt_pipeline.core.lifecycle import CloseCause, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.expire import close_overdue_items
from receipt_pipeline.ledger.jobs.failures import begin_closing
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult, require_lease
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import EffectRow, is_terminal
from receipt_pipeline.ledger.schema.effects import effects
from receipt_pipeline.ledger.schema.jobs import jobs


def close_own_overdue_items(tx: LedgerTransaction, token: FencingToken, *, cause: CloseCause) -> None:
    """Class what a limit left open, under the worker's own lease, before it closes the job."""
    require_lease(tx, token)
    close_overdue_items(tx, token.job_id)
    begin_closing(tx, token.job_id, cause=cause)


def record_intent(tx: LedgerTransaction, token: FencingToken, result: VerifiedResult, *, limits: Limits) -> bool:
    """Commit the intent row of an upload before it starts, so that every object has a row.

    An intent of an earlier attempt with another digest is a divergence: the job is held and
    False returned; the caller must not upload.

    Raises:
        LeaseLost: a later epoch holds the job.
    """
    job = require_lease(tx, token)
    others = [row for row in uploads_of(tx, token.job_id) if row.expected_digest != result.digest]
    if others and job.close_cause is None:
        mine = {"digest": result.digest, "source": "intent", "lease_epoch": token.lease_epoch}
        found = [mine, *(intent_evidence(row) for row in others)]
        hold_divergent(tx, job_id=token.job_id, subject="result", limits=limits, further=found)
        return False
    known = tx.scalar(select(effects.c.effect_id).where(effects.c.idempotency_key == result.key))
    if known is None:
        _insert_intent(tx, token, result)
    published = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == token.job_id, jobs.c.lease_epoch == token.lease_epoch, jobs.c.phase != Phase.PUBLISHING)
        .values(phase=Phase.PUBLISHING)
    )
    if published.rowcount == 1 and known is not None:
        # A new intent has its own event; a known one has none that says what happens now.
        append_event(tx, EventKind.PHASE_CHANGED, job_id=token.job_id, phase=Phase.PUBLISHING.value)
    return True


def _insert_intent(tx: LedgerTransaction, token: FencingToken, result: VerifiedResult) -> None:
    now = tx.now()
    tx.execute(
        insert(effects).values(
            effect_id=result.key,
            job_id=token.job_id,
            lease_epoch=token.lease_epoch,
            kind=EffectKind.RESULT_OBJECT,
            required=True,
            idempotency_key=result.key,
            state=EffectState.INTENDED,
            expected_digest=result.digest,
            size_bytes=result.size_bytes,
            intended_at=now,
            updated_at=now,
        )
    )
    append_event(
        tx, EventKind.RESULT_INTENDED, job_id=token.job_id, lease_epoch=token.lease_epoch, digest=result.digest
    )


def record_upload_state(tx: LedgerTransaction, *, key: str, state: EffectState, reason: Reason | None = None) -> None:
    """Record what is known of an upload, as EFFECT_TRANSITIONS allows: unknown, failed or abandoned.

    A worker that wakes late thus changes nothing about an upload that was committed or abandoned meanwhile.
    """
    sources = sorted(source for source, target in EFFECT_TRANSITIONS if target is state)
    changed = tx.execute(
        update(effects)
        .where(effects.c.idempotency_key == key, effects.c.state.in_(sources))
        .values(state=state, reason_code=reason.code if reason else "", updated_at=tx.now())
        .returning(effects.c.job_id, effects.c.kind)
    ).one_or_none()
    if changed is not None:
        append_event(
            tx,
            EventKind.EFFECT_CHANGED,
            job_id=changed.job_id,
            effect=changed.kind,
            state=state.value,
            reason=reason.code if reason else None,
        )


def uploads_of(tx: LedgerTransaction, job_id: str) -> list[EffectRow]:
    """Return the job's upload intents, newest first: what a takeover must look up before it uploads."""
    rows = tx.rows(
        select(effects)
        .where(effects.c.job_id == job_id, effects.c.kind == EffectKind.RESULT_OBJECT)
        .order_by(effects.c.lease_epoch.desc())
    )
    return [EffectRow.from_row(row) for row in rows]


def intent_evidence(upload: EffectRow) -> dict[str, Any]:
    """Return an upload intent as a quarantine names it."""
    return {"digest": upload.expected_digest, "source": "intent", "lease_epoch": upload.lease_epoch}


def undecided_uploads(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return uploads that may or may not have happened and that no worker will look up.

    Those are intents of jobs that are held, and of jobs that closed without naming them.
    """
    held = (jobs.c.state == JobState.RUNNING) & (jobs.c.phase == Phase.RECONCILING)
    return tx.rows(
        select(effects, is_terminal().label("closed"))
        .join(jobs, jobs.c.job_id == effects.c.job_id)
        .where(
            effects.c.kind == EffectKind.RESULT_OBJECT,
            effects.c.state.in_((EffectState.INTENDED, EffectState.UNKNOWN)),
            held | is_terminal(),
        )
        .order_by(effects.c.intended_at, effects.c.effect_id)
        .limit(limit)
    )
