"""Changes since a mark, and the reader that copies of the ledger implement."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, func, literal, or_, select
from sqlalchemy.dialects import postgresql

from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.schema.admin import alert_deliveries, alerts
from receipt_pipeline.ledger.schema.effects import object_checks
from receipt_pipeline.ledger.schema.jobs import aliases, events, releases, submissions
from receipt_pipeline.ledger.submissions import SubmissionState

# Short histories of the house itself, which are read whole each time.
ALWAYS_WHOLE = frozenset({releases.name, aliases.name, alerts.name, alert_deliveries.name})

_SNAPSHOT = sa.text(
    "SELECT pg_current_snapshot()::text AS seen,"
    " system_identifier || '/' || d.oid || '/' || (SELECT xmin FROM alembic_version) AS place"
    " FROM pg_control_system(), pg_database AS d WHERE d.datname = current_database()"
)
_SAME_COURSE = sa.text("SELECT pg_snapshot_xmax(CAST(:seen AS pg_snapshot)) <= pg_snapshot_xmax(pg_current_snapshot())")
# The first half lets an index answer: what is older than every writer open at the time was seen.
_NOT_SEEN = (
    "(events.written_in >= CAST(CAST(pg_snapshot_xmin(CAST(:seen AS pg_snapshot)) AS text) AS bigint)"
    " AND NOT pg_visible_in_snapshot("
    "CAST(CAST(events.written_in AS text) AS xid8), CAST(:seen AS pg_snapshot)))"
)


class LedgerReader(Protocol):
    """What a query over the ledger needs; transactions and copies of the ledger implement it."""

    def now(self) -> dt.datetime:
        """Return the time of the ledger's clock, or when the copy was made."""

    def rows(self, statement: sa.Executable, parameters: Any = None) -> list[dict[str, Any]]:
        """Run a query and return its rows as dictionaries."""


@dataclass(frozen=True, slots=True)
class LedgerMark:
    """What of a ledger a reader has seen.

    Attributes:
        seq: its newest event; 0 for a ledger without any.
        event: that event's time in microseconds, kind and job, by which its history is known again.
        place: the database and its schema: an earlier version, to which a schema was taken back for a
            while, has changed rows without a word.
        seen: the snapshot, where events are not committed in the order of their numbers; else empty.
    """

    seq: int
    event: str
    place: str
    seen: str = ""

    def as_document(self) -> dict[str, Any]:
        """Return the mark as it is kept in a file."""
        return asdict(self)


def mark_from(document: Mapping[str, Any]) -> LedgerMark:
    """Return the mark that `as_document` made. Raises KeyError or TypeError when it is none."""
    return LedgerMark(int(document["seq"]), str(document["event"]), str(document["place"]), str(document["seen"]))


def read_mark(tx: LedgerTransaction) -> LedgerMark:
    """Return the mark of what this transaction's snapshot shows."""
    newest = int(tx.scalar(select(func.max(events.c.seq))) or 0)
    place, seen = _place(tx)
    return LedgerMark(newest, _event_text(tx, newest), place=place, seen=seen)


def _place(tx: LedgerTransaction) -> tuple[str, str]:
    """Return what names this database and its schema, and the snapshot where that is needed."""
    if tx.commits_in_order:
        return str(tx.scalar(sa.text("PRAGMA schema_version"))), ""
    row = tx.row(_SNAPSHOT)
    assert row is not None
    return str(row["place"]), str(row["seen"])


def _event_text(tx: LedgerTransaction, seq: int) -> str:
    at = sa.type_coerce(events.c.at, sa.BigInteger).label("at")
    row = tx.row(select(at, events.c.kind, events.c.job_id).where(events.c.seq == seq))
    return "" if row is None else f"{row['at']} {row['kind']} {row['job_id'] or ''}"


def is_mark_of(tx: LedgerTransaction, mark: LedgerMark) -> bool:
    """Return whether this ledger went on from where the mark was taken.

    A ledger that was replaced, or restored from a copy, has another history: then nothing is known.
    """
    if mark.seq == 0 or _event_text(tx, mark.seq) != mark.event:
        return False
    place, seen = _place(tx)
    if place != mark.place or bool(seen) != bool(mark.seen):
        return False
    return not seen or bool(tx.scalar(_SAME_COURSE, {"seen": mark.seen}))


def unseen(mark: LedgerMark) -> ColumnElement[bool]:
    """Return the condition that an event was not to be seen when the mark was taken.

    Where a lower number may be committed after a higher one, the writer's transaction tells, not the
    number: a writer that was open then is found however late it commits.
    """
    if not mark.seen:
        return events.c.seq > mark.seq
    return and_(events.c.written_in.is_not(None), sa.text(_NOT_SEEN).bindparams(seen=mark.seen))


def changed_rows(table: sa.Table, mark: LedgerMark) -> ColumnElement[bool]:
    """Return the condition that a row of a table may have changed since the mark.

    A row of a job counts as changed with every event of its job, and a row of no job always.
    """
    if table is events:
        return unseen(mark)
    if table.name in ALWAYS_WHOLE:
        return sa.true()
    if table is submissions:
        return _changed_submissions(mark)
    if table is object_checks:
        return object_checks.c.latest_seq.in_(select(events.c.seq).where(unseen(mark)))
    of_changed = table.c.job_id.in_(changed_jobs(mark))
    return or_(of_changed, table.c.job_id.is_(None)) if table.c.job_id.nullable else of_changed


def changed_jobs(mark: LedgerMark) -> sa.Select[Any]:
    """Return the query for the job of each event since the mark, empty for an event of no job.

    Asked for distinct jobs or only for those that have one, SQLite would read the whole journal.
    """
    return select(events.c.job_id).where(unseen(mark))


def _changed_submissions(mark: LedgerMark) -> ColumnElement[bool]:
    """A delivery that waits may change at any time, and is settled with an event."""
    settled = (
        select(events.c.data["submission_id"].as_string())
        .where(unseen(mark))
        .where(events.c.kind == literal(EventKind.SUBMISSION_SETTLED.value))
    )
    return or_(submissions.c.state == SubmissionState.WAITING.value, submissions.c.submission_id.in_(settled))


# Named parameters keep percent signs from being doubled.
_DIALECT = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]


class CopiedLedger(LedgerTransaction):
    """A copy that is only read: the queries of the ledger, run as text that PostgreSQL would read.

    Args:
        ask: runs a query under the ledger's names and returns its rows.
        now: the moment at which the copy was made.
    """

    def __init__(self, ask: Callable[[str], Sequence[Sequence[Any]]], *, now: dt.datetime) -> None:
        self._ask = ask
        self._moment = now

    def now(self) -> dt.datetime:
        """Return the moment at which the copy was made."""
        return self._moment

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[Any]:
        """Refuse: a copy is asked for rows, and never changed."""
        raise AssertionError("a copy is only read")

    def rows(self, statement: sa.Executable, parameters: Any = None) -> list[dict[str, Any]]:
        """Run a query of the ledger and return its rows as dictionaries."""
        assert isinstance(statement, sa.Select | sa.CompoundSelect)
        given = statement.params(parameters or {})
        text = str(given.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True}))
        read = [
            (column.name, column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None))
            for column in statement.selected_columns
        ]
        return [
            {
                name: value if process is None else process(value)
                for (name, process), value in zip(read, row, strict=True)
            }
            for row in self._ask(text)
        ]

    def row(self, statement: sa.Executable, parameters: Any = None) -> dict[str, Any] | None:
        """Run a query and return its first row, or None."""
        return next(iter(self.rows(statement, parameters)), None)

    def scalar(self, statement: sa.Executable, parameters: Any = None) -> Any:
        """Run a query and return the first column of its first row."""
        found = self.row(statement, parameters)
        return None if found is None else next(iter(found.values()))
