"""Import the job history of a legacy system."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import InputRefused, KeyConflict, PipelineError
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.legacy_jobs import LegacyJob, class_of
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import (
    FIELD_INVALID,
    FIELD_MISSING,
    IMPORT_STATE_UNKNOWN,
    IMPORT_UNREADABLE,
)
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.manifest import ROWS_MAX, Fields
from receipt_pipeline.intake.strict_json import DOCUMENT_SIZE_BYTES_MAX
from receipt_pipeline.intake.tables import RawRow, TableShape, read_csv, read_parquet
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.legacy_jobs import ImportOutcome, record_legacy_job
from receipt_pipeline.ledger.submissions import (
    RowOutcome,
    SubmissionState,
    finish_submission,
    open_submission,
    record_row,
)

DOOR = "import"
ROWS_AT_ONCE = 200
ITEMS_MAX = 2**31 - 1
SHAPE = TableShape(
    known=frozenset(
        {"external_id", "state", "submitted_at", "ended_at", "items", "caller", "idempotency_key", "decision"}
    ),
    required=(("external_id",), ("state",), ("submitted_at",)),
    numbers=frozenset({"items"}),
)
# Each row of a file counts under one of these, so that they add up to its rows.
OUTCOMES = (*(taken.value for taken in ImportOutcome), RowOutcome.CONFLICT.value, RowOutcome.REFUSED.value)
_ROW_OUTCOME = {
    ImportOutcome.IMPORTED: RowOutcome.ACCEPTED,
    ImportOutcome.KNOWN: RowOutcome.JOINED,
    ImportOutcome.ENDED: RowOutcome.JOINED,
}


@dataclass(frozen=True, slots=True)
class RowRefusal:
    """One row that was not taken over, in the words of the rejection list; never its contents."""

    row: int
    external_id: str
    outcome: str
    code: str
    pointer: str
    meaning: str
    next_step: str
    facts: str


@dataclass(frozen=True, slots=True)
class ImportAnswer:
    """What became of every row of one file: imported + known + ended + conflict + refused = rows."""

    submission_id: str
    origin: str
    rows: int
    counts: Mapping[str, int]
    classes: Mapping[str, int]
    rejected: tuple[RowRefusal, ...]

    def as_document(self) -> dict[str, Any]:
        """Return the answer as a JSON document; `classes` counts the imported and ended rows."""
        listed = [{name: getattr(line, name) for name in RowRefusal.__slots__} for line in self.rejected]
        return {
            "submission_id": self.submission_id,
            "origin": self.origin,
            "rows": self.rows,
            **self.counts,
            "classes": dict(self.classes),
            "rejected": listed,
        }


@dataclass(frozen=True, slots=True)
class LegacySystem:
    """Where the rows come from, and what its own words mean beside those that everybody uses."""

    origin: str
    meanings: Mapping[str, TerminalClass | None]


def import_legacy_jobs(
    intake: IntakeContext, path: Path, older: LegacySystem, *, principal: Principal
) -> ImportAnswer:
    """Take over every row of a CSV or Parquet file; a file that comes again changes nothing.

    Rows are decided some hundreds to a transaction, each with its line among the submission's rows, so
    that an import that was ended half-way is completed by running it again.

    Raises:
        InputRefused: the file as a whole: IMPORT.UNREADABLE.v1, MANIFEST.* or FIELD.* of its header.
    """
    data = _read(path)
    read = read_parquet if path.suffix.lower() == ".parquet" else read_csv
    # A file that is no table, however late that shows, is refused before anything is recorded.
    rows = list(read(data, ROWS_MAX, SHAPE))
    with intake.ledger.transaction() as tx:
        submission_id = open_submission(
            tx,
            tenant=principal.tenant,
            caller=principal.caller,
            door=DOOR,
            label=path.name,
            document_digest=digest_of_bytes(data),
            facts={"origin": older.origin},
        )
        now = tx.now()
    tally = _Tally()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        batch = enumerate(rows[start : start + ROWS_AT_ONCE], start + 1)
        judged = [(row_no, _judge(row, older, now=now)) for row_no, row in batch]
        _take(intake, judged, older, principal=principal, submission_id=submission_id, tally=tally)
    return _settle(intake, submission_id, older, tally)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > DOCUMENT_SIZE_BYTES_MAX:
            raise InputRefused(IMPORT_UNREADABLE, pointer=path.name, size_bytes_max=DOCUMENT_SIZE_BYTES_MAX)
        return path.read_bytes()
    except OSError as error:
        raise InputRefused(IMPORT_UNREADABLE, pointer=path.name, cause=type(error).__name__) from error


@dataclass(frozen=True, slots=True)
class _Judged:
    """One row as it was understood, or why it was not."""

    external_id: str
    job: LegacyJob | None = None
    refusal: InputRefused | None = None


def _judge(row: RawRow, older: LegacySystem, *, now: dt.datetime) -> _Judged:
    told = row.value.get("external_id") if isinstance(row.value, dict) else None
    external_id = told[:200] if isinstance(told, str) and told.isprintable() else ""
    try:
        if row.refusal is not None:
            raise row.refusal
        return _Judged(external_id, job=_understood(Fields(row.value, row.pointer), older, now=now))
    except InputRefused as refusal:
        return _Judged(external_id, refusal=refusal)


def _understood(fields: Fields, older: LegacySystem, *, now: dt.datetime) -> LegacyJob:
    """Return the job of one row. Raises InputRefused with a pointer to the field."""
    word = fields.required_text("state", length_max=60)
    try:
        terminal_class = class_of(word, older.meanings)
    except KeyError:
        raise InputRefused(IMPORT_STATE_UNKNOWN, pointer=fields.at("state")) from None
    submitted_at, ended_at = fields.moment("submitted_at"), fields.moment("ended_at")
    if submitted_at is None or (ended_at is None and terminal_class is not None):
        raise InputRefused(FIELD_MISSING, pointer=fields.at("ended_at" if submitted_at else "submitted_at"))
    if ended_at is not None and terminal_class is None:
        raise InputRefused(FIELD_INVALID, pointer=fields.at("ended_at"), expected="no end of an open job")
    if submitted_at > now or (ended_at is not None and not submitted_at <= ended_at <= now):
        expected = "submitted_at <= ended_at <= now"
        raise InputRefused(FIELD_INVALID, pointer=fields.at("submitted_at"), expected=expected)
    decision = None
    if fields.has("decision"):
        decision = fields.choice("decision", Decision, Decision.REVIEW)
    job = LegacyJob(
        external_id=fields.required_text("external_id"),
        word=word,
        terminal_class=terminal_class,
        submitted_at=submitted_at,
        ended_at=ended_at,
        items_requested=fields.whole_number("items", low=1, high=ITEMS_MAX) or 1,
        caller=fields.text("caller") or "",
        idempotency_key=fields.text("idempotency_key"),
        decision=decision,
    )
    fields.finish()
    return job


class _Tally:
    """Counts rows by what became of them, and keeps the lines of the rejection list."""

    def __init__(self) -> None:
        self.rows = 0
        self.counts: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.rejected: list[RowRefusal] = []


def _take(
    intake: IntakeContext,
    judged: Sequence[tuple[int, _Judged]],
    older: LegacySystem,
    *,
    principal: Principal,
    submission_id: str,
    tally: _Tally,
) -> None:
    """Decide some rows in one transaction; they are counted once it is committed."""
    decided: list[tuple[int, _Judged, ImportOutcome | PipelineError]] = []
    with intake.ledger.transaction() as tx:
        tx.serialise(f"import:{principal.tenant}:{older.origin}")
        for row_no, row in judged:
            job_id, outcome = _decide(
                tx, row, tenant=principal.tenant, older=older, actor=principal.caller, limits=intake.limits
            )
            record_row(
                tx,
                submission_id,
                row_no=row_no,
                outcome=_ROW_OUTCOME[outcome] if isinstance(outcome, ImportOutcome) else _refused_as(outcome),
                idempotency_key=row.external_id,
                job_id=job_id,
                error=None if isinstance(outcome, ImportOutcome) else outcome,
            )
            decided.append((row_no, row, outcome))
    for row_no, row, outcome in decided:
        _count(tally, row_no, row, outcome)


def _decide(
    tx: LedgerTransaction,
    row: _Judged,
    *,
    tenant: str,
    older: LegacySystem,
    actor: str,
    limits: Limits,
) -> tuple[str | None, ImportOutcome | PipelineError]:
    """Return the id of the record that the row is about, and what became of the row."""
    if row.job is None:
        assert row.refusal is not None
        return None, row.refusal
    try:
        return record_legacy_job(tx, row.job, tenant=tenant, origin=older.origin, actor=actor, limits=limits)
    except KeyConflict as conflict:
        return str(conflict.facts["job_id"]), conflict


def _refused_as(error: PipelineError) -> RowOutcome:
    return RowOutcome.CONFLICT if isinstance(error, KeyConflict) else RowOutcome.REFUSED


def _count(tally: _Tally, row_no: int, row: _Judged, outcome: ImportOutcome | PipelineError) -> None:
    tally.rows += 1
    if isinstance(outcome, ImportOutcome):
        tally.counts[outcome.value] += 1
        if outcome is not ImportOutcome.KNOWN and row.job is not None:
            tally.classes[row.job.terminal_class.value if row.job.terminal_class else "investigation"] += 1
        return
    refused_as = _refused_as(outcome).value
    tally.counts[refused_as] += 1
    reason = outcome.reason
    facts = "; ".join(f"{name}={value}" for name, value in sorted(outcome.facts.items()))
    tally.rejected.append(
        RowRefusal(
            row=row_no,
            external_id=row.external_id,
            outcome=refused_as,
            code=reason.code,
            pointer=outcome.pointer,
            meaning=reason.meaning,
            next_step=reason.next_step,
            facts=facts,
        )
    )


def _settle(intake: IntakeContext, submission_id: str, older: LegacySystem, tally: _Tally) -> ImportAnswer:
    counts = {name: tally.counts[name] for name in OUTCOMES}
    assert sum(counts.values()) == tally.rows, "every row counts once"
    state = SubmissionState.ACCEPTED if counts["imported"] else SubmissionState.JOINED
    if tally.rejected and len(tally.rejected) == tally.rows:
        state = SubmissionState.REFUSED if counts["refused"] else SubmissionState.CONFLICT
    with intake.ledger.transaction() as tx:
        finish_submission(tx, submission_id, state=state, rows_total=tally.rows)
    return ImportAnswer(
        submission_id=submission_id,
        origin=older.origin,
        rows=tally.rows,
        counts=counts,
        classes=dict(sorted(tally.classes.items())),
        rejected=tuple(tally.rejected),
    )
