"""Item outcome, next item and lease renewal in one transaction."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update

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


@dataclass(frozen=True, slots=True)
class FinishedItem:
    """One finished item.

    Attributes:
        invocations: model invocations that it cost, 0 or 1.
        kept_decision_id: the earlier decision that an unchanged item keeps.
    """

    ordinal: int
    outcome: ItemOutcome
    invocations: int
    kept_decision_id: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What follows a checkpoint: the next item is begun, a limit closes the job, or the job is held."""

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

    A limit that was reached meanwhile keeps the next item from beginning. A rejected write of a lost
    attempt with another digest for the finished item holds the job.

    Raises:
        LeaseLost: a later epoch holds the job; the caller rolls back and records the rejected write.
    """
    job = read_job(tx, token.job_id, lock=True)
    now = tx.now()
    progress = {} if finished is None else {"checkpoint": finished.ordinal + 1, "checkpoint_at": now}
    renewed = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == token.job_id, jobs.c.state == JobState.RUNNING, jobs.c.lease_epoch == token.lease_epoch)
        .values(lease_expires_at=now + dt.timedelta(seconds=limits.work.lease_ttl_s), **progress)
    )
    if job is None or renewed.rowcount == 0:
        raise LeaseLost(STALE_LEASE, job_id=token.job_id, lease_epoch=token.lease_epoch)
    if finished is not None:
        _write_outcome(tx, token, finished, now)
        if _has_other_output(tx, token.job_id, finished) and hold_divergent(
            tx, job_id=token.job_id, subject=f"item:{finished.ordinal}", limits=limits
        ):
            return Checkpoint(begun=False, held=True)
    cause = limit_reached(job, now)
    if cause is not None or next_ordinal is None:
        return Checkpoint(begun=False, limit_reached=cause)
    begun = tx.execute(
        update(items)
        .where(items.c.job_id == token.job_id, items.c.ordinal == next_ordinal, items.c.item_class.is_(None))
        .values(begun_epoch=token.lease_epoch, begun_at=now)
    )
    assert begun.rowcount == 1, (token, next_ordinal)
    return Checkpoint(begun=True)


def _write_outcome(tx: LedgerTransaction, token: FencingToken, finished: FinishedItem, now: dt.datetime) -> None:
    outcome = finished.outcome
    kept = {} if finished.kept_decision_id is None else {"decision_id": finished.kept_decision_id}
    is_item = (items.c.job_id == token.job_id) & (items.c.ordinal == finished.ordinal)
    written = tx.execute(
        update(items)
        .where(is_item, items.c.item_class.is_(None))
        .values(
            item_class=outcome.item_class,
            decision=outcome.decision,
            risk_ppm=outcome.risk_ppm,
            fields=dict(outcome.fields),
            reasons=list(outcome.reasons),
            evidence=dict(outcome.evidence),
            reason_code=outcome.reason_code,
            outcome_digest=outcome.outcome_digest,
            written_epoch=token.lease_epoch,
            finished_at=now,
            invocations=items.c.invocations + finished.invocations,
            **kept,
        )
    )
    if written.rowcount == 0:
        # Our own commit, replayed after a lost answer: the same outcome, or a broken promise.
        known = tx.scalar(select(items.c.outcome_digest).where(is_item))
        assert known == outcome.outcome_digest, (token, finished.ordinal)
        return
    tx.execute(
        update(attempts)
        .where(attempts.c.job_id == token.job_id, attempts.c.lease_epoch == token.lease_epoch)
        .values(invocations=attempts.c.invocations + finished.invocations)
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


def _has_other_output(tx: LedgerTransaction, job_id: str, finished: FinishedItem) -> bool:
    """Return whether a lost attempt tried to write another outcome for this item."""
    other = select(refused_writes.c.refusal_id).where(
        refused_writes.c.job_id == job_id,
        refused_writes.c.ordinal == finished.ordinal,
        refused_writes.c.digest.is_not(None),
        refused_writes.c.digest != finished.outcome.outcome_digest,
    )
    return tx.scalar(other.limit(1)) is not None


def record_attempt_facts(tx: LedgerTransaction, token: FencingToken, facts: dict[str, Any]) -> None:
    """Keep CPU, thread and timing facts on the attempt, never in result bytes or pins."""
    tx.execute(
        update(attempts)
        .where(attempts.c.job_id == token.job_id, attempts.c.lease_epoch == token.lease_epoch)
        .values(facts=facts)
    )
