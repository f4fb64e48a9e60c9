"""Divergent outputs, rejected writes, and the decision to keep or withdraw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select, update

from receipt_pipeline.core.attempts import AttemptOutcome, FailureClass, FencingToken
from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.errors import InputRefused, NotAllowed
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, CloseCause, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    QUARANTINE_DIGEST_UNKNOWN,
    QUARANTINE_NOT_HELD,
    RESULT_QUARANTINED,
    RESULT_WITHDRAWN,
    STATE_REFUSES,
)
from receipt_pipeline.ledger.effects.objects import add_tombstone, rejected_output_key
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import OPEN as INVESTIGATION_OPEN
from receipt_pipeline.ledger.investigations import (
    InvestigationKind,
    InvestigationRequest,
    open_investigation,
    resolve_investigation,
)
from receipt_pipeline.ledger.jobs.failures import close_for_identity
from receipt_pipeline.ledger.jobs.finalize import (
    AttemptEnd,
    VerifiedResult,
    close_attempt,
    commit_result,
    finish_job_if_done,
)
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.ledger.schema.effects import effects, investigations, quarantine, review_tasks
from receipt_pipeline.ledger.schema.jobs import items, jobs, refused_writes

OPEN = "open"
RESOLVED = "resolved"
WITHDRAW = "withdraw"
RESULT = "result"


def record_rejected_write(
    tx: LedgerTransaction,
    token: FencingToken,
    *,
    write_kind: str,
    ordinal: int | None = None,
    digest: str | None = None,
) -> None:
    """Keep the evidence of a stale worker's write: what it was, and the digest of its output."""
    job = read_job(tx, token.job_id)
    assert job is not None
    tx.execute(
        insert(refused_writes).values(
            job_id=token.job_id,
            lease_epoch=token.lease_epoch,
            current_epoch=job.lease_epoch,
            write_kind=write_kind,
            ordinal=ordinal,
            digest=digest,
            refused_at=tx.now(),
        )
    )
    append_event(
        tx,
        EventKind.WRITE_REFUSED,
        job_id=token.job_id,
        lease_epoch=token.lease_epoch,
        write_kind=write_kind,
        ordinal=ordinal,
        digest=digest,
    )


def competing_digests(tx: LedgerTransaction, *, job_id: str, subject: str) -> list[dict[str, Any]]:
    """Return every digest known for a subject (`item:<ordinal>` or `result`), and who wrote it."""
    digest: ColumnElement[Any]
    if subject == RESULT:
        digest, epoch, is_row = jobs.c.result_digest, jobs.c.lease_epoch, jobs.c.job_id == job_id
        is_subject: ColumnElement[bool] = refused_writes.c.ordinal.is_(None)
    else:
        ordinal = int(subject.removeprefix("item:"))
        digest, epoch = items.c.outcome_digest, items.c.written_epoch
        is_row = (items.c.job_id == job_id) & (items.c.ordinal == ordinal)
        is_subject = refused_writes.c.ordinal == ordinal
    known = select(digest.label("digest"), epoch.label("lease_epoch")).where(is_row, digest.is_not(None))
    rejected = (
        select(refused_writes)
        .where(refused_writes.c.job_id == job_id, is_subject, refused_writes.c.digest.is_not(None))
        .order_by(refused_writes.c.refusal_id)
    )
    committed = [row | {"source": "ledger"} for row in tx.rows(known)]
    return committed + [_rejected_digest(row) for row in tx.rows(rejected)]


def _rejected_digest(row: dict[str, Any]) -> dict[str, Any]:
    """Return the digest of a rejected write and, for an item's outcome, where the worker kept it."""
    entry = {"digest": row["digest"], "source": f"refused {row['write_kind']}", "lease_epoch": row["lease_epoch"]}
    if row["ordinal"] is None:
        return entry
    named = {name: row[name] for name in ("job_id", "ordinal", "lease_epoch", "digest")}
    return entry | {"object_key": rejected_output_key(**named)}


def hold_divergent(
    tx: LedgerTransaction, *, job_id: str, subject: str, limits: Limits, further: list[dict[str, Any]] | None = None
) -> str | None:
    """Quarantine a subject whose digests differ; returns the quarantine id, None when known already.

    Before the terminal record the job leaves its worker and stays `running/quarantined`; after it
    state and class stay, the result is not served, and tasks of the job are marked disputed. A resolved
    quarantine opens again only when a digest appears that it does not name.
    """
    job = read_job(tx, job_id, lock=True)
    assert job is not None
    known = tx.row(select(quarantine).where(quarantine.c.job_id == job_id, quarantine.c.subject == subject))
    seen = list(known["digests"]) if known else []
    found = competing_digests(tx, job_id=job_id, subject=subject) + list(further or [])
    digests = seen + [entry for entry in found if entry not in seen]
    if known is not None and {entry["digest"] for entry in digests} == {entry["digest"] for entry in seen}:
        return None
    quarantine_id: str | None = None
    if known is not None and known["state"] == OPEN:
        named = quarantine.c.quarantine_id == known["quarantine_id"]
        tx.execute(update(quarantine).where(named).values(digests=digests))
    else:
        quarantine_id = _open_quarantine(tx, job, subject, digests, known, limits=limits)
        if job.state not in TERMINAL_STATES:
            _leave_worker(tx, job)
        tx.execute(update(review_tasks).where(review_tasks.c.job_id == job_id).values(disputed=True))
    append_event(
        tx,
        EventKind.QUARANTINED,
        job_id=job_id,
        tenant=job.tenant,
        subject=subject,
        digests=[entry["digest"] for entry in digests],
    )
    return quarantine_id


def _open_quarantine(
    tx: LedgerTransaction,
    job: JobRow,
    subject: str,
    digests: list[dict[str, Any]],
    known: dict[str, Any] | None,
    *,
    limits: Limits,
) -> str:
    """Open the quarantine and its investigation, or open them again; returns the quarantine's id."""
    investigation_id = open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.DIVERGENT_OUTPUT,
            subject=f"{job.job_id}:{subject}",
            reopened_as=str(len(digests)),
            job_id=job.job_id,
            reason=RESULT_QUARANTINED,
            suspected_effect="two different outputs exist for one decision; none of them is served",
            allowed_repair="compare the outputs, then record keep <digest> or withdraw",
            evidence={"subject": subject, "digests": digests},
        ),
        limits=limits,
    )
    values = {
        "digests": digests,
        "state": OPEN,
        "resolved_at": None,
        "before_terminal": job.state not in TERMINAL_STATES,
        "investigation_id": investigation_id,
        "opened_at": tx.now(),
    }
    if known is not None:
        named = quarantine.c.quarantine_id == known["quarantine_id"]
        tx.execute(update(quarantine).where(named).values(**values))
        return str(known["quarantine_id"])
    quarantine_id = new_id(tx, "qua")
    tx.execute(insert(quarantine).values(quarantine_id=quarantine_id, job_id=job.job_id, subject=subject, **values))
    return quarantine_id


def _leave_worker(tx: LedgerTransaction, job: JobRow) -> None:
    tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job.job_id, jobs.c.state == JobState.RUNNING)  # edge (RUNNING, HOLD)
        .values(
            phase=Phase.QUARANTINED,
            retry_at=None,
            wave_id=None,
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=None,
            lease_expires_at=None,
        )
    )
    end = AttemptEnd(AttemptOutcome.QUARANTINED, FailureClass.DIVERGENT, RESULT_QUARANTINED.code)
    close_attempt(tx, job.token, end)


def open_quarantines(tx: LedgerTransaction, job_id: str | None = None) -> list[dict[str, Any]]:
    """Return open quarantine rows, of one job or of all."""
    query = select(quarantine).where(quarantine.c.state == OPEN).order_by(quarantine.c.opened_at)
    return tx.rows(query if job_id is None else query.where(quarantine.c.job_id == job_id))


@dataclass(frozen=True, slots=True)
class DecisionNote:
    """Who decided about divergent outputs, and what that person found."""

    actor: str
    text: str = ""


def keep_output(
    tx: LedgerTransaction,
    *,
    job_id: str,
    digest: str,
    note: DecisionNote,
    limits: Limits,
    verified: VerifiedResult | None = None,
) -> None:
    """Record `keep <digest>`: after the terminal record the result is served again, before it work continues.

    What may be kept is what the ledger committed: an item's outcome, a closed job's result. Before the
    terminal record a result may be kept too when the caller verified its object against the items; the
    job then closes on it. Recording the same decision again changes nothing.

    Args:
        verified: the stored object with this digest whose items are those of the ledger, else None.
    Raises:
        InputRefused: QUARANTINE.DIGEST_UNKNOWN.v1. NotAllowed: QUARANTINE.OUTPUT_NOT_HELD.v1 when only
            the digest is known; STATE.REFUSES.v1 when nothing is in quarantine, or items wait first.
    """
    resolution = f"keep {digest}"
    waiting = _undecided(tx, job_id, resolution=resolution)
    if not waiting:
        return
    job = read_job(tx, job_id)
    assert job is not None
    chosen = [row for row in waiting if digest in {entry["digest"] for entry in row["digests"]}]
    if not chosen:
        raise InputRefused(QUARANTINE_DIGEST_UNKNOWN, job_id=job_id, digest=digest)
    closed = job.state in TERMINAL_STATES
    for row in chosen:
        if not closed and row["subject"] == RESULT and len(waiting) > 1:
            raise NotAllowed(STATE_REFUSES, job_id=job_id, detail="decide about the items first")
        if _committed_digest(tx, job, row["subject"], verified) != digest:
            raise NotAllowed(QUARANTINE_NOT_HELD, job_id=job_id, subject=row["subject"], digest=digest)
    _close_rows(tx, chosen, resolution=resolution, note=note)
    if len(chosen) < len(waiting):
        return
    if closed:
        tx.execute(update(review_tasks).where(review_tasks.c.job_id == job_id).values(disputed=False))
    elif chosen[0]["subject"] == RESULT and verified is not None:
        commit_result(tx, job.token, verified, limits=limits)
    else:
        _resume(tx, job)


def withdraw_output(tx: LedgerTransaction, *, job_id: str, note: DecisionNote, limits: Limits) -> None:
    """Record `withdraw`: an open job closes as `failed/identity_failed`, a closed one serves no result.

    State and class of a closed job stay. Tasks stay disputed and those not made yet are never made.
    Recording it again changes nothing.

    Raises:
        NotAllowed: STATE.REFUSES.v1 when nothing of the job is in quarantine.
    """
    waiting = _undecided(tx, job_id, resolution=WITHDRAW)
    if not waiting:
        return
    _close_rows(tx, waiting, resolution=WITHDRAW, note=note)
    undecided = (EffectState.INTENDED, EffectState.UNKNOWN)
    _abandon(tx, job_id, EffectKind.REVIEW_TASKS, (*undecided, EffectState.FAILED))
    job = read_job(tx, job_id)
    if job is not None and job.state in TERMINAL_STATES:
        finish_job_if_done(tx, job_id)
        return
    _abandon(tx, job_id, EffectKind.RESULT_OBJECT, undecided)
    closed = close_for_identity(tx, job_id, reason=RESULT_WITHDRAWN, limits=limits)
    assert closed, "a quarantined job has no owner, and its row is locked"


def _undecided(tx: LedgerTransaction, job_id: str, *, resolution: str) -> list[dict[str, Any]]:
    """Lock the job and return its open quarantines; none when this decision is recorded already."""
    job = read_job(tx, job_id, lock=True)
    waiting = open_quarantines(tx, job_id)
    decided = tx.row(
        select(quarantine.c.quarantine_id).where(
            quarantine.c.job_id == job_id, quarantine.c.state == RESOLVED, quarantine.c.resolution == resolution
        )
    )
    if decided is not None and not _still_applies(waiting, resolution):
        return []
    if job is None or not waiting:
        raise NotAllowed(STATE_REFUSES, job_id=job_id)
    return waiting


def _still_applies(waiting: Iterable[dict[str, Any]], resolution: str) -> bool:
    """Return whether the same decision is possible once more, for another subject."""
    digest = resolution.removeprefix("keep ")
    return any(resolution == WITHDRAW or digest in {entry["digest"] for entry in row["digests"]} for row in waiting)


def _committed_digest(tx: LedgerTransaction, job: JobRow, subject: str, verified: VerifiedResult | None) -> str | None:
    if subject == RESULT:
        if job.state in TERMINAL_STATES:
            return job.result_digest
        return verified.digest if verified else None
    ordinal = int(subject.removeprefix("item:"))
    found = tx.scalar(select(items.c.outcome_digest).where(items.c.job_id == job.job_id, items.c.ordinal == ordinal))
    return None if found is None else str(found)


def _close_rows(tx: LedgerTransaction, rows: list[dict[str, Any]], *, resolution: str, note: DecisionNote) -> None:
    for row in rows:
        tx.execute(
            update(quarantine)
            .where(quarantine.c.quarantine_id == row["quarantine_id"], quarantine.c.state == OPEN)
            .values(state=RESOLVED, resolution=resolution, resolved_at=tx.now())
        )
        append_event(
            tx,
            EventKind.QUARANTINE_RESOLVED,
            job_id=row["job_id"],
            subject=row["subject"],
            resolution=resolution,
            by=note.actor,
        )
        # A person may have resolved the investigation before; that decision stays.
        state = tx.scalar(
            select(investigations.c.state).where(investigations.c.investigation_id == row["investigation_id"])
        )
        if state == INVESTIGATION_OPEN:
            text = f"{resolution}: {note.text}" if note.text else resolution
            resolve_investigation(tx, row["investigation_id"], resolution=text, actor=note.actor)


def _resume(tx: LedgerTransaction, job: JobRow) -> None:
    """Queue the job again: for work while items are open, else for a closing attempt."""
    unfinished = tx.scalar(
        select(func.count()).select_from(items).where(items.c.job_id == job.job_id, items.c.item_class.is_(None))
    )
    closing = not unfinished or job.close_cause is not None
    phase = Phase.CLOSING if closing else Phase.QUEUED
    tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job.job_id, jobs.c.phase == Phase.QUARANTINED)
        .values(
            phase=phase,
            close_cause=job.close_cause or (CloseCause.FINISHED if closing else None),
            retry_at=None,
            wave_id=None,
        )
    )
    append_event(tx, EventKind.PHASE_CHANGED, job_id=job.job_id, phase=phase.value)


def _abandon(tx: LedgerTransaction, job_id: str, kind: EffectKind, states: tuple[EffectState, ...]) -> None:
    tx.execute(
        update(effects)
        .where(effects.c.job_id == job_id, effects.c.kind == kind, effects.c.state.in_(states))
        .values(state=EffectState.ABANDONED, reason_code=RESULT_WITHDRAWN.code, updated_at=tx.now())
    )


def withdraw_result(tx: LedgerTransaction, *, job_id: str, actor: str) -> None:
    """Record that the result of a succeeded job is withdrawn; an object under its key stays there.

    State and class stay. Tasks that were made are disputed, those that were not are never made.

    Raises:
        NotAllowed: STATE.REFUSES.v1 when the job has not succeeded.
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job.state is not JobState.SUCCEEDED or job.result_key is None:
        raise NotAllowed(STATE_REFUSES, job_id=job_id)
    add_tombstone(tx, object_key=job.result_key, job_id=job_id, reason=RESULT_WITHDRAWN.code, digest=job.result_digest)
    tx.execute(update(review_tasks).where(review_tasks.c.job_id == job_id).values(disputed=True))
    _abandon(
        tx,
        job_id,
        EffectKind.REVIEW_TASKS,
        tuple(state for state in EffectState if state not in (EffectState.COMMITTED, EffectState.ABANDONED)),
    )
    append_event(tx, EventKind.RESULT_WITHDRAWN, job_id=job_id, tenant=job.tenant, digest=job.result_digest, by=actor)
    finish_job_if_done(tx, job_id)
