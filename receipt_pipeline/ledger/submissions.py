"""Deliveries: what arrived, which scans are stored, and the outcome of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import func, insert, select, update

from receipt_pipeline.core.errors import NotFound, PipelineError
from receipt_pipeline.core.reasons import NOT_FOUND
from receipt_pipeline.core.status_document import discovered_progress
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.jobs import jobs, submission_rows, submissions

KEYS_BATCH_MAX = 500


class SubmissionState(StrEnum):
    """The state of one delivery."""

    WAITING = "waiting"
    ACCEPTED = "accepted"
    JOINED = "joined"
    CONFLICT = "conflict"
    REFUSED = "refused"
    IGNORED = "ignored"


class RowOutcome(StrEnum):
    """The outcome of one row of a delivery."""

    ACCEPTED = "accepted"
    JOINED = "joined"
    REFUSED = "refused"
    CONFLICT = "conflict"


COUNTED = {
    RowOutcome.ACCEPTED: "accepted",
    RowOutcome.JOINED: "joined",
    RowOutcome.REFUSED: "refused",
    RowOutcome.CONFLICT: "conflicts",
}


@dataclass(frozen=True, slots=True)
class NewSubmission:
    """A delivery as it arrives.

    Attributes:
        door: the entry point, as stored.
        label: its name for people, cut to 200 characters.
        place: its path below the inbox, "" for other entry points.
    """

    tenant: str
    caller: str
    door: str
    label: str
    document_digest: str
    place: str = ""
    facts: Mapping[str, Any] | None = None


def open_submission(
    tx: LedgerTransaction, new: NewSubmission, *, state: SubmissionState = SubmissionState.WAITING
) -> str:
    """Record a delivery that arrived and usually is not finished yet; returns its id."""
    submission_id, now = new_id(tx, "sub"), tx.now()
    tx.execute(
        insert(submissions).values(
            submission_id=submission_id,
            tenant=new.tenant,
            caller=new.caller,
            door=new.door,
            label=new.label[:200],
            place=new.place,
            document_digest=new.document_digest,
            state=state,
            facts=dict(new.facts or {}),
            stored={},
            received_at=now,
            updated_at=now,
        )
    )
    if state != SubmissionState.WAITING:
        _append_finished(tx, submission_id, tenant=new.tenant, state=state)
    return submission_id


def _append_finished(tx: LedgerTransaction, submission_id: str, *, tenant: str, state: SubmissionState) -> None:
    append_event(tx, EventKind.SUBMISSION_SETTLED, tenant=tenant, submission_id=submission_id, state=state.value)


def read_submission(tx: LedgerTransaction, submission_id: str) -> dict[str, Any]:
    """Return one delivery's row, which exists."""
    row = tx.row(select(submissions).where(submissions.c.submission_id == submission_id))
    assert row is not None, submission_id
    return row


def submission_status(tx: LedgerTransaction, submission_id: str, *, tenant: str) -> dict[str, Any]:
    """Return the status of a delivery; until all rows are read, their number is unknown.

    Raises:
        NotFound: unknown, or of another tenant; the answer is the same.
    """
    row = tx.row(
        select(submissions).where(submissions.c.submission_id == submission_id).where(submissions.c.tenant == tenant)
    )
    if row is None:
        raise NotFound(NOT_FOUND, submission_id=submission_id)
    outcomes = tx.rows(
        select(submission_rows.c.outcome, func.count().label("n"))
        .where(submission_rows.c.submission_id == submission_id)
        .group_by(submission_rows.c.outcome)
    )
    found = {entry["outcome"]: entry["n"] for entry in outcomes}
    settled = row["state"] != SubmissionState.WAITING
    return {
        "submission_id": submission_id,
        "state": row["state"],
        "received_at": row["received_at"].isoformat(),
        "progress": discovered_progress(
            decided=sum(found.values()),
            phase=row["state"],
            total=row["rows_total"] if settled else None,
            read_at=tx.now(),
        ),
        "rows": {name: found.get(outcome, 0) for outcome, name in COUNTED.items()},
    }


def submissions_in_place(tx: LedgerTransaction) -> dict[str, dict[str, Any]]:
    """Return the newest delivery per place of the inbox, without its stored digests."""
    wanted = [column for column in submissions.c if column.name != "stored"]
    query = (
        select(*wanted)
        .where(submissions.c.state.in_(list(SubmissionState)))
        .where(submissions.c.place > "")
        .order_by(submissions.c.received_at, submissions.c.submission_id)
    )
    return {row["place"]: row for row in tx.rows(query)}


def keep_facts(tx: LedgerTransaction, submission_id: str, facts: Mapping[str, Any]) -> None:
    """Replace the facts of a delivery that still waits."""
    tx.execute(
        update(submissions)
        .where(submissions.c.submission_id == submission_id)
        .where(submissions.c.state == SubmissionState.WAITING)
        .values(facts=dict(facts), updated_at=tx.now())
    )


def restart_submission(
    tx: LedgerTransaction, submission_id: str, *, document_digest: str, facts: Mapping[str, Any]
) -> None:
    """Restart a waiting delivery whose file was still being written."""
    now = tx.now()
    tx.execute(
        update(submissions)
        .where(submissions.c.submission_id == submission_id)
        .where(submissions.c.state == SubmissionState.WAITING)
        .values(document_digest=document_digest, facts=dict(facts), stored={}, received_at=now, updated_at=now)
    )


def remember_stored(tx: LedgerTransaction, submission_id: str, stored: Mapping[str, tuple[int, str]]) -> None:
    """Remember which scans of a delivery are stored: hex digest to (size in bytes, media type)."""
    tx.execute(
        update(submissions)
        .where(submissions.c.submission_id == submission_id)
        .values(stored={digest: list(known) for digest, known in stored.items()}, updated_at=tx.now())
    )


def stored_scans(tx: LedgerTransaction, submission_id: str) -> dict[str, tuple[int, str]]:
    """Return what `remember_stored` wrote last."""
    stored = tx.scalar(select(submissions.c.stored).where(submissions.c.submission_id == submission_id))
    return {digest: (int(known[0]), str(known[1])) for digest, known in dict(stored or {}).items()}


@dataclass(frozen=True, slots=True)
class RowRecord:
    """The outcome of one row: the job that answers it, or the error that refuses it."""

    row_no: int
    outcome: RowOutcome
    idempotency_key: str
    job_id: str | None = None
    error: PipelineError | None = None


def record_row(tx: LedgerTransaction, submission_id: str, row: RowRecord) -> None:
    """Record the outcome of one row, in the transaction that decides it."""
    error = row.error
    tx.execute(
        insert(submission_rows).values(
            submission_id=submission_id,
            row_no=row.row_no,
            outcome=row.outcome,
            idempotency_key=row.idempotency_key,
            job_id=row.job_id,
            reason_code=error.reason.code if error else "",
            pointer=error.pointer if error else "",
            facts=dict(error.facts) if error else {},
        )
    )


def recorded_rows(tx: LedgerTransaction, submission_id: str) -> list[dict[str, Any]]:
    """Return the rows of a delivery that are decided, by number."""
    query = select(submission_rows).where(submission_rows.c.submission_id == submission_id)
    return tx.rows(query.order_by(submission_rows.c.row_no))


def jobs_of_rows(tx: LedgerTransaction, submission_id: str) -> dict[str, JobRow]:
    """Return the jobs that the decided rows of a delivery name, by job id."""
    named = select(submission_rows.c.job_id).where(submission_rows.c.submission_id == submission_id)
    rows = tx.rows(select(jobs).where(jobs.c.job_id.in_(named)))
    return {row["job_id"]: JobRow.from_row(row) for row in rows}


def decided_row_numbers(tx: LedgerTransaction, submission_id: str) -> set[int]:
    """Return the numbers of the rows that an earlier pass decided."""
    query = select(submission_rows.c.row_no).where(submission_rows.c.submission_id == submission_id)
    return {row["row_no"] for row in tx.rows(query)}


def finish_submission(
    tx: LedgerTransaction,
    submission_id: str,
    *,
    state: SubmissionState,
    rows_total: int,
    error: PipelineError | None = None,
) -> None:
    """Close a delivery with the counts of its rows; a settled one stays as it is.

    The facts of an error are added to those that the door noted.
    """
    query = (
        select(submission_rows.c.outcome, func.count().label("rows"))
        .where(submission_rows.c.submission_id == submission_id)
        .group_by(submission_rows.c.outcome)
    )
    counts = {COUNTED[RowOutcome(row["outcome"])]: row["rows"] for row in tx.rows(query)}
    values: dict[str, Any] = {"state": state, "rows_total": rows_total, "updated_at": tx.now()} | counts
    known = read_submission(tx, submission_id)
    if error is not None:
        facts = dict(known["facts"] or {}) | dict(error.facts)
        values |= {"reason_code": error.reason.code, "pointer": error.pointer, "facts": facts}
    settled = tx.execute(
        update(submissions)
        .where(submissions.c.submission_id == submission_id)
        .where(submissions.c.state == SubmissionState.WAITING)
        .values(**values)
    )
    if settled.rowcount == 1:
        _append_finished(tx, submission_id, tenant=known["tenant"], state=state)


def note_digest(tx: LedgerTransaction, submission_id: str, document_digest: str) -> None:
    """Note the digest of a delivery whose bytes were read only when it was taken in."""
    tx.execute(
        update(submissions).where(submissions.c.submission_id == submission_id).values(document_digest=document_digest)
    )


def leave_place(tx: LedgerTransaction, submission_ids: Iterable[str]) -> None:
    """Forget where deliveries lay: their files were moved along or are gone."""
    listed = sorted(submission_ids)
    for start in range(0, len(listed), KEYS_BATCH_MAX):
        tx.execute(
            update(submissions)
            .where(submissions.c.submission_id.in_(listed[start : start + KEYS_BATCH_MAX]))
            .values(place="")
        )
