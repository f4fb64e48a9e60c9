"""Divergent outputs, rejected writes, and the decision to keep or withdraw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

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
from receipt_pipeline.ledger.investigations import OPEN as QUESTION_OPEN
from receipt_pipeline.ledger.investigations import (
    InvestigationKind,
    InvestigationRequest,
    open_investigation,
    resolve_investigation,
)
from receipt_pipeline.ledger.jobs.failures import close_for_identity
from receipt_pipeline.ledger.jobs.finalize import (
    VerifiedResult,
    close_attempt,
    commit_result,
    finish_job_if_done,
)
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.effects import effects, investigations, quarantine, review_tasks
from receipt_pipeline.ledger.schema.jobs import items, jobs, refused_writes

OPEN = "open"


_ALL_OPEN = select(quarantine).where(quarantine.c.state == OPEN).order_by(quarantine.c.opened_at)


_OPEN_OF_JOB = _ALL_OPEN.where(quarantine.c.job_id == bindparam("of_job"))


def competing_digests(tx: LedgerTransaction, *, job_id: str, subject: str) -> list[dict[str, Any]]:
    """Return every digest known for a subject (`item:<ordinal>` or `result`), and who wrote it."""
    known: list[dict[str, Any]] = []
    job = read_job(tx, job_id)
    assert job is not None
    query = select(refused_writes).where(refused_writes.c.job_id == job_id)
    if subject.startswith("item:"):
        ordinal = int(subject.removeprefix("item:"))
        row = tx.row(select(items).where(items.c.job_id == job_id).where(items.c.ordinal == ordinal))
        if row is not None and row["outcome_digest"]:
            known.append(
                {"digest": row["outcome_digest"], "source": "ledger", "lease_epoch": row["written_epoch"]}
            )
        query = query.where(refused_writes.c.ordinal == ordinal)
    else:
        if job["result_digest"]:
            known.append(
                {"digest": job["result_digest"], "source": "ledger", "lease_epoch": job["lease_epoch"]}
            )
        query = query.where(refused_writes.c.ordinal.is_(None))
    for row in tx.rows(
        query.where(refused_writes.c.digest.is_not(None)).order_by(refused_writes.c.refusal_id)
    ):
        known.append(_refused(row))
    return known


def _refused(row: dict[str, Any]) -> dict[str, Any]:
    """Return the digest of a refused write and, for an item's outcome, where the worker kept it."""
    entry = {
        "digest": row["digest"],
        "source": f"refused {row['write_kind']}",
        "lease_epoch": row["lease_epoch"],
    }
    if row["ordinal"] is None:
        return entry
    named = {name: row[name] for name in ("job_id", "ordinal", "lease_epoch", "digest")}
    return entry | {"object_key": rejected_output_key(**named)}


def hold_divergent(
    tx: LedgerTransaction,
    *,
    job_id: str,
    subject: str,
    limits: Limits,
    further: list[dict[str, Any]] | None = None,
) -> str | None:
    """Quarantine a subject whose digests differ; returns the quarantine id, None when known already.

    Before the terminal record the job leaves its worker and stays `running/quarantined`; after it
    state and class stay, the result is not served, and tasks of the job are marked disputed. What
    was decided on before is asked again only when a digest turns up that nobody had seen.
    """
    job = read_job(tx, job_id, lock=True)
    assert job is not None
    known = tx.row(
        select(quarantine).where(quarantine.c.job_id == job_id).where(quarantine.c.subject == subject)
    )
    seen = list(known["digests"]) if known else []
    found = competing_digests(tx, job_id=job_id, subject=subject) + list(further or [])
    digests = seen + [entry for entry in found if entry not in seen]
    if known is not None and {entry["digest"] for entry in digests} == {entry["digest"] for entry in seen}:
        return None
    if known is not None and known["state"] == OPEN:
        _keep_row(tx, known, digests=digests)
        _tell_quarantined(tx, job, subject=subject, digests=digests)
        return None
    before_terminal = job["state"] not in TERMINAL_STATES
    investigation_id = open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.DIVERGENT_OUTPUT,
            subject=f"{job_id}:{subject}",
            reopened_as=str(len(digests)),
            job_id=job_id,
            reason=RESULT_QUARANTINED,
            suspected_effect="two different outputs exist for one decision; none of them is served",
            allowed_repair="compare the outputs, then record keep <digest> or withdraw",
            evidence={"subject": subject, "digests": digests},
        ),
        limits=limits,
    )
    quarantine_id = _keep_row(
        tx,
        known,
        job_id=job_id,
        subject=subject,
        digests=digests,
        state=OPEN,
        resolved_at=None,
        before_terminal=before_terminal,
        investigation_id=investigation_id,
        opened_at=tx.now(),
    )
    if before_terminal:
        _leave_worker(tx, job)
    _dispute(tx, job, subject=subject, digests=digests)
    return quarantine_id


def _dispute(
    tx: LedgerTransaction, job: dict[str, Any], *, subject: str, digests: list[dict[str, Any]]
) -> None:
    """Mark the job's tasks as disputed and journal the quarantine."""
    tx.execute(update(review_tasks).where(review_tasks.c.job_id == job["job_id"]).values(disputed=True))
    _tell_quarantined(tx, job, subject=subject, digests=digests)


def _tell_quarantined(
    tx: LedgerTransaction, job: dict[str, Any], *, subject: str, digests: list[dict[str, Any]]
) -> None:
    append_event(
        tx,
        EventKind.QUARANTINED,
        job_id=job["job_id"],
        tenant=job["tenant"],
        subject=subject,
        digests=[entry["digest"] for entry in digests],
    )


def _keep_row(tx: LedgerTransaction, known: dict[str, Any] | None, **values: Any) -> str:
    if known is None:
        quarantine_id = new_id(tx, "qua")
        tx.execute(insert(quarantine).values(quarantine_id=quarantine_id, **values))
        return quarantine_id
    quarantine_id = str(known["quarantine_id"])
    tx.execute(update(quarantine).where(quarantine.c.quarantine_id == quarantine_id).values(**values))
    return quarantine_id


def _leave_worker(tx: LedgerTransaction, job: dict[str, Any]) -> None:
    tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job["job_id"])
        .where(jobs.c.state == JobState.RUNNING)
        .values(
            phase=Phase.QUARANTINED,
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=None,
            lease_expires_at=None,
            retry_at=None,
            wave_id=None,
        )
    )
    close_attempt(
        tx,
        job["job_id"],
        lease_epoch=job["lease_epoch"],
        outcome=AttemptOutcome.QUARANTINED,
        failure_class=FailureClass.DIVERGENT.value,
        reason_code=RESULT_QUARANTINED.code,
    )


def open_quarantines(tx: LedgerTransaction, job_id: str | None = None) -> list[dict[str, Any]]:
    """Return open quarantine rows, of one job or of all."""
    return tx.rows(_OPEN_OF_JOB, {"of_job": job_id}) if job_id else tx.rows(_ALL_OPEN)


RESOLVED = "resolved"


WITHDRAW = "withdraw"


RESULT = "result"


def keep_output(
    tx: LedgerTransaction,
    *,
    job_id: str,
    digest: str,
    actor: str,
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
    _close_rows(tx, chosen, resolution=resolution, actor=actor, note=note)
    if len(chosen) < len(waiting):
        return
    if closed:
        tx.execute(update(review_tasks).where(review_tasks.c.job_id == job_id).values(disputed=False))
    else:
        _go_on(tx, job, verified=verified if chosen[0]["subject"] == RESULT else None, limits=limits)


def withdraw_output(
    tx: LedgerTransaction, *, job_id: str, actor: str, limits: Limits, note: str = ""
) -> None:
    """Record `withdraw`: an open job closes as `failed/identity_failed`, a closed one serves no result.

    State and class of a closed job stay. Tasks stay disputed and those not made yet are never made.
    Recording it again changes nothing.

    Raises:
        NotAllowed: STATE.REFUSES.v1 when nothing of the job is in quarantine.
    """
    job, waiting = _in_question(tx, job_id, resolution=WITHDRAW)
    if job is None:
        return
    _close_rows(tx, waiting, resolution=WITHDRAW, actor=actor, note=note)
    _abandon(tx, job_id, kinds=(EffectKind.REVIEW_TASKS,), states=(*_UNDECIDED, EffectState.FAILED))
    if job["state"] in TERMINAL_STATES:
        finish_job_if_done(tx, job_id)
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
    tx: LedgerTransaction, rows: list[dict[str, Any]], *, resolution: str, actor: str, note: str
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
            by=actor,
        )
        # A person may have closed the question by itself before; its answer stands.
        asked = tx.scalar(
            select(investigations.c.state).where(investigations.c.investigation_id == row["investigation_id"])
        )
        if asked == QUESTION_OPEN:
            answer = f"{resolution}: {note}" if note else resolution
            resolve_investigation(tx, row["investigation_id"], resolution=answer, actor=actor)


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


def withdraw_result(tx: LedgerTransaction, *, job_id: str, actor: str) -> None:
    """Record that the result of a succeeded job is given up; whatever lies under its key stays there.

    State and class stay. Tasks that were made are disputed, those that were not are never made.

    Raises:
        NotAllowed: STATE.REFUSES.v1 when the job has not succeeded.
    """
    job = read_job(tx, job_id, lock=True)
    if job is None or job["state"] != JobState.SUCCEEDED:
        raise NotAllowed(STATE_REFUSES, job_id=job_id)
    add_tombstone(
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
        by=actor,
    )
    finish_job_if_done(tx, job_id)


def record_rejected_write(
    tx: LedgerTransaction,
    token: FencingToken,
    *,
    write_kind: str,
    ordinal: int | None = None,
    digest: str | None = None,
) -> None:
    """Keep the evidence of a stale worker's write: what it was, and the digest it carried."""
    job = read_job(tx, token.job_id)
    assert job is not None
    tx.execute(
        insert(refused_writes).values(
            job_id=token.job_id,
            lease_epoch=token.lease_epoch,
            current_epoch=job["lease_epoch"],
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
