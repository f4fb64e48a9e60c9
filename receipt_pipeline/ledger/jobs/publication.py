"""Upload intent, upload state and commit of a result."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, insert, select, update

from receipt_pipeline.core.attempts import AttemptOutcome, FencingToken
from receipt_pipeline.core.effects import EFFECT_TRANSITIONS, EffectKind, EffectState
from receipt_pipeline.core.errors import LeaseLost
from receipt_pipeline.core.lifecycle import CloseCause, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import REASONS, STALE_LEASE, Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.cancel import overtake_items
from receipt_pipeline.ledger.jobs.failures import begin_closing, read_job
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult, close_attempt, write_terminal
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.effects import effects
from receipt_pipeline.ledger.schema.jobs import jobs

# Built once, as every publication needs them.
_UPLOAD = select(effects).where(effects.c.idempotency_key == bindparam("of_key"))
_COMMIT_UPLOAD = (
    update(effects)
    .where(effects.c.idempotency_key == bindparam("of_key"))
    .where(effects.c.expected_digest == bindparam("of_digest"))
)
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


def _owned(tx: LedgerTransaction, token: FencingToken) -> dict[str, Any]:
    job = read_job(tx, token.job_id, lock=True)
    if job is None or job["state"] != JobState.RUNNING or job["lease_epoch"] != token.lease_epoch:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    return job


def overtake_own_items(tx: LedgerTransaction, token: FencingToken, *, cause: CloseCause) -> None:
    """Class what a limit overtook, under the worker's own lease, before it closes the job."""
    _owned(tx, token)
    overtake_items(tx, token.job_id)
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
    job = _owned(tx, token)
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


def commit_result(
    tx: LedgerTransaction, token: FencingToken, result: VerifiedResult, *, limits: Limits
) -> None:
    """Close the job on its verified object and record its effects in the caller's transaction.

    Committing the same result again under the same token changes nothing.

    Raises:
        LeaseLost: a later epoch holds the job; the caller rolls back.
    """
    job = read_job(tx, token.job_id, lock=True)
    if job is not None and _is_replay(job, token, result):
        return
    guard = (jobs.c.state == JobState.RUNNING) & (jobs.c.lease_epoch == token.lease_epoch)
    cause = CloseCause(job["close_cause"]) if job and job["close_cause"] else CloseCause.FINISHED
    if job is None or job["lease_epoch"] != token.lease_epoch or job["state"] != JobState.RUNNING:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    if not write_terminal(tx, job=job, guard=guard, cause=cause, result=result, limits=limits):
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    now = tx.now()
    committed = tx.execute(
        _COMMIT_UPLOAD,
        {
            "of_key": result.key,
            "of_digest": result.digest,
            "state": EffectState.COMMITTED,
            "provider_reference": result.digest,
            "committed_at": now,
            "updated_at": now,
            "reason_code": "",
        },
    )
    assert committed.rowcount == 1, "an upload has its intent row before it starts"
    close_attempt(
        tx,
        token.job_id,
        lease_epoch=token.lease_epoch,
        outcome=AttemptOutcome.COMMITTED,
        output_digest=result.digest,
    )


def _is_replay(job: dict[str, Any], token: FencingToken, result: VerifiedResult) -> bool:
    written = (job["state"], job["lease_epoch"], job["result_digest"], job["result_key"])
    return written == (JobState.SUCCEEDED, token.lease_epoch, result.digest, result.key)


def close_without_result(tx: LedgerTransaction, token: FencingToken, *, limits: Limits) -> None:
    """Close a job that kept no item: all rejected, overtaken or exhausted. No object is published.

    Raises:
        LeaseLost: a later epoch holds the job.
    """
    job = _owned(tx, token)
    cause = CloseCause(job["close_cause"]) if job["close_cause"] else CloseCause.FINISHED
    guard = (jobs.c.state == JobState.RUNNING) & (jobs.c.lease_epoch == token.lease_epoch)
    reason = REASONS.get(job["reason_code"])
    closed = write_terminal(tx, job=job, guard=guard, cause=cause, reason=reason, limits=limits)
    assert closed, "the row was locked"
    close_attempt(tx, token.job_id, lease_epoch=token.lease_epoch, outcome=AttemptOutcome.COMMITTED)
