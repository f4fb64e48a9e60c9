"""Write the terminal record and its effects, with a verified result or without."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, insert, select, update

from receipt_pipeline.core.attempts import AttemptOutcome, FencingToken
from receipt_pipeline.core.completion import COMPLETION_CONTRACTS
from receipt_pipeline.core.effects import EffectDemand, EffectKind, EffectState
from receipt_pipeline.core.errors import LeaseLost
from receipt_pipeline.core.items import ItemClass, count_classes, is_balanced
from receipt_pipeline.core.lifecycle import CloseCause, JobState, Phase, TerminalClass, terminal_outcome
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    ALL_REJECTED,
    ATTEMPTS_EXHAUSTED,
    CANCELED_BY_CALLER,
    CUTOFF_REACHED,
    IDENTITY_MISMATCH,
    PROCESSING_TIMEOUT,
    QUEUE_AGE_REACHED,
    REASONS,
    STALE_LEASE,
    UPLOAD_FAILED,
    Reason,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import (
    RESOLVED,
    InvestigationKind,
    InvestigationRequest,
    open_investigation,
)
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.effects import effects, investigations, outbox
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs

REASON_OF_CAUSE: dict[CloseCause, Reason] = {
    CloseCause.CANCELED: CANCELED_BY_CALLER,
    CloseCause.QUEUE_AGE: QUEUE_AGE_REACHED,
    CloseCause.IDENTITY: IDENTITY_MISMATCH,
    CloseCause.PUBLICATION: UPLOAD_FAILED,
    CloseCause.CUTOFF: CUTOFF_REACHED,
    CloseCause.TIMEOUT: PROCESSING_TIMEOUT,
    CloseCause.EXHAUSTED: ATTEMPTS_EXHAUSTED,
}


@dataclass(frozen=True, slots=True)
class VerifiedResult:
    """A result object that was read back: its key, digest and size in bytes."""

    key: str
    digest: str
    size_bytes: int


_COUNT_CLASSES = (
    select(items.c.item_class, sa.func.count().label("n"))
    .where(items.c.job_id == bindparam("of_job"))
    .group_by(items.c.item_class)
)


_WITHOUT_CLASS = (
    update(items).where(items.c.job_id == bindparam("of_job")).where(items.c.item_class.is_(None))
)


_WAS_BEGUN = sa.or_(items.c.begun_epoch.is_not(None), items.c.losses > 0)


_SETTLE_BEGUN = _WITHOUT_CLASS.where(_WAS_BEGUN)


_SETTLE_WAITING = _WITHOUT_CLASS.where(sa.not_(_WAS_BEGUN))


_OPEN_UPLOADS = (
    update(effects)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.kind == EffectKind.RESULT_OBJECT)
    .where(effects.c.idempotency_key != bindparam("but"))
    .where(effects.c.state.in_([EffectState.INTENDED, EffectState.UNKNOWN]))
)


_OPEN_ATTEMPT = (
    update(attempts)
    .where(attempts.c.job_id == bindparam("of_job"))
    .where(attempts.c.lease_epoch == bindparam("of_epoch"))
    .where(attempts.c.closed_at.is_(None))
)


def item_counts(tx: LedgerTransaction, job_id: str) -> dict[ItemClass, int]:
    """Return the number of items per class; items without a class are left out."""
    rows = tx.rows(_COUNT_CLASSES, {"of_job": job_id})
    counts = count_classes(())
    for row in rows:
        if row["item_class"] is not None:
            counts[ItemClass(row["item_class"])] = row["n"]
    return counts


def close_open_items(
    tx: LedgerTransaction, job_id: str, *, begun: ItemClass, waiting: ItemClass, reason: Reason
) -> None:
    """Give every item without a class its final one: begun items and never begun ones apart.

    An item that was lost to an earlier attempt counts as begun: work was spent on it.
    """
    settled = {"of_job": job_id, "reason_code": reason.code, "finished_at": tx.now()}
    for item_class, statement in ((begun, _SETTLE_BEGUN), (waiting, _SETTLE_WAITING)):
        tx.execute(statement, settled | {"item_class": item_class})


def close_attempt(
    tx: LedgerTransaction,
    job_id: str,
    *,
    lease_epoch: int,
    outcome: AttemptOutcome,
    failure_class: str | None = None,
    reason_code: str = "",
    spent_budget: bool = False,
    output_digest: str | None = None,
) -> None:
    """Close the attempt row of an epoch once; a closed one stays as it is."""
    written = tx.execute(
        _OPEN_ATTEMPT,
        {
            "of_job": job_id,
            "of_epoch": lease_epoch,
            "closed_at": tx.now(),
            "outcome": outcome.value,
            "failure_class": failure_class,
            "reason_code": reason_code,
            "spent_budget": spent_budget,
            "output_digest": output_digest,
        },
    )
    if written.rowcount == 1:
        append_event(
            tx,
            EventKind.ATTEMPT_CLOSED,
            job_id=job_id,
            lease_epoch=lease_epoch,
            outcome=outcome.value,
            failure_class=failure_class,
            reason=reason_code or None,
        )


# What no closed job has any more.
_CLOSED: dict[str, Any] = {
    "phase": Phase.CLOSED,
    "lease_owner": None,
    "lease_expires_at": None,
    "retry_at": None,
    "wave_id": None,
}


def _result_values(result: VerifiedResult | None) -> dict[str, Any]:
    if result is None:
        return {"result_key": None, "result_digest": None, "result_size_bytes": None}
    return {
        "result_key": result.key,
        "result_digest": result.digest,
        "result_size_bytes": result.size_bytes,
    }


def write_terminal(
    tx: LedgerTransaction,
    *,
    job: dict[str, Any],
    guard: sa.ColumnElement[bool],
    cause: CloseCause,
    limits: Limits,
    reason: Reason | None = None,
    result: VerifiedResult | None = None,
) -> bool:
    """Write the one terminal record where the guard still holds; False when it no longer does.

    Item classes must balance (asserted); unresolved items get their investigation, the effects
    and the outbox message their rows, all in the caller's transaction.
    """
    job_id = job["job_id"]
    contract = COMPLETION_CONTRACTS[job["operation_class"]]
    counts = {name: count for name, count in item_counts(tx, job_id).items() if name in contract.balanced}
    assert is_balanced(requested=job["items_requested"], counts=counts), (job_id, counts)
    state, terminal_class = terminal_outcome(counts, cause, object_verified=result is not None)
    if terminal_class is TerminalClass.ATTEMPTS_EXHAUSTED:
        reason = reason or _why_unresolved(tx, job_id)
    code = terminal_reason_code(terminal_class, cause, reason)
    now = tx.now()
    served = result if state is JobState.SUCCEEDED else None
    following = contract.effects_after(state, job)
    awaited = any(required for _, required in following)
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(guard)
        .values(
            state=state,
            terminal_class=terminal_class,
            reason_code=code,
            terminal_at=now,
            lease_epoch=jobs.c.lease_epoch + (0 if served else 1),
            settled_at=None if awaited else now,
            **_CLOSED,
            **_result_values(served),
        )
    )
    if written.rowcount == 0:
        return False
    _append_terminal(tx, job, (state, terminal_class, code), served=served, counts=counts)
    if counts[ItemClass.UNRESOLVED]:
        open_unresolved_investigation(tx, job_id, limits=limits)
    if served:
        _abandon_uploads(tx, job_id, but=served.key)
    _record_effects(tx, job, following, now=now, limits=limits)
    _append_message(tx, job, state=state, terminal_class=terminal_class, code=code, result=result)
    if not awaited:
        append_event(tx, EventKind.SETTLED, job_id=job_id)
    return True


def _append_terminal(
    tx: LedgerTransaction,
    job: dict[str, Any],
    ending: tuple[JobState, TerminalClass, str],
    *,
    served: VerifiedResult | None,
    counts: Mapping[ItemClass, int],
) -> None:
    state, terminal_class, code = ending
    append_event(
        tx,
        EventKind.TERMINAL,
        job_id=job["job_id"],
        tenant=job["tenant"],
        lease_epoch=job["lease_epoch"],
        state=state.value,
        terminal_class=terminal_class.value,
        reason=code or None,
        result_digest=served.digest if served else None,
        items={name.value: count for name, count in counts.items() if count},
    )


def terminal_reason_code(terminal_class: TerminalClass, cause: CloseCause, reason: Reason | None) -> str:
    """Return the code that a terminal record of this class carries; "" where there is nothing to say."""
    if terminal_class is TerminalClass.COMPLETE:
        return ""
    if terminal_class is TerminalClass.REJECTED:
        return ALL_REJECTED.code
    given = reason or REASON_OF_CAUSE.get(cause)
    if given is None and terminal_class is TerminalClass.ATTEMPTS_EXHAUSTED:
        given = ATTEMPTS_EXHAUSTED  # Every item was worked off, and none of them came to an outcome.
    return given.code if given else ""


def _why_unresolved(tx: LedgerTransaction, job_id: str) -> Reason:
    """Return what all unresolved items have in common; the class says already that the tries are spent."""
    query = select(items.c.reason_code).where(items.c.job_id == job_id).distinct()
    codes = tx.rows(query.where(items.c.item_class == ItemClass.UNRESOLVED))
    return REASONS.get(codes[0]["reason_code"], ATTEMPTS_EXHAUSTED) if len(codes) == 1 else ATTEMPTS_EXHAUSTED


def open_unresolved_investigation(tx: LedgerTransaction, job_id: str, *, limits: Limits) -> None:
    """Let one open investigation name every unresolved item of the job that none has settled (D13)."""
    settled: set[str] = set()
    for row in tx.rows(
        select(investigations.c.evidence)
        .where(investigations.c.job_id == job_id)
        .where(investigations.c.kind == InvestigationKind.UNRESOLVED_ITEMS)
        .where(investigations.c.state == RESOLVED)
    ):
        settled |= set(row["evidence"].get("item_ids", ()))
    query = select(items.c.ordinal, items.c.item_id, items.c.reason_code, items.c.losses)
    unresolved = tx.rows(
        query.where(items.c.job_id == job_id)
        .where(items.c.item_class == ItemClass.UNRESOLVED)
        .order_by(items.c.ordinal)
    )
    fresh = [row for row in unresolved if row["item_id"] not in settled]
    if not fresh:
        return
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNRESOLVED_ITEMS,
            subject=job_id,
            reopened_as=f"item:{fresh[0]['ordinal']}",
            job_id=job_id,
            reason=REASONS.get(fresh[0]["reason_code"], ATTEMPTS_EXHAUSTED),
            suspected_effect="none: the items have no outcome and nothing of them was sent on",
            allowed_repair="look at the scans; submit the unresolved items again as a linked job",
            evidence={
                "item_ids": [row["item_id"] for row in fresh],
                "unresolved": len(fresh),
                "losses": {row["item_id"]: row["losses"] for row in fresh if row["losses"]},
            },
        ),
        limits=limits,
    )


def _abandon_uploads(tx: LedgerTransaction, job_id: str, *, but: str) -> None:
    """Give up every upload of a succeeding job whose object is not its result.

    Where a job closes without a result, reconciliation looks its uploads up first.
    """
    given_up = {"state": EffectState.ABANDONED, "updated_at": tx.now()}
    tx.execute(_OPEN_UPLOADS, {"of_job": job_id, "but": but} | given_up)


def _record_effects(
    tx: LedgerTransaction,
    job: dict[str, Any],
    following: Sequence[tuple[EffectKind, bool]],
    *,
    now: dt.datetime,
    limits: Limits,
) -> None:
    """Write the intents of what follows the ending, as the completion contract says."""
    for kind, required in following:
        key = f"{job['job_id']}:{kind.value}"
        tx.execute(
            insert(effects),
            {
                "effect_id": key,
                "job_id": job["job_id"],
                "lease_epoch": job["lease_epoch"],
                "kind": kind,
                "required": required,
                "idempotency_key": key,
                "state": EffectState.INTENDED,
                "intended_at": now,
                "updated_at": now,
                "deadline_at": now + dt.timedelta(seconds=limits.delivery.effect_deadline_s),
            },
        )


def _append_message(
    tx: LedgerTransaction,
    job: dict[str, Any],
    *,
    state: JobState,
    terminal_class: TerminalClass,
    code: str,
    result: VerifiedResult | None,
) -> None:
    if job["notification"] == EffectDemand.NONE:
        return
    now = tx.now()
    message_id = f"msg_{job['job_id']}"
    tx.execute(
        insert(outbox),
        {
            "message_id": message_id,
            "job_id": job["job_id"],
            "tenant": job["tenant"],
            "kind": "job.terminal",
            "payload": {
                "job_id": job["job_id"],
                "state": state.value,
                "terminal_class": terminal_class.value,
                "reason": code,
                "result_digest": result.digest if result and state is JobState.SUCCEEDED else None,
                "terminal_at": now.isoformat(),
            },
            "state": "due",
            "created_at": now,
            "due_at": now,
        },
    )
    append_event(
        tx, EventKind.MESSAGE_CREATED, job_id=job["job_id"], tenant=job["tenant"], message_id=message_id
    )


# The terminal record itself says whether a result object was verified; an upload of an earlier attempt
# that failed holds nothing up.
_MISSING = (
    select(effects.c.effect_id)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.required)
    .where(effects.c.kind != EffectKind.RESULT_OBJECT)
    .where(effects.c.state.not_in([EffectState.COMMITTED, EffectState.ABANDONED]))
)


_SETTLE = (
    update(jobs)
    .where(jobs.c.job_id == bindparam("of_job"))
    .where(jobs.c.terminal_at.is_not(None))
    .where(jobs.c.settled_at.is_(None))
)


def finish_job_if_done(tx: LedgerTransaction, job_id: str) -> bool:
    """Set `settled_at` once no required effect of a terminal job is missing (D11)."""
    if tx.row(_MISSING, {"of_job": job_id}) is not None:
        return False
    if tx.execute(_SETTLE, {"of_job": job_id, "settled_at": tx.now()}).rowcount == 1:
        append_event(tx, EventKind.SETTLED, job_id=job_id)
        return True
    return False


_COMMIT_UPLOAD = (
    update(effects)
    .where(effects.c.idempotency_key == bindparam("of_key"))
    .where(effects.c.expected_digest == bindparam("of_digest"))
)


def require_lease(tx: LedgerTransaction, token: FencingToken) -> dict[str, Any]:
    """Return the locked row of a running job. Raises LeaseLost: a later epoch holds it, or it is closed."""
    job = read_job(tx, token.job_id, lock=True)
    if job is None or job["state"] != JobState.RUNNING or job["lease_epoch"] != token.lease_epoch:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    return job


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
    job = require_lease(tx, token)
    cause = CloseCause(job["close_cause"]) if job["close_cause"] else CloseCause.FINISHED
    guard = (jobs.c.state == JobState.RUNNING) & (jobs.c.lease_epoch == token.lease_epoch)
    reason = REASONS.get(job["reason_code"])
    closed = write_terminal(tx, job=job, guard=guard, cause=cause, reason=reason, limits=limits)
    assert closed, "the row was locked"
    close_attempt(tx, token.job_id, lease_epoch=token.lease_epoch, outcome=AttemptOutcome.COMMITTED)
