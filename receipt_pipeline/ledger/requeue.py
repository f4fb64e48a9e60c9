"""Gives a running job back to the queue on an operator's word: the epoch rises, no old writer returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import update

from receipt_pipeline.core.attempt_outcome import AttemptOutcome
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.job_lifecycle import TERMINAL_STATES, JobState, Phase
from receipt_pipeline.core.reasons import RESULT_QUARANTINED, STATE_REFUSES, UPLOAD_UNKNOWN
from receipt_pipeline.ledger.closing import close_attempt
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.losses import read_job
from receipt_pipeline.ledger.tables import jobs


@dataclass(frozen=True, slots=True)
class Requeued:
    """What a requeue did: who was fenced (None for nobody), from which epoch to which."""

    job_id: str
    changed: bool
    fenced: str | None
    epoch_before: int
    epoch: int
    phase: Phase


def requeue_job(tx: LedgerTransaction, *, job_id: str, by: str) -> Requeued:
    """Take a running job from whoever holds it and make it ready at once, under the next epoch (R070).

    It spends no budget and charges no item; finished items stay. A job that waits for its first claim
    has no writer, so nothing is changed.

    Raises:
        NotAllowed: STATE.REFUSES.v1 for a closed job; RESULT.QUARANTINED.v1 or UPLOAD.UNKNOWN.v1 while
            it is held: only the decision or the look-up lets it go on.
    """
    job = read_job(tx, job_id, lock=True)
    assert job is not None, job_id
    if job["state"] in TERMINAL_STATES:
        raise NotAllowed(STATE_REFUSES, job_id=job_id, state=job["state"])
    for phase, reason in ((Phase.QUARANTINED, RESULT_QUARANTINED), (Phase.RECONCILING, UPLOAD_UNKNOWN)):
        if job["phase"] == phase:
            raise NotAllowed(reason, job_id=job_id, phase=phase.value)
    if job["state"] == JobState.ACCEPTED:
        epoch = int(job["lease_epoch"])
        return Requeued(job_id, False, None, epoch, epoch, Phase(job["phase"]))
    return _fence(tx, job, by=by)


def _fence(tx: LedgerTransaction, job: dict[str, Any], *, by: str) -> Requeued:
    job_id, epoch = job["job_id"], int(job["lease_epoch"])
    phase = Phase.CLOSING if job["close_cause"] is not None else Phase.QUEUED
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.state == JobState.RUNNING)
        .where(jobs.c.lease_epoch == epoch)
        .values(
            lease_epoch=jobs.c.lease_epoch + 1,
            lease_owner=None,
            lease_expires_at=None,
            retry_at=None,
            wave_id=None,
            phase=phase,
        )
    )
    assert written.rowcount == 1, "the row was locked"
    close_attempt(tx, job_id, lease_epoch=epoch, outcome=AttemptOutcome.REQUEUED)
    append_event(
        tx,
        EventKind.REQUEUED,
        job_id=job_id,
        tenant=job["tenant"],
        lease_epoch=epoch + 1,
        fenced=job["lease_owner"],
        by=by,
    )
    return Requeued(job_id, True, job["lease_owner"], epoch, epoch + 1, phase)
