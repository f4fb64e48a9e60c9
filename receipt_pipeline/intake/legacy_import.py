"""Import the job history of a legacy system."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import InputRefused, KeyConflict, PipelineError, fact_text
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import FIELD_INVALID, FIELD_MISSING, IMPORT_STATE_UNKNOWN, IMPORT_UNREADABLE
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.manifest import (
    REFUSED_SUFFIXES,
    ROWS_MAX,
    Moment,
    OptionalMoment,
    OptionalText,
    PlainText,
    StrictModel,
    Text,
    one_of,
    text_rule,
    validated,
    whole_rule,
)
from receipt_pipeline.intake.strict_json import DOCUMENT_SIZE_BYTES_MAX
from receipt_pipeline.intake.tables import RawRow, TableShape, read_csv, read_json_lines
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.legacy_jobs import ImportOutcome, LegacyJob, record_legacy_job
from receipt_pipeline.ledger.submissions import (
    NewSubmission,
    RowOutcome,
    RowRecord,
    SubmissionState,
    finish_submission,
    open_submission,
    record_row,
)

ENTRY_POINT = "import"
ROWS_AT_ONCE = 200
ITEMS_MAX = 2**31 - 1
STATE_LENGTH_MAX = 60
OPEN_STATE = "open"


class _Row(StrictModel):
    state: Annotated[str, text_rule(STATE_LENGTH_MAX)]
    submitted_at: Moment
    ended_at: OptionalMoment = None
    decision: Annotated[Decision | None, one_of(Decision), PlainText] = None
    external_id: Text
    items: Annotated[int, whole_rule(1, ITEMS_MAX)] = 1
    caller: Text = ""
    idempotency_key: OptionalText = None


SHAPE = TableShape(
    known=frozenset(_Row.model_fields),
    required=(("external_id",), ("state",), ("submitted_at",)),
    numbers=frozenset({"items"}),
)
# Each row of a file counts under one of these, so that they add up to its rows.
OUTCOMES = (*(outcome.value for outcome in ImportOutcome), RowOutcome.CONFLICT.value, RowOutcome.REFUSED.value)
_ROW_OUTCOME = {
    ImportOutcome.IMPORTED: RowOutcome.ACCEPTED,
    ImportOutcome.KNOWN: RowOutcome.JOINED,
    ImportOutcome.ENDED: RowOutcome.JOINED,
}


@dataclass(frozen=True, slots=True)
class RowRefusal:
    """One row that was not imported, as a line of the rejection list; never its contents."""

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
    """The outcome of one file: imported + known + ended + conflict + refused = rows."""

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
    """Where rows come from, and the class of each of its states in lower case; None for an open job."""

    origin: str
    states: Mapping[str, TerminalClass | None]


def import_legacy_jobs(
    intake: IntakeContext, path: Path, system: LegacySystem, *, principal: Principal
) -> ImportAnswer:
    """Import every row of a CSV or JSON lines file; importing the same file again changes nothing.

    Each transaction decides some hundreds of rows, so an interrupted import is completed by running it again.

    Raises:
        InputRefused: the file as a whole: IMPORT.UNREADABLE.v1, MANIFEST.* or FIELD.* of its header.
    """
    data = _read(path)
    # The whole file is read first: a file that is not a table is refused before anything is recorded.
    rows = list(_rows(path, data))
    with intake.ledger.transaction() as tx:
        submission_id = open_submission(
            tx,
            NewSubmission(
                tenant=principal.tenant,
                caller=principal.caller,
                door=ENTRY_POINT,
                label=path.name,
                document_digest=digest_of_bytes(data),
                facts={"origin": system.origin},
            ),
        )
        now = tx.now()
    tally = _Tally()
    for start in range(0, len(rows), ROWS_AT_ONCE):
        batch = enumerate(rows[start : start + ROWS_AT_ONCE], start + 1)
        read = [(row_no, _read_row(row, system, now=now)) for row_no, row in batch]
        _record(intake, read, system, principal=principal, submission_id=submission_id, tally=tally)
    return _finish(intake, submission_id, system, tally)


def _rows(path: Path, data: bytes) -> Iterator[RawRow]:
    if path.suffix.lower() in REFUSED_SUFFIXES:
        raise InputRefused(IMPORT_UNREADABLE, pointer=path.name, allowed=["CSV", "JSON lines"])
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return read_json_lines(data, ROWS_MAX)
    return read_csv(data, ROWS_MAX, SHAPE)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > DOCUMENT_SIZE_BYTES_MAX:
            raise InputRefused(IMPORT_UNREADABLE, pointer=path.name, size_bytes_max=DOCUMENT_SIZE_BYTES_MAX)
        return path.read_bytes()
    except OSError as error:
        raise InputRefused(IMPORT_UNREADABLE, pointer=path.name, cause=type(error).__name__) from error


@dataclass(frozen=True, slots=True)
class _ReadRow:
    """One row as a legacy job, or why it is refused."""

    external_id: str
    job: LegacyJob | None = None
    refusal: InputRefused | None = None


def _read_row(row: RawRow, system: LegacySystem, *, now: dt.datetime) -> _ReadRow:
    given = row.value.get("external_id") if isinstance(row.value, dict) else None
    external_id = given[:200] if isinstance(given, str) and given.isprintable() else ""
    try:
        if row.refusal is not None:
            raise row.refusal
        job = _legacy_job(validated(_Row, row.value, row.pointer), row.pointer, system, now=now)
        return _ReadRow(external_id, job=job)
    except InputRefused as refusal:
        return _ReadRow(external_id, refusal=refusal)


def _legacy_job(row: _Row, pointer: str, system: LegacySystem, *, now: dt.datetime) -> LegacyJob:
    """Return the job of one row. Raises InputRefused with a pointer to the field."""
    state = row.state.lower()
    if state not in system.states:
        raise InputRefused(IMPORT_STATE_UNKNOWN, pointer=f"{pointer}/state")
    terminal_class = system.states[state]
    submitted_at, ended_at = row.submitted_at, row.ended_at
    if ended_at is None and terminal_class is not None:
        raise InputRefused(FIELD_MISSING, pointer=f"{pointer}/ended_at")
    if ended_at is not None and terminal_class is None:
        raise InputRefused(FIELD_INVALID, pointer=f"{pointer}/ended_at", expected="no end of an open job")
    if submitted_at > now or (ended_at is not None and not submitted_at <= ended_at <= now):
        expected = "submitted_at <= ended_at <= now"
        raise InputRefused(FIELD_INVALID, pointer=f"{pointer}/submitted_at", expected=expected)
    return LegacyJob(
        external_id=row.external_id,
        state_name=row.state,
        terminal_class=terminal_class,
        submitted_at=submitted_at,
        ended_at=ended_at,
        items_requested=row.items,
        caller=row.caller,
        idempotency_key=row.idempotency_key,
        decision=row.decision,
    )


class _Tally:
    """Rows by outcome, and the lines of the rejection list."""

    def __init__(self) -> None:
        self.rows = 0
        self.counts: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.rejected: list[RowRefusal] = []


def _record(
    intake: IntakeContext,
    read: Sequence[tuple[int, _ReadRow]],
    system: LegacySystem,
    *,
    principal: Principal,
    submission_id: str,
    tally: _Tally,
) -> None:
    """Record some rows in one transaction; they are counted once it is committed."""
    decided: list[tuple[int, _ReadRow, ImportOutcome | PipelineError]] = []
    with intake.ledger.transaction() as tx:
        tx.serialise(f"import:{principal.tenant}:{system.origin}")
        for row_no, row in read:
            job_id, outcome = _decide(
                tx, row, tenant=principal.tenant, system=system, actor=principal.caller, limits=intake.limits
            )
            record_row(
                tx,
                submission_id,
                RowRecord(
                    row_no=row_no,
                    outcome=_ROW_OUTCOME[outcome] if isinstance(outcome, ImportOutcome) else _refused_as(outcome),
                    idempotency_key=row.external_id,
                    job_id=job_id,
                    error=None if isinstance(outcome, ImportOutcome) else outcome,
                ),
            )
            decided.append((row_no, row, outcome))
    for row_no, row, outcome in decided:
        _count(tally, row_no, row, outcome)


def _decide(
    tx: LedgerTransaction, row: _ReadRow, *, tenant: str, system: LegacySystem, actor: str, limits: Limits
) -> tuple[str | None, ImportOutcome | PipelineError]:
    """Return the id of the record that the row is about, and the outcome of the row."""
    if row.job is None:
        assert row.refusal is not None
        return None, row.refusal
    try:
        return record_legacy_job(tx, row.job, tenant=tenant, origin=system.origin, actor=actor, limits=limits)
    except KeyConflict as conflict:
        return str(conflict.facts["job_id"]), conflict


def _refused_as(error: PipelineError) -> RowOutcome:
    return RowOutcome.CONFLICT if isinstance(error, KeyConflict) else RowOutcome.REFUSED


def _count(tally: _Tally, row_no: int, row: _ReadRow, outcome: ImportOutcome | PipelineError) -> None:
    tally.rows += 1
    if isinstance(outcome, ImportOutcome):
        tally.counts[outcome.value] += 1
        if outcome is not ImportOutcome.KNOWN and row.job is not None:
            tally.classes[row.job.terminal_class.value if row.job.terminal_class else "investigation"] += 1
        return
    refused_as = _refused_as(outcome).value
    tally.counts[refused_as] += 1
    reason = outcome.reason
    facts = "; ".join(f"{name}: {fact_text(value)}" for name, value in sorted(outcome.facts.items()))
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


def _finish(intake: IntakeContext, submission_id: str, system: LegacySystem, tally: _Tally) -> ImportAnswer:
    counts = {name: tally.counts[name] for name in OUTCOMES}
    assert sum(counts.values()) == tally.rows, "every row counts once"
    state = SubmissionState.ACCEPTED if counts["imported"] else SubmissionState.JOINED
    if tally.rejected and len(tally.rejected) == tally.rows:
        state = SubmissionState.REFUSED if counts["refused"] else SubmissionState.CONFLICT
    with intake.ledger.transaction() as tx:
        finish_submission(tx, submission_id, state=state, rows_total=tally.rows)
    return ImportAnswer(
        submission_id=submission_id,
        origin=system.origin,
        rows=tally.rows,
        counts=counts,
        classes=dict(sorted(tally.classes.items())),
        rejected=tuple(tally.rejected),
    )
