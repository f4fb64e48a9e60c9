"""Upload intent and upload state of a result."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer, bindparam, insert, select, update

from receipt_pipeline.core.attempts import (
    FencingToken,
)
from receipt_pipeline.core.effects import EFFECT_TRANSITIONS, EffectKind, EffectState
from receipt_pipeline.core.lifecycle import CloseCause, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    Reason,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.expire import close_overdue_items
from receipt_pipeline.ledger.jobs.failures import begin_closing
from receipt_pipeline.ledger.jobs.finalize import require_lease
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import is_terminal
from receipt_pipeline.ledger.schema.effects import effects
from receipt_pipeline.ledger.schema.jobs import jobs

# Built once, as every publication needs them.
_UPLOAD = select(effects).where(effects.c.idempotency_key == bindparam("of_key"))


_UPLOADS = (
    select(effects)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.kind == EffectKind.RESULT_OBJECT)
    .order_by(effects.c.lease_epoch.desc())
)


_OTHER_UPLOADS = _UPLOADS.where(effects.c.expected_digest != bindparam("other_than")).with_only_columns(
    effects.c.expected_digest, effects.c.lease_epoch
)


_NOT_PUBLISHING = (
    update(jobs)
    .where(jobs.c.job_id == bindparam("of_job"))
    .where(jobs.c.lease_epoch == bindparam("of_epoch"))
    .where(jobs.c.phase != Phase.PUBLISHING)
)


def close_own_overdue_items(tx: LedgerTransaction, token: FencingToken, *, cause: CloseCause) -> None:
    """Class what a limit overtook, under the worker's own lease, before it closes the job."""
    require_lease(tx, token)
    close_overdue_items(tx, token.job_id)
    begin_closing(tx, token.job_id, cause=cause)


def record_intent(
    tx: LedgerTransaction,
    token: FencingToken,
    *,
    key: str,
    digest: str,
    size_bytes: int,
    limits: Limits,
) -> bool:
    """Commit the intent row of an upload before it starts, so that every object has a row.

    An intent of an earlier attempt with another digest is a divergence: the job is held and
    False returned; the caller must not upload.

    Raises:
        LeaseLost: a later epoch holds the job.
    """
    job = require_lease(tx, token)
    now = tx.now()
    earlier = tx.rows(_OTHER_UPLOADS, {"of_job": token.job_id, "other_than": digest})
    if earlier and job["close_cause"] is None:
        mine = {"digest": digest, "source": "intent", "lease_epoch": token.lease_epoch}
        others = [
            {"digest": row["expected_digest"], "source": "intent", "lease_epoch": row["lease_epoch"]}
            for row in earlier
        ]
        hold_divergent(tx, job_id=token.job_id, subject="result", limits=limits, further=[mine, *others])
        return False
    intended = tx.row(_UPLOAD, {"of_key": key}) is not None
    if not intended:
        tx.execute(
            insert(effects),
            {
                "effect_id": key,
                "job_id": token.job_id,
                "lease_epoch": token.lease_epoch,
                "kind": EffectKind.RESULT_OBJECT,
                "required": True,
                "idempotency_key": key,
                "state": EffectState.INTENDED,
                "expected_digest": digest,
                "size_bytes": size_bytes,
                "intended_at": now,
                "updated_at": now,
            },
        )
        append_event(
            tx, EventKind.RESULT_INTENDED, job_id=token.job_id, lease_epoch=token.lease_epoch, digest=digest
        )
    _enter_publishing(tx, token, told=not intended)
    return True


def _enter_publishing(tx: LedgerTransaction, token: FencingToken, *, told: bool) -> None:
    """Show that the result is being published; an intent that was there already has told nobody."""
    entered = tx.execute(
        _NOT_PUBLISHING,
        {"of_job": token.job_id, "of_epoch": token.lease_epoch, "phase": Phase.PUBLISHING},
    )
    if entered.rowcount == 1 and not told:
        append_event(tx, EventKind.PHASE_CHANGED, job_id=token.job_id, phase=Phase.PUBLISHING.value)


def record_upload_state(
    tx: LedgerTransaction, *, key: str, state: EffectState, reason: Reason | None = None
) -> None:
    """Record what is known of an upload, as EFFECT_TRANSITIONS allows: unknown, failed or abandoned.

    A worker that wakes late thus changes nothing about an upload that was committed or given up meanwhile.
    """
    sources = sorted(source for source, target in EFFECT_TRANSITIONS if target is state)
    written = tx.execute(
        update(effects)
        .where(effects.c.idempotency_key == key)
        .where(effects.c.state.in_(sources))
        .values(state=state, reason_code=reason.code if reason else "", updated_at=tx.now())
    )
    if written.rowcount == 1:
        row = tx.row(_UPLOAD, {"of_key": key})
        assert row is not None
        append_event(
            tx,
            EventKind.EFFECT_CHANGED,
            job_id=row["job_id"],
            effect=row["kind"],
            state=state.value,
            reason=reason.code if reason else None,
        )


def uploads_of(tx: LedgerTransaction, job_id: str) -> list[dict[str, Any]]:
    """Return the job's upload intents, newest first: what a takeover must look up before it puts."""
    return tx.rows(_UPLOADS, {"of_job": job_id})


_LIMIT = bindparam("limit", type_=Integer())


UNDECIDED = (EffectState.INTENDED, EffectState.UNKNOWN)


_IS_HELD = (jobs.c.state == JobState.RUNNING) & (jobs.c.phase == Phase.RECONCILING)


_UNDECIDED_UPLOADS = (
    select(effects, is_terminal().label("closed"))
    .join(jobs, jobs.c.job_id == effects.c.job_id)
    .where(effects.c.kind == EffectKind.RESULT_OBJECT)
    .where(effects.c.state.in_(UNDECIDED))
    .where(_IS_HELD | is_terminal())
    .order_by(effects.c.intended_at, effects.c.effect_id)
    .limit(_LIMIT)
)


def undecided_uploads(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return uploads that may or may not have happened and that no worker will look up.

    Those are intents of jobs that are held, and of jobs that closed without naming them.
    """
    return tx.rows(_UNDECIDED_UPLOADS, {"limit": limit})
