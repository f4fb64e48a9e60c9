"""Records the decision about divergent outputs: keep the committed one, or withdraw (D2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import func, select, update

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.errors import InputRefused, NotAllowed
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, CloseCause, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    QUARANTINE_DIGEST_UNKNOWN,
    QUARANTINE_NOT_HELD,
    RESULT_WITHDRAWN,
    STATE_REFUSES,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import OPEN as QUESTION_OPEN
from receipt_pipeline.ledger.investigations import resolve_investigation
from receipt_pipeline.ledger.jobs.failures import close_for_identity, read_job
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult, settle_if_done
from receipt_pipeline.ledger.jobs.publication import commit_result
from receipt_pipeline.ledger.jobs.quarantine import OPEN, open_quarantines
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.effects import effects, investigations, quarantine, review_tasks
from receipt_pipeline.ledger.schema.jobs import items, jobs

RESOLVED = "resolved"
WITHDRAW = "withdraw"
RESULT = "result"


def keep_output(
    tx: LedgerTransaction,
    *,
    job_id: str,
    digest: str,
    by: str,
    limits: Limits,
    verified: VerifiedResult | None = None,
    note: str = "",
) -> None:
    """Record `keep <digest>`: after the terminal record the result is served again, before it work goes on.

    What may be kept is what the ledger committed: an item's outcome, a closed job's result. Before the
    terminal record a result may be kept too when the caller verified its object against the items; the
    job then closes on it. Recording the same decision again changes nothing.

    Args:
        verified: the stored object with this digest whose items are those of the ledger, else None.
        note: what the person found, kept with the decision.
    Raises:
        InputRefused: QUARANTINE.DIGEST_UNKNOWN.v1. NotAllowed: QUARANTINE.OUTPUT_NOT_HELD.v1 when only
            the digest is known; STATE.REFUSES.v1 when nothing is in quarantine, or items wait first.
    """
    resolution = f"keep {digest}"
    job, waiting = _in_question(tx, job_id, resolution=resolution)
    if job is None:
        return
    chosen = [row for row in waiting if digest in {entry["digest"] for entry in row["digests"]}]
    if not chosen:
        raise InputRefused(QUARANTINE_DIGEST_UNKNOWN, job_id=job_id, digest=digest)
    closed = job["state"] in TERMINAL_STATES
    for row in chosen:
        if not closed and row["subject"] == RESULT and len(waiting) > 1:
            raise NotAllowed(STATE_REFUSES, job_id=job_id, detail="decide about the items first")
        if _committed_digest(tx, job, row["subject"], verified) != digest:
            raise NotAllowed(QUARANTINE_NOT_HELD, job_id=job_id, subject=row["subject"], digest=digest)
    _close_rows(tx, chosen, resolution=resolution, by=by, note=note)
    if len(chosen) < len(waiting):
        return
    if closed:
        tx.execute(update(review_tasks).where(review_tasks.c.job_id == job_id).values(disputed=False))
    else:
        _go_on(tx, job, verified=verified if chosen[0]["subject"] == RESULT else None, limits=limits)


def withdraw_output(tx: LedgerTransaction, *, job_id: str, by: str, limits: Limits, note: str = "") -> None:
    """Record `withdraw`: an open job closes as `failed/identity_failed`, a closed one serves no result.

    State and class of a closed job stay. Tasks stay disputed and those not made yet are never made.
    Recording it again changes nothing.

    Raises:
        NotAllowed: STATE.REFUSES.v1 when nothing of the job is in quarantine.
    """
    job, waiting = _in_question(tx, job_id, resolution=WITHDRAW)
    if job is None:
        return
    _close_rows(tx, waiting, resolution=WITHDRAW, by=by, note=note)
    _abandon(tx, job_id, kinds=(EffectKind.REVIEW_TASKS,), states=(*_UNDECIDED, EffectState.FAILED))
    if job["state"] in TERMINAL_STATES:
        settle_if_done(tx, job_id)
        return
    _abandon(tx, job_id, kinds=(EffectKind.RESULT_OBJECT,), states=_UNDECIDED)
    closed = close_for_identity(tx, job_id, reason=RESULT_WITHDRAWN, limits=limits)
    assert closed, "a quarantined job has no owner, and its row is locked"


_UNDECIDED = (EffectState.INTENDED, EffectState.UNKNOWN)


def _in_question(
    tx: LedgerTransaction, job_id: str, *, resolution: str
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the locked job and its open quarantines; no job when this decision is recorded already."""
    job = read_job(tx, job_id, lock=True)
    waiting = open_quarantines(tx, job_id)
    decided = tx.row(
        select(quarantine.c.quarantine_id)
        .where(quarantine.c.job_id == job_id)
        .where(quarantine.c.state == RESOLVED)
        .where(quarantine.c.resolution == resolution)
    )
    if decided is not None and not _still_applies(waiting, resolution):
        return None, []
    if job is None or not waiting:
        raise NotAllowed(STATE_REFUSES, job_id=job_id)
    return job, waiting


def _still_applies(waiting: Iterable[dict[str, Any]], resolution: str) -> bool:
    """Tell whether an open quarantine could take the same decision once more, for another subject."""
    digest = resolution.removeprefix("keep ")
    return any(
        resolution == WITHDRAW or digest in {entry["digest"] for entry in row["digests"]} for row in waiting
    )


def _committed_digest(
    tx: LedgerTransaction, job: dict[str, Any], subject: str, verified: VerifiedResult | None
) -> str | None:
    if subject == RESULT:
        if job["state"] not in TERMINAL_STATES:
            return verified.digest if verified else None
        found = job["result_digest"]
    else:
        ordinal = int(subject.removeprefix("item:"))
        found = tx.scalar(
            select(items.c.outcome_digest)
            .where(items.c.job_id == job["job_id"])
            .where(items.c.ordinal == ordinal)
        )
    return None if found is None else str(found)


def _close_rows(
    tx: LedgerTransaction, rows: list[dict[str, Any]], *, resolution: str, by: str, note: str
) -> None:
    for row in rows:
        tx.execute(
            update(quarantine)
            .where(quarantine.c.quarantine_id == row["quarantine_id"])
            .where(quarantine.c.state == OPEN)
            .values(state=RESOLVED, resolution=resolution, resolved_at=tx.now())
        )
        append_event(
            tx,
            EventKind.QUARANTINE_RESOLVED,
            job_id=row["job_id"],
            subject=row["subject"],
            resolution=resolution,
            by=by,
        )
        # A person may have closed the question by itself before; its answer stands.
        asked = tx.scalar(
            select(investigations.c.state).where(investigations.c.investigation_id == row["investigation_id"])
        )
        if asked == QUESTION_OPEN:
            answer = f"{resolution}: {note}" if note else resolution
            resolve_investigation(tx, row["investigation_id"], resolution=answer, by=by)


def _go_on(
    tx: LedgerTransaction, job: dict[str, Any], *, verified: VerifiedResult | None, limits: Limits
) -> None:
    """Close on the kept object, or give the job back: to work while items are open, else to closing."""
    job_id = job["job_id"]
    if verified is not None:
        commit_result(tx, FencingToken(job_id, job["lease_epoch"]), verified, limits=limits)
        return
    unfinished = tx.scalar(
        select(func.count())
        .select_from(items)
        .where(items.c.job_id == job_id)
        .where(items.c.item_class.is_(None))
    )
    closing = not unfinished or job["close_cause"] is not None
    phase = Phase.CLOSING if closing else Phase.QUEUED
    cause = job["close_cause"] or (CloseCause.FINISHED if closing else None)
    tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.phase == Phase.QUARANTINED)
        .values(phase=phase, close_cause=cause, retry_at=None, wave_id=None)
    )
    append_event(tx, EventKind.PHASE_CHANGED, job_id=job_id, phase=phase.value)


def _abandon(
    tx: LedgerTransaction, job_id: str, *, kinds: tuple[EffectKind, ...], states: tuple[EffectState, ...]
) -> None:
    tx.execute(
        update(effects)
        .where(effects.c.job_id == job_id)
        .where(effects.c.kind.in_(kinds))
        .where(effects.c.state.in_(states))
        .values(state=EffectState.ABANDONED, reason_code=RESULT_WITHDRAWN.code, updated_at=tx.now())
    )
