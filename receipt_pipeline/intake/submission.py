"""One delivery: one job, or many rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import InputRefused, KeyConflict, ObjectFault, PipelineError
from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.core.reasons import REASONS
from receipt_pipeline.core.request import JobRequest
from receipt_pipeline.intake.accept import Acceptance, Arrival, accept_job, acceptance_of
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.manifest import Batch, BatchRow, parse_document
from receipt_pipeline.intake.scans import CopyProgress, PassEnded, list_loader, never_stop
from receipt_pipeline.ledger.effects.objects import release_holds
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.submissions import (
    COUNTED,
    NewSubmission,
    RowOutcome,
    RowRecord,
    SubmissionState,
    decided_row_numbers,
    finish_submission,
    jobs_of_rows,
    note_digest,
    open_submission,
    read_submission,
    record_row,
    recorded_rows,
    stored_scans,
)

# From a refusal to the final one, or None when a later pass should look again.
FinalRefusal = Callable[[InputRefused], InputRefused | None]
ONLY_ROW = 1


def refuse_now(refusal: InputRefused) -> InputRefused:
    """Return every refusal as final, for entry points that never look again."""
    return refusal


@dataclass(frozen=True, slots=True)
class BatchDelivery:
    """One delivery of a batch in one pass."""

    arrival: Arrival
    submission_id: str
    time_is_up: Callable[[], bool]
    final_refusal: FinalRefusal


def accept_rows(intake: IntakeContext, batch: Batch, delivery: BatchDelivery) -> int:
    """Decide every row that no earlier pass decided; returns how many rows wait for their scans.

    Each row has its own transaction, in which its outcome is recorded with its job. Equal rows
    join; a repeated key with another request conflicts, and the answer names both rows.

    Raises:
        PassEnded, ObjectFault, LedgerUnavailable: the next pass continues after the decided rows.
    """
    with intake.ledger.reading() as tx:
        decided = decided_row_numbers(tx, delivery.submission_id)
    first_row: dict[str, int] = {}
    waiting, looked_at = 0, 0
    for row in batch.rows:
        first = first_row.setdefault(row.idempotency_key, row.row_no)
        if row.row_no in decided:
            continue
        # Every pass decides at least one row.
        if looked_at and delivery.time_is_up():
            raise PassEnded
        looked_at += 1
        waiting += not _decide(intake, row, delivery, first_row=first)
    return waiting


def _decide(intake: IntakeContext, row: BatchRow, delivery: BatchDelivery, *, first_row: int) -> bool:
    """Decide one row; False when it waits."""
    try:
        _accept_row(intake, row, delivery)
    except KeyConflict as conflict:
        earlier = {} if first_row == row.row_no else {"conflicts_with_row": first_row}
        facts = {"row": row.row_no} | earlier | dict(conflict.facts)
        named = KeyConflict(conflict.reason, pointer=conflict.pointer, **facts)
        _record_refusal(intake, row, delivery, RowOutcome.CONFLICT, named)
    except InputRefused as refusal:
        final = refusal if refusal is row.refusal else delivery.final_refusal(refusal)
        if final is None:
            return False
        facts = {"row": row.row_no} | dict(final.facts)
        final = InputRefused(final.reason, pointer=final.pointer, **facts)
        _record_refusal(intake, row, delivery, RowOutcome.REFUSED, final)
    return True


def _accept_row(intake: IntakeContext, row: BatchRow, delivery: BatchDelivery) -> None:
    if row.request is None:
        assert row.refusal is not None
        raise row.refusal
    key = row.request.idempotency_key

    def record(tx: LedgerTransaction, job: JobRow, replayed: bool) -> None:
        outcome = RowOutcome.JOINED if replayed else RowOutcome.ACCEPTED
        record_row(
            tx,
            delivery.submission_id,
            RowRecord(row_no=row.row_no, outcome=outcome, idempotency_key=key, job_id=job.job_id),
        )

    progress = CopyProgress(delivery.submission_id, pointer_of=lambda _: f"/rows/{row.row_no - 1}/uri")
    accept_job(intake, row.request, delivery.arrival, progress=progress, in_transaction=record)


def _record_refusal(
    intake: IntakeContext,
    row: BatchRow,
    delivery: BatchDelivery,
    outcome: RowOutcome,
    error: InputRefused | KeyConflict,
) -> None:
    with intake.ledger.transaction() as tx:
        record_row(
            tx,
            delivery.submission_id,
            RowRecord(
                row_no=row.row_no,
                outcome=outcome,
                idempotency_key=row.idempotency_key,
                job_id=error.facts.get("job_id"),
                error=error,
            ),
        )


@dataclass(frozen=True, slots=True)
class RowResult:
    """The outcome of one row: its acceptance, or why it has none."""

    row_no: int
    outcome: RowOutcome
    idempotency_key: str
    job_id: str | None
    acceptance: Acceptance | None
    reason_code: str
    pointer: str
    facts: Mapping[str, Any]

    def as_document(self, *, brief: bool = False) -> dict[str, Any]:
        """Return the row as a JSON object; a brief one leaves the pins out of its acceptance."""
        document: dict[str, Any] = {
            "row": self.row_no,
            "outcome": self.outcome.value,
            "idempotency_key": self.idempotency_key,
            "job_id": self.job_id,
        }
        if self.acceptance is not None:
            document["acceptance"] = self.acceptance.as_document()
            if brief:
                del document["acceptance"]["pins"]
        if self.reason_code:
            document["reason"] = PipelineError(REASONS[self.reason_code]).as_document()
            document |= {"pointer": self.pointer, "facts": dict(self.facts)}
        return document


@dataclass(frozen=True, slots=True)
class Delivered:
    """The answer to one delivery: one result per row."""

    submission_id: str
    label: str
    document_digest: str
    state: SubmissionState
    lines: tuple[RowResult, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Return rows, accepted, joined, refused, conflicts; the last four add up to the first."""
        found = Counter(line.outcome for line in self.lines)
        return {"rows": len(self.lines)} | {name: found[outcome] for outcome, name in COUNTED.items()}

    @property
    def job_ids(self) -> tuple[str, ...]:
        """Return the jobs that answer this delivery, each once, in the order of its rows."""
        answering = (line.acceptance.job_id for line in self.lines if line.acceptance is not None)
        return tuple(dict.fromkeys(answering))

    def as_document(self, *, brief: bool = False) -> dict[str, Any]:
        """Return the acknowledgment as a JSON document."""
        return {
            "submission_id": self.submission_id,
            "document": self.label,
            "document_digest": self.document_digest,
            "state": self.state.value,
            "counts": self.counts,
            "lines": [line.as_document(brief=brief) for line in self.lines],
        }


def deliver(
    intake: IntakeContext, document: bytes | JobRequest, arrival: Arrival, *, suffix: str = ".json"
) -> Delivered:
    """Process one delivery without waiting for scans, and answer it.

    Refusals and conflicts are answers, not exceptions, so one delivery cannot stop another.

    Raises:
        NotAllowed: the principal may not submit; nothing is recorded.
        LedgerUnavailable: nothing was written, or repeating finds what was.
    """
    require(arrival.principal, Role.SUBMITTER)
    digest = digest_of_bytes(document) if isinstance(document, bytes) else document.fingerprint
    with intake.ledger.transaction() as tx:
        submission_id = open_arrival(tx, arrival, document_digest=digest)
    try:
        parsed: JobRequest | Batch
        if isinstance(document, bytes):
            parsed = parse_document(document, suffix=suffix, load_list=list_loader(arrival.scans))
        else:
            parsed = document
        process_delivery(intake, parsed, arrival, submission_id)
    except (InputRefused, KeyConflict, ObjectFault) as error:
        return finish_delivery(intake, submission_id, error=error)
    return finish_delivery(intake, submission_id)


def refuse(intake: IntakeContext, arrival: Arrival, error: InputRefused) -> Delivered:
    """Record and answer a delivery that cannot be read as a request."""
    require(arrival.principal, Role.SUBMITTER)
    with intake.ledger.transaction() as tx:
        submission_id = open_arrival(tx, arrival, document_digest="")
    return finish_delivery(intake, submission_id, error=error)


def open_arrival(
    tx: LedgerTransaction, arrival: Arrival, *, document_digest: str, facts: Mapping[str, Any] | None = None
) -> str:
    """Record that something arrived; returns the submission id."""
    return open_submission(
        tx,
        NewSubmission(
            tenant=arrival.principal.tenant,
            caller=arrival.principal.caller,
            door=arrival.entry_point,
            label=arrival.label,
            place=arrival.place,
            document_digest=document_digest,
            facts=facts,
        ),
    )


def process_delivery(
    intake: IntakeContext,
    parsed: JobRequest | Batch,
    arrival: Arrival,
    submission_id: str,
    *,
    time_is_up: Callable[[], bool] = never_stop,
    final_refusal: FinalRefusal = refuse_now,
) -> int:
    """Decide a parsed delivery as far as possible; returns how many of its rows still wait.

    Nothing that an earlier pass decided or stored is repeated.

    Raises:
        PassEnded, InputRefused and KeyConflict (of a single job), ObjectFault, LedgerUnavailable.
    """
    if isinstance(parsed, Batch):
        return accept_rows(intake, parsed, BatchDelivery(arrival, submission_id, time_is_up, final_refusal))
    with intake.ledger.reading() as tx:
        if ONLY_ROW in decided_row_numbers(tx, submission_id):
            return 0
        known = stored_scans(tx, submission_id)
    try:
        _accept_whole(intake, parsed, arrival, CopyProgress(submission_id, known, time_is_up))
    except InputRefused as refusal:
        final = final_refusal(refusal)
        if final is None:
            return 1
        raise final from refusal
    return 0


def _accept_whole(intake: IntakeContext, request: JobRequest, arrival: Arrival, progress: CopyProgress) -> None:
    submission_id = progress.submission_id
    assert submission_id is not None

    def record(tx: LedgerTransaction, job: JobRow, replayed: bool) -> None:
        record_row(
            tx,
            submission_id,
            RowRecord(
                row_no=ONLY_ROW,
                outcome=RowOutcome.JOINED if replayed else RowOutcome.ACCEPTED,
                idempotency_key=request.idempotency_key,
                job_id=job.job_id,
            ),
        )
        # One job is the whole delivery, so its acceptance finishes it in the same transaction.
        state = SubmissionState.JOINED if replayed else SubmissionState.ACCEPTED
        finish_submission(tx, submission_id, state=state, rows_total=ONLY_ROW)

    accept_job(intake, request, arrival, progress=progress, in_transaction=record)


def finish_delivery(
    intake: IntakeContext, submission_id: str, *, error: PipelineError | None = None, document_digest: str | None = None
) -> Delivered:
    """Close a delivery by the outcomes of its rows, and return its answer; a closed one is only read.

    An error that refuses the whole delivery is its only result, unless rows were decided before.
    """
    if error is None and document_digest is None:
        delivered = read_delivered(intake, submission_id)
        if delivered.state is not SubmissionState.WAITING:
            return delivered
    with intake.ledger.transaction() as tx:
        decided = [row["outcome"] for row in recorded_rows(tx, submission_id)]
        if error is not None and not decided:
            outcome = RowOutcome.CONFLICT if isinstance(error, KeyConflict) else RowOutcome.REFUSED
            decided.append(outcome)
            record_row(
                tx,
                submission_id,
                RowRecord(
                    row_no=ONLY_ROW, outcome=outcome, idempotency_key="", job_id=error.facts.get("job_id"), error=error
                ),
            )
        finish_submission(tx, submission_id, state=_state_of(Counter(decided)), rows_total=len(decided), error=error)
        if document_digest is not None:
            note_digest(tx, submission_id, document_digest)
        release_holds(tx, holder=submission_id)
    return read_delivered(intake, submission_id)


def read_delivered(intake: IntakeContext, submission_id: str) -> Delivered:
    """Return the answer to a delivery from its recorded rows."""
    with intake.ledger.reading() as tx:
        submission = read_submission(tx, submission_id)
        rows = recorded_rows(tx, submission_id)
        answering = jobs_of_rows(tx, submission_id)
    return Delivered(
        submission_id=submission_id,
        label=submission["label"],
        document_digest=submission["document_digest"],
        state=SubmissionState(submission["state"]),
        lines=tuple(_row_result(intake, row, answering.get(row["job_id"])) for row in rows),
    )


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


def _row_result(intake: IntakeContext, row: dict[str, Any], job: JobRow | None) -> RowResult:
    outcome = RowOutcome(row["outcome"])
    acceptance = None
    if job is not None and outcome in (RowOutcome.ACCEPTED, RowOutcome.JOINED):
        acceptance = acceptance_of(intake, job, replayed=outcome is RowOutcome.JOINED)
    return RowResult(
        row_no=row["row_no"],
        outcome=outcome,
        idempotency_key=row["idempotency_key"],
        job_id=row["job_id"],
        acceptance=acceptance,
        reason_code=row["reason_code"],
        pointer=row["pointer"],
        facts=row["facts"],
    )
