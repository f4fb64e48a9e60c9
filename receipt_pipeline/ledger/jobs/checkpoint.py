"""Item outcome, next item and lease renewal in one transaction."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, update

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.errors import LeaseLost
from receipt_pipeline.core.items import ItemOutcome
from receipt_pipeline.core.lifecycle import CloseCause, JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import STALE_LEASE
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.claim import limit_reached
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs, refused_writes

# What every item costs at least once is built once.
_OWN_JOB = (
    update(jobs)
    .where(jobs.c.job_id == bindparam("of_job"))
    .where(jobs.c.state == JobState.RUNNING)
    .where(jobs.c.lease_epoch == bindparam("of_epoch"))
)


_ATTEMPT = (
    update(attempts)
    .where(attempts.c.job_id == bindparam("of_job"))
    .where(attempts.c.lease_epoch == bindparam("of_epoch"))
)


_COUNT_INVOCATIONS = _ATTEMPT.values(invocations=attempts.c.invocations + bindparam("more"))


_UNFINISHED = (
    update(items)
    .where(items.c.job_id == bindparam("of_job"))
    .where(items.c.ordinal == bindparam("of_ordinal"))
    .where(items.c.item_class.is_(None))
)


_FINISH = _UNFINISHED.values(invocations=items.c.invocations + bindparam("more"))


_OTHER_OUTCOME = (
    select(refused_writes.c.digest)
    .where(refused_writes.c.job_id == bindparam("of_job"))
    .where(refused_writes.c.ordinal == bindparam("of_ordinal"))
    .where(refused_writes.c.digest.is_not(None))
    .where(refused_writes.c.digest != bindparam("known"))
)


@dataclass(frozen=True, slots=True)
class FinishedItem:
    """One finished item: its outcome, how many model invocations it cost (0 or 1), and, for an
    unchanged item, the earlier decision that it keeps."""

    ordinal: int
    outcome: ItemOutcome
    invocations: int
    kept_decision_id: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What holds after an item boundary: go on with the next item, close for a cause, or stand down."""

    begun: bool
    limit_reached: CloseCause | None = None
    held: bool = False


def write_checkpoint(
    tx: LedgerTransaction,
    token: FencingToken,
    *,
    finished: FinishedItem | None,
    next_ordinal: int | None,
    limits: Limits,
) -> Checkpoint:
    """Commit the finished item, mark the next as begun, renew the lease.

    A limit that was reached meanwhile keeps the next item from beginning. A refused write of a
    lost attempt that carries another digest for the finished item holds the job (D2).

    Raises:
        LeaseLost: a later epoch holds the job; the caller rolls back and records the refusal.
    """
    job = read_job(tx, token.job_id, lock=True)
    now = tx.now()
    values: dict[str, Any] = {"lease_expires_at": now + dt.timedelta(seconds=limits.work.lease_ttl_s)}
    if finished is not None:
        values |= {"checkpoint": finished.ordinal + 1, "checkpoint_at": now}
    written = tx.execute(_OWN_JOB, {"of_job": token.job_id, "of_epoch": token.lease_epoch} | values)
    if job is None or written.rowcount == 0:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    if finished is not None:
        _write_outcome(tx, token, finished, now)
        subject = f"item:{finished.ordinal}"
        if _diverges(tx, token.job_id, finished) and hold_divergent(
            tx, job_id=token.job_id, subject=subject, limits=limits
        ):
            return Checkpoint(begun=False, held=True)
    cause = limit_reached(job, now)
    if cause is not None:
        return Checkpoint(begun=False, limit_reached=cause)
    if next_ordinal is None:
        return Checkpoint(begun=False)
    _mark_begun(tx, token, next_ordinal, now)
    return Checkpoint(begun=True)


def _write_outcome(
    tx: LedgerTransaction, token: FencingToken, finished: FinishedItem, now: dt.datetime
) -> None:
    outcome = finished.outcome
    values: dict[str, Any] = {
        "item_class": outcome.item_class,
        "decision": outcome.decision,
        "risk_ppm": outcome.risk_ppm,
        "fields": dict(outcome.fields),
        "reasons": list(outcome.reasons),
        "evidence": dict(outcome.evidence),
        "reason_code": outcome.reason_code,
        "outcome_digest": outcome.outcome_digest,
        "written_epoch": token.lease_epoch,
        "finished_at": now,
        "more": finished.invocations,
    }
    if finished.kept_decision_id is not None:
        values["decision_id"] = finished.kept_decision_id
    of_item = {"of_job": token.job_id, "of_ordinal": finished.ordinal}
    written = tx.execute(_FINISH, values | of_item)
    if (
        written.rowcount == 0
    ):  # Our own commit, replayed after a lost answer: same outcome or a broken promise.
        kept = tx.scalar(
            select(items.c.outcome_digest)
            .where(items.c.job_id == token.job_id)
            .where(items.c.ordinal == finished.ordinal)
        )
        assert kept == outcome.outcome_digest, (token, finished.ordinal)
        return
    tx.execute(
        _COUNT_INVOCATIONS,
        {"of_job": token.job_id, "of_epoch": token.lease_epoch, "more": finished.invocations},
    )
    append_event(
        tx,
        EventKind.ITEM_FINISHED,
        job_id=token.job_id,
        lease_epoch=token.lease_epoch,
        ordinal=finished.ordinal,
        item_class=outcome.item_class.value,
        decision=outcome.decision.value if outcome.decision else None,
        outcome_digest=outcome.outcome_digest,
    )


def _mark_begun(tx: LedgerTransaction, token: FencingToken, ordinal: int, now: dt.datetime) -> None:
    begun = {"begun_epoch": token.lease_epoch, "begun_at": now}
    written = tx.execute(_UNFINISHED, {"of_job": token.job_id, "of_ordinal": ordinal} | begun)
    assert written.rowcount == 1, (token, ordinal)


def _diverges(tx: LedgerTransaction, job_id: str, finished: FinishedItem) -> bool:
    """Tell whether a lost attempt tried to write another outcome for this item."""
    of_item = {"of_job": job_id, "of_ordinal": finished.ordinal}
    return tx.row(_OTHER_OUTCOME, of_item | {"known": finished.outcome.outcome_digest}) is not None


def record_attempt_facts(tx: LedgerTransaction, token: FencingToken, facts: dict[str, Any]) -> None:
    """Keep CPU, thread and timing facts on the attempt, never in result bytes or pins."""
    tx.execute(_ATTEMPT, {"of_job": token.job_id, "of_epoch": token.lease_epoch, "facts": facts})
