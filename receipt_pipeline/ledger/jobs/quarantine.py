"""Divergent outputs, rejected writes, and the decision to keep or withdraw."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, insert, select, update

from receipt_pipeline.core.attempts import AttemptOutcome, FailureClass
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import RESULT_QUARANTINED
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import InvestigationKind, open_investigation
from receipt_pipeline.ledger.jobs.failures import read_job
from receipt_pipeline.ledger.jobs.finalize import close_attempt
from receipt_pipeline.ledger.jobs.refused_outputs import refused_output_key
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.schema.effects import quarantine, review_tasks
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
    return entry | {"object_key": refused_output_key(**named)}


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
        InvestigationKind.DIVERGENT_OUTPUT,
        subject=f"{job_id}:{subject}",
        again=str(len(digests)),
        job_id=job_id,
        reason=RESULT_QUARANTINED,
        suspected_effect="two different outputs exist for one decision; none of them is served",
        allowed_repair="compare the outputs, then record keep <digest> or withdraw",
        limits=limits,
        evidence={"subject": subject, "digests": digests},
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
