"""Accepts a batch row by row: each is accepted, joined, refused or in conflict by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.errors import InputRefused, KeyConflict
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.intake.accept import accept
from receipt_pipeline.intake.copying import CopyProgress, PassEnded, ScanSource
from receipt_pipeline.intake.manifest import Batch, BatchRow
from receipt_pipeline.intake.services import Intake
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.submissions import RowOutcome, decided_row_numbers, record_row

# From a refusal to the one that stands, or None when a later pass should look again.
Judge = Callable[[InputRefused], InputRefused | None]


def let_stand(refusal: InputRefused) -> InputRefused:
    """Let every refusal stand: this door does not come again."""
    return refusal


@dataclass(frozen=True, slots=True)
class BatchDelivery:
    """One delivery of a batch through one door."""

    principal: Principal
    scans: ScanSource
    door: str
    submission_id: str
    time_is_up: Callable[[], bool]
    judge: Judge


def accept_rows(intake: Intake, batch: Batch, delivery: BatchDelivery) -> int:
    """Decide every row that no earlier pass decided; returns how many rows wait for their scans.

    Each row has its own transaction, in which its outcome is recorded with its job. Equal rows
    join; a key that comes again with another request conflicts, and both row numbers are told.

    Raises:
        PassEnded: the time bound was reached; the rows decided so far stay decided.
        ObjectFault, LedgerUnavailable: likewise, and the next pass goes on from there.
    """
    with intake.ledger.reading() as tx:
        decided = decided_row_numbers(tx, delivery.submission_id)
    first_row: dict[str, int] = {}
    waiting, looked_at = 0, 0
    for row in batch.rows:
        first = first_row.setdefault(row.idempotency_key, row.row_no)
        if row.row_no in decided:
            continue
        # However short a pass is, it looks at one row.
        if looked_at and delivery.time_is_up():
            raise PassEnded
        looked_at += 1
        waiting += not _decide(intake, row, delivery, first_row=first)
    return waiting


def _decide(intake: Intake, row: BatchRow, delivery: BatchDelivery, *, first_row: int) -> bool:
    """Decide one row; False when it waits."""
    try:
        _accept_row(intake, row, delivery)
    except KeyConflict as conflict:
        earlier = {} if first_row == row.row_no else {"conflicts_with_row": first_row}
        facts = {"row": row.row_no} | earlier | dict(conflict.facts)
        told = KeyConflict(conflict.reason, pointer=conflict.pointer, **facts)
        _record_refusal(intake, row, delivery, RowOutcome.CONFLICT, told)
    except InputRefused as refusal:
        judged = refusal if refusal is row.refusal else delivery.judge(refusal)
        if judged is None:
            return False
        facts = {"row": row.row_no} | dict(judged.facts)
        told_refusal = InputRefused(judged.reason, pointer=judged.pointer, **facts)
        _record_refusal(intake, row, delivery, RowOutcome.REFUSED, told_refusal)
    return True


def _accept_row(intake: Intake, row: BatchRow, delivery: BatchDelivery) -> None:
    if row.request is None:
        assert row.refusal is not None
        raise row.refusal
    key = row.request.idempotency_key

    def record(tx: LedgerTransaction, job: dict[str, Any], replayed: bool) -> None:
        outcome = RowOutcome.JOINED if replayed else RowOutcome.ACCEPTED
        record_row(
            tx,
            delivery.submission_id,
            row_no=row.row_no,
            outcome=outcome,
            idempotency_key=key,
            job_id=job["job_id"],
        )

    accept(
        intake,
        row.request,
        principal=delivery.principal,
        folder=delivery.scans,
        door=delivery.door,
        pointer_of=lambda _: f"/rows/{row.row_no - 1}/uri",
        progress=CopyProgress(submission_id=delivery.submission_id),
        in_transaction=record,
    )


def _record_refusal(
    intake: Intake,
    row: BatchRow,
    delivery: BatchDelivery,
    outcome: RowOutcome,
    error: InputRefused | KeyConflict,
) -> None:
    with intake.ledger.transaction() as tx:
        record_row(
            tx,
            delivery.submission_id,
            row_no=row.row_no,
            outcome=outcome,
            idempotency_key=row.idempotency_key,
            job_id=error.facts.get("job_id"),
            error=error,
        )
