"""Hands one delivery through: a submission row, one job or many rows, and an answer with a line for each."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.envelope import JobRequest
from receipt_pipeline.core.errors import InputRefused, KeyConflict, ObjectFault, PipelineError
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.reasons import REASONS
from receipt_pipeline.intake.accept import Acceptance, accept, acceptance_of
from receipt_pipeline.intake.batch import BatchDelivery, MayWait, accept_rows, wait_for_nothing
from receipt_pipeline.intake.copying import CopyProgress, ScanSource, list_loader, never
from receipt_pipeline.intake.manifest import Batch, parse_document
from receipt_pipeline.intake.services import Intake
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.object_records import release_holds
from receipt_pipeline.ledger.submissions import (
    COUNTED,
    RowOutcome,
    SubmissionState,
    decided_row_numbers,
    open_submission,
    read_submission,
    record_row,
    recorded_rows,
    settle_submission,
    stored_scans,
)
from receipt_pipeline.ledger.tables import jobs

ONLY_ROW = 1


@dataclass(frozen=True, slots=True)
class Arrival:
    """What arrived: for whom, by which door, from where its scans come, and its name for people."""

    principal: Principal
    scans: ScanSource
    door: str
    label: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one row; times are aware UTC, absent where no job answers the row."""

    row_no: int
    outcome: RowOutcome
    idempotency_key: str
    job_id: str | None
    status_location: str | None
    submitted_at: dt.datetime | None
    queue_deadline: dt.datetime | None
    reason_code: str
    pointer: str
    facts: Mapping[str, Any]

    def as_document(self) -> dict[str, Any]:
        """Return the line as a JSON object; a reason carries its meaning and next step."""
        document: dict[str, Any] = {
            "row": self.row_no,
            "outcome": self.outcome.value,
            "idempotency_key": self.idempotency_key,
            "job_id": self.job_id,
            "status_location": self.status_location,
            "submitted_at": self.submitted_at.isoformat() if self.submitted_at else None,
            "queue_deadline": self.queue_deadline.isoformat() if self.queue_deadline else None,
        }
        if self.reason_code:
            document["reason"] = reason_document(self.reason_code, self.pointer, self.facts)
        return document


@dataclass(frozen=True, slots=True)
class Delivered:
    """The answer to one delivery: a line per row; for a single job its acceptance, too."""

    submission_id: str
    label: str
    document_digest: str
    state: SubmissionState
    lines: tuple[Line, ...]
    acceptance: Acceptance | None = None
    error: PipelineError | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Return rows, accepted, joined, refused, conflicts; the last four add up to the first."""
        found = Counter(line.outcome for line in self.lines)
        return {"rows": len(self.lines)} | {name: found[outcome] for outcome, name in COUNTED.items()}

    def as_document(self) -> dict[str, Any]:
        """Return the acknowledgement as a JSON document."""
        document: dict[str, Any] = {
            "submission_id": self.submission_id,
            "document": self.label,
            "document_digest": self.document_digest,
            "state": self.state.value,
            "counts": self.counts,
            "lines": [line.as_document() for line in self.lines],
        }
        if self.acceptance is not None:
            document["acceptance"] = self.acceptance.as_document()
        if self.error is not None:
            document["refusal"] = self.error.as_document()
        return document


def reason_document(code: str, pointer: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded reason as `PipelineError.as_document` would give it."""
    return PipelineError(REASONS[code], pointer=pointer, **dict(facts)).as_document()


def deliver(
    intake: Intake, document: bytes | JobRequest, arrival: Arrival, *, suffix: str = ".json"
) -> Delivered:
    """Take one delivery in at a door that waits for nothing, and answer it.

    Refusals and conflicts are answers, not exceptions, so that one delivery harms no other.

    Raises:
        NotAllowed: the principal may not submit; nothing is recorded.
        LedgerUnavailable: nothing was written, or what was is found again by repeating.
    """
    require(arrival.principal, Role.SUBMITTER)
    digest = digest_of_bytes(document) if isinstance(document, bytes) else document.fingerprint
    with intake.ledger.transaction() as tx:
        submission_id = open_arrival(tx, arrival, document_digest=digest)
    parsed: JobRequest | Batch | None = None
    try:
        parsed = (
            parse_document(document, suffix=suffix, load_list=list_loader(arrival.scans))
            if isinstance(document, bytes)
            else document
        )
        take_in(intake, parsed, arrival, submission_id)
    except (InputRefused, KeyConflict, ObjectFault) as error:
        return settle(intake, submission_id, error=error)
    return settle(intake, submission_id)


def open_arrival(
    tx: LedgerTransaction, arrival: Arrival, *, document_digest: str, facts: Mapping[str, Any] | None = None
) -> str:
    """Record that something arrived; returns the submission id."""
    return open_submission(
        tx,
        tenant=arrival.principal.tenant,
        caller=arrival.principal.caller,
        door=arrival.door,
        label=arrival.label,
        place=arrival.place,
        document_digest=document_digest,
        facts=facts,
    )


def take_in(
    intake: Intake,
    parsed: JobRequest | Batch,
    arrival: Arrival,
    submission_id: str,
    *,
    time_is_up: Callable[[], bool] = never,
    may_wait: MayWait = wait_for_nothing,
) -> int:
    """Decide a parsed delivery as far as possible; returns how many of its rows still wait.

    What an earlier pass decided or stored is not done again.

    Raises:
        PassEnded, InputRefused and KeyConflict (of a single job), ObjectFault, LedgerUnavailable.
    """
    if isinstance(parsed, Batch):
        rows = BatchDelivery(
            arrival.principal, arrival.scans, arrival.door, submission_id, time_is_up, may_wait
        )
        return accept_rows(intake, parsed, rows)
    with intake.ledger.reading() as tx:
        if ONLY_ROW in decided_row_numbers(tx, submission_id):
            return 0
        known = stored_scans(tx, submission_id)
    try:
        _accept_whole(intake, parsed, arrival, CopyProgress(submission_id, known, time_is_up))
    except InputRefused as refusal:
        if may_wait(refusal):
            return 1
        raise
    return 0


def _accept_whole(intake: Intake, request: JobRequest, arrival: Arrival, progress: CopyProgress) -> None:
    submission_id = progress.submission_id
    assert submission_id is not None

    def record(tx: LedgerTransaction, job: dict[str, Any], replayed: bool) -> None:
        record_row(
            tx,
            submission_id,
            row_no=ONLY_ROW,
            outcome=RowOutcome.JOINED if replayed else RowOutcome.ACCEPTED,
            idempotency_key=request.idempotency_key,
            job_id=job["job_id"],
        )

    accept(
        intake,
        request,
        principal=arrival.principal,
        folder=arrival.scans,
        door=arrival.door,
        progress=progress,
        in_transaction=record,
    )


def settle(
    intake: Intake,
    submission_id: str,
    *,
    error: PipelineError | None = None,
    document_digest: str | None = None,
) -> Delivered:
    """Close a delivery by what became of its rows, and return its answer.

    An error that refuses the delivery as a whole is its only line, unless rows were decided before.
    """
    with intake.ledger.transaction() as tx:
        if error is not None and not decided_row_numbers(tx, submission_id):
            outcome = RowOutcome.CONFLICT if isinstance(error, KeyConflict) else RowOutcome.REFUSED
            job_id = error.facts.get("job_id")
            record_row(
                tx,
                submission_id,
                row_no=ONLY_ROW,
                outcome=outcome,
                idempotency_key="",
                job_id=job_id,
                error=error,
            )
        rows = recorded_rows(tx, submission_id)
        settle_submission(
            tx,
            submission_id,
            state=_state_of(Counter(row["outcome"] for row in rows)),
            rows_total=len(rows),
            document_digest=document_digest,
            error=error,
        )
        release_holds(tx, holder=submission_id)
        submission = read_submission(tx, submission_id)
    return _delivered(intake, submission, rows, error)


def read_delivered(intake: Intake, submission_id: str) -> Delivered:
    """Return the answer to a delivery that was settled before."""
    with intake.ledger.reading() as tx:
        submission = read_submission(tx, submission_id)
        rows = recorded_rows(tx, submission_id)
    error = None
    if submission["reason_code"]:
        reason = REASONS[submission["reason_code"]]
        error = PipelineError(reason, pointer=submission["pointer"], **submission["facts"])
    return _delivered(intake, submission, rows, error)


def _state_of(outcomes: Mapping[str, int]) -> SubmissionState:
    for outcome, state in (
        (RowOutcome.ACCEPTED, SubmissionState.ACCEPTED),
        (RowOutcome.JOINED, SubmissionState.JOINED),
        (RowOutcome.REFUSED, SubmissionState.REFUSED),
        (RowOutcome.CONFLICT, SubmissionState.CONFLICT),
    ):
        if outcomes.get(outcome):
            return state
    return SubmissionState.REFUSED


def _delivered(
    intake: Intake, submission: dict[str, Any], rows: list[dict[str, Any]], error: PipelineError | None
) -> Delivered:
    lines = tuple(
        Line(
            row_no=row["row_no"],
            outcome=RowOutcome(row["outcome"]),
            idempotency_key=row["idempotency_key"],
            job_id=row["job_id"],
            status_location=intake.status_location(row["tenant"], row["job_id"]) if row["job_id"] else None,
            submitted_at=row["submitted_at"],
            queue_deadline=row["queue_deadline"],
            reason_code=row["reason_code"],
            pointer=row["pointer"],
            facts=row["facts"],
        )
        for row in rows
    )
    return Delivered(
        submission_id=submission["submission_id"],
        label=submission["label"],
        document_digest=submission["document_digest"],
        state=SubmissionState(submission["state"]),
        lines=lines,
        acceptance=_only_acceptance(intake, lines),
        error=error,
    )


def _only_acceptance(intake: Intake, lines: tuple[Line, ...]) -> Acceptance | None:
    """Return the acceptance where one job answers the whole delivery."""
    answers = (RowOutcome.ACCEPTED, RowOutcome.JOINED)
    if len(lines) != 1 or lines[0].outcome not in answers:
        return None
    with intake.ledger.reading() as tx:
        job = tx.row(select(jobs).where(jobs.c.job_id == lines[0].job_id))
    assert job is not None, lines[0].job_id
    return acceptance_of(intake, job, replayed=lines[0].outcome is RowOutcome.JOINED)
