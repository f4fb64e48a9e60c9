"""Write the terminal record and its effects, with a verified result or without."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import insert, select, update

from receipt_pipeline.core.attempts import AttemptOutcome, FailureClass, FencingToken
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
from receipt_pipeline.ledger.investigations import RESOLVED, InvestigationKind, InvestigationRequest, open_investigation
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import JobRow, read_job
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


@dataclass(frozen=True, slots=True)
class TerminalRecord:
    """What is written once when a job closes; `result` is the verified object of a succeeded job."""

    state: JobState
    terminal_class: TerminalClass
    reason_code: str
    result: VerifiedResult | None


def item_counts(tx: LedgerTransaction, job_id: str) -> dict[ItemClass, int]:
    """Return the number of items per class; items without a class are left out."""
    rows = tx.rows(
        select(items.c.item_class, sa.func.count().label("n"))
        .where(items.c.job_id == job_id, items.c.item_class.is_not(None))
        .group_by(items.c.item_class)
    )
    return count_classes(()) | {ItemClass(row["item_class"]): row["n"] for row in rows}


def close_open_items(
    tx: LedgerTransaction, job_id: str, *, begun: ItemClass, waiting: ItemClass, reason: Reason
) -> None:
    """Give every item without a class its final one: `begun` to begun items, `waiting` to all others.

    An item that an earlier attempt lost counts as begun: work was spent on it.
    """
    was_begun = sa.or_(items.c.begun_epoch.is_not(None), items.c.losses > 0)
    for item_class, condition in ((begun, was_begun), (waiting, sa.not_(was_begun))):
        tx.execute(
            update(items)
            .where(items.c.job_id == job_id, items.c.item_class.is_(None), condition)
            .values(item_class=item_class, reason_code=reason.code, finished_at=tx.now())
        )


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended; the fields are those of its row."""

    outcome: AttemptOutcome
    failure_class: FailureClass | None = None
    reason_code: str = ""
    spent_budget: bool = False
    output_digest: str | None = None


def close_attempt(tx: LedgerTransaction, token: FencingToken, end: AttemptEnd) -> None:
    """Close the attempt row of an epoch once; a closed one stays as it is."""
    closed = tx.execute(
        update(attempts)
        .where(
            attempts.c.job_id == token.job_id,
            attempts.c.lease_epoch == token.lease_epoch,
            attempts.c.closed_at.is_(None),
        )
        .values(
            closed_at=tx.now(),
            outcome=end.outcome,
            failure_class=end.failure_class,
            reason_code=end.reason_code,
            spent_budget=end.spent_budget,
            output_digest=end.output_digest,
        )
    )
    if closed.rowcount == 1:
        append_event(
            tx,
            EventKind.ATTEMPT_CLOSED,
            job_id=token.job_id,
            lease_epoch=token.lease_epoch,
            outcome=end.outcome.value,
            failure_class=end.failure_class,
            reason=end.reason_code or None,
        )


@dataclass(frozen=True, slots=True)
class Closing:
    """Why a job closes: its cause, the reason where the cause does not say it, and its verified result."""

    cause: CloseCause
    reason: Reason | None = None
    result: VerifiedResult | None = None


def write_terminal(
    tx: LedgerTransaction, job: JobRow, closing: Closing, *, guard: sa.ColumnElement[bool], limits: Limits
) -> bool:
    """Write the one terminal record where the guard still holds; False when it no longer does.

    Item classes must balance (asserted); unresolved items get their investigation, the effects
    and the outbox message their rows, all in the caller's transaction.
    """
    contract = COMPLETION_CONTRACTS[job.operation_class]
    counts = {name: n for name, n in item_counts(tx, job.job_id).items() if name in contract.balanced}
    assert is_balanced(requested=job.items_requested, counts=counts), (job.job_id, counts)
    record = _terminal_record(tx, job, counts, closing)
    demands = {"notification": job.notification, "review_tasks": job.review_tasks}
    following = contract.effects_after(record.state, demands)
    awaits_effects = any(required for _, required in following)
    if not _close_job(tx, job, guard, record, awaits_effects=awaits_effects):
        return False
    append_event(
        tx,
        EventKind.TERMINAL,
        job_id=job.job_id,
        tenant=job.tenant,
        lease_epoch=job.lease_epoch,
        state=record.state.value,
        terminal_class=record.terminal_class.value,
        reason=record.reason_code or None,
        result_digest=record.result.digest if record.result else None,
        items={name.value: count for name, count in counts.items() if count},
    )
    if counts[ItemClass.UNRESOLVED]:
        open_unresolved_investigation(tx, job.job_id, limits=limits)
    if record.result is not None:
        _abandon_other_uploads(tx, job.job_id, kept_key=record.result.key)
    _record_effects(tx, job, following, limits=limits)
    _append_message(tx, job, record)
    if not awaits_effects:
        append_event(tx, EventKind.SETTLED, job_id=job.job_id)
    return True


def _terminal_record(
    tx: LedgerTransaction, job: JobRow, counts: Mapping[ItemClass, int], closing: Closing
) -> TerminalRecord:
    result, reason = closing.result, closing.reason
    state, terminal_class = terminal_outcome(counts, closing.cause, object_verified=result is not None)
    if terminal_class is TerminalClass.ATTEMPTS_EXHAUSTED:
        reason = reason or _common_reason(tx, job.job_id)
    code = terminal_reason_code(terminal_class, closing.cause, reason)
    return TerminalRecord(state, terminal_class, code, result if state is JobState.SUCCEEDED else None)


def _close_job(
    tx: LedgerTransaction, job: JobRow, guard: sa.ColumnElement[bool], record: TerminalRecord, *, awaits_effects: bool
) -> bool:
    now, result = tx.now(), record.result
    closed = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job.job_id, guard)
        .values(
            state=record.state,
            phase=Phase.CLOSED,
            terminal_class=record.terminal_class,
            reason_code=record.reason_code,
            terminal_at=now,
            settled_at=None if awaits_effects else now,
            result_key=result.key if result else None,
            result_digest=result.digest if result else None,
            result_size_bytes=result.size_bytes if result else None,
            lease_epoch=jobs.c.lease_epoch + (0 if result else 1),
            lease_owner=None,
            lease_expires_at=None,
            retry_at=None,
            wave_id=None,
        )
    )
    return closed.rowcount == 1


def terminal_reason_code(terminal_class: TerminalClass, cause: CloseCause, reason: Reason | None) -> str:
    """Return the reason code of a terminal record of this class; "" where none is needed."""
    if terminal_class is TerminalClass.COMPLETE:
        return ""
    if terminal_class is TerminalClass.REJECTED:
        return ALL_REJECTED.code
    given = reason or REASON_OF_CAUSE.get(cause)
    if given is None and terminal_class is TerminalClass.ATTEMPTS_EXHAUSTED:
        given = ATTEMPTS_EXHAUSTED  # Every item was processed, and none of them has an outcome.
    return given.code if given else ""


def _common_reason(tx: LedgerTransaction, job_id: str) -> Reason:
    """Return the reason that all unresolved items share, else that the attempts are spent."""
    codes = tx.rows(
        select(items.c.reason_code)
        .where(items.c.job_id == job_id, items.c.item_class == ItemClass.UNRESOLVED)
        .distinct()
    )
    return REASONS.get(codes[0]["reason_code"], ATTEMPTS_EXHAUSTED) if len(codes) == 1 else ATTEMPTS_EXHAUSTED


def open_unresolved_investigation(tx: LedgerTransaction, job_id: str, *, limits: Limits) -> None:
    """Open one investigation that names every unresolved item of the job that none has resolved."""
    resolved: set[str] = set()
    for row in tx.rows(
        select(investigations.c.evidence).where(
            investigations.c.job_id == job_id,
            investigations.c.kind == InvestigationKind.UNRESOLVED_ITEMS,
            investigations.c.state == RESOLVED,
        )
    ):
        resolved |= set(row["evidence"].get("item_ids", ()))
    unresolved = tx.rows(
        select(items.c.ordinal, items.c.item_id, items.c.reason_code, items.c.losses)
        .where(items.c.job_id == job_id, items.c.item_class == ItemClass.UNRESOLVED)
        .order_by(items.c.ordinal)
    )
    new = [row for row in unresolved if row["item_id"] not in resolved]
    if not new:
        return
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNRESOLVED_ITEMS,
            subject=job_id,
            reopened_as=f"item:{new[0]['ordinal']}",
            job_id=job_id,
            reason=REASONS.get(new[0]["reason_code"], ATTEMPTS_EXHAUSTED),
            suspected_effect="none: the items have no outcome and nothing of them was sent on",
            allowed_repair="look at the scans; submit the unresolved items again as a linked job",
            evidence={
                "item_ids": [row["item_id"] for row in new],
                "unresolved": len(new),
                "losses": {row["item_id"]: row["losses"] for row in new if row["losses"]},
            },
        ),
        limits=limits,
    )


def _abandon_other_uploads(tx: LedgerTransaction, job_id: str, *, kept_key: str) -> None:
    """Abandon every upload of a succeeding job whose object is not its result.

    Where a job closes without a result, reconciliation looks its uploads up first.
    """
    tx.execute(
        update(effects)
        .where(
            effects.c.job_id == job_id,
            effects.c.kind == EffectKind.RESULT_OBJECT,
            effects.c.idempotency_key != kept_key,
            effects.c.state.in_([EffectState.INTENDED, EffectState.UNKNOWN]),
        )
        .values(state=EffectState.ABANDONED, updated_at=tx.now())
    )


def _record_effects(
    tx: LedgerTransaction, job: JobRow, following: Sequence[tuple[EffectKind, bool]], *, limits: Limits
) -> None:
    """Write the intents of the effects that follow, as the completion contract says."""
    now = tx.now()
    for kind, required in following:
        key = f"{job.job_id}:{kind.value}"
        tx.execute(
            insert(effects).values(
                effect_id=key,
                job_id=job.job_id,
                lease_epoch=job.lease_epoch,
                kind=kind,
                required=required,
                idempotency_key=key,
                state=EffectState.INTENDED,
                intended_at=now,
                updated_at=now,
                deadline_at=now + dt.timedelta(seconds=limits.delivery.effect_deadline_s),
            )
        )


def _append_message(tx: LedgerTransaction, job: JobRow, record: TerminalRecord) -> None:
    if job.notification is EffectDemand.NONE:
        return
    now = tx.now()
    message_id = f"msg_{job.job_id}"
    tx.execute(
        insert(outbox).values(
            message_id=message_id,
            job_id=job.job_id,
            tenant=job.tenant,
            kind="job.terminal",
            payload={
                "job_id": job.job_id,
                "state": record.state.value,
                "terminal_class": record.terminal_class.value,
                "reason": record.reason_code,
                "result_digest": record.result.digest if record.result else None,
                "terminal_at": now.isoformat(),
            },
            state="due",
            created_at=now,
            due_at=now,
        )
    )
    append_event(tx, EventKind.MESSAGE_CREATED, job_id=job.job_id, tenant=job.tenant, message_id=message_id)


def finish_job_if_done(tx: LedgerTransaction, job_id: str) -> bool:
    """Set `settled_at` once no required effect of a terminal job is missing.

    The terminal record itself says whether a result object was verified: an upload of an earlier attempt
    that failed delays nothing.
    """
    missing = select(effects.c.effect_id).where(
        effects.c.job_id == job_id,
        effects.c.required,
        effects.c.kind != EffectKind.RESULT_OBJECT,
        effects.c.state.not_in([EffectState.COMMITTED, EffectState.ABANDONED]),
    )
    if tx.row(missing.limit(1)) is not None:
        return False
    finished = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id, jobs.c.terminal_at.is_not(None), jobs.c.settled_at.is_(None))
        .values(settled_at=tx.now())
    )
    if finished.rowcount == 1:
        append_event(tx, EventKind.SETTLED, job_id=job_id)
    return finished.rowcount == 1


def require_lease(tx: LedgerTransaction, token: FencingToken) -> JobRow:
    """Return the locked row of a running job. Raises LeaseLost: a later epoch holds it, or it is closed."""
    job = read_job(tx, token.job_id, lock=True)
    if job is None or job.state is not JobState.RUNNING or job.lease_epoch != token.lease_epoch:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    return job


def commit_result(tx: LedgerTransaction, token: FencingToken, result: VerifiedResult, *, limits: Limits) -> None:
    """Close the job on its verified object and record its effects in the caller's transaction.

    Committing the same result again under the same token changes nothing.

    Raises:
        LeaseLost: a later epoch holds the job; the caller rolls back.
    """
    job = read_job(tx, token.job_id, lock=True)
    if job is not None and _is_replay(job, token, result):
        return
    job = require_lease(tx, token)
    closed = write_terminal(
        tx,
        job,
        Closing(job.close_cause or CloseCause.FINISHED, result=result),
        guard=(jobs.c.state == JobState.RUNNING) & (jobs.c.lease_epoch == token.lease_epoch),
        limits=limits,
    )
    if not closed:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    now = tx.now()
    committed = tx.execute(
        update(effects)
        .where(effects.c.idempotency_key == result.key, effects.c.expected_digest == result.digest)
        .values(
            state=EffectState.COMMITTED,
            provider_reference=result.digest,
            committed_at=now,
            updated_at=now,
            reason_code="",
        )
    )
    assert committed.rowcount == 1, "an upload has its intent row before it starts"
    close_attempt(tx, token, AttemptEnd(AttemptOutcome.COMMITTED, output_digest=result.digest))


def _is_replay(job: JobRow, token: FencingToken, result: VerifiedResult) -> bool:
    written = (job.state, job.lease_epoch, job.result_digest, job.result_key)
    return written == (JobState.SUCCEEDED, token.lease_epoch, result.digest, result.key)


def close_without_result(tx: LedgerTransaction, token: FencingToken, *, limits: Limits) -> None:
    """Close a job that kept no item: all rejected, overdue or exhausted. No object is published.

    Raises:
        LeaseLost: a later epoch holds the job.
    """
    job = require_lease(tx, token)
    closed = write_terminal(
        tx,
        job,
        Closing(job.close_cause or CloseCause.FINISHED, REASONS.get(job.reason_code)),
        guard=(jobs.c.state == JobState.RUNNING) & (jobs.c.lease_epoch == token.lease_epoch),
        limits=limits,
    )
    assert closed, "the row was locked"
    close_attempt(tx, token, AttemptEnd(AttemptOutcome.COMMITTED))
