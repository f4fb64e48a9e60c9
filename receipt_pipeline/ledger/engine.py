"""Opens the ledger: engine per database, bounded waits, transactions, and the deciding clock."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
import stamina
from sqlalchemy import event
from ulid import ULID

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.reasons import LEDGER_OUTCOME_UNKNOWN, LEDGER_UNAVAILABLE, STORAGE_FULL, Reason
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND

# Retries print nothing: standard output belongs to the command's document.
stamina.instrumentation.set_on_retry_hooks([])

BEGIN_TRIES_MAX = 6
BUSY_TIMEOUT_MS = 5_000
LOCK_WAIT_S = 30.0
IDLE_TRANSACTION_S = 60.0


class Clock(Protocol):
    """A source of aware UTC time; tests inject their own."""

    def now(self) -> dt.datetime:
        """Return the current aware UTC time."""


class HostClock:
    """The clock of this host, for SQLite, where ledger and worker share one machine."""

    def now(self) -> dt.datetime:
        """Return the host's aware UTC time."""
        return dt.datetime.now(dt.UTC)


# Every transaction asks for the time, so the question is kept as text.
_NEWEST_EVENT_AT = f"SELECT {events.c.at.name} FROM {events.name} ORDER BY {events.c.seq.name} DESC LIMIT 1"

# Makes a time-sortable number of a moment.
NumberSource = Callable[[dt.datetime], ULID]


class LedgerTransaction:
    """One transaction: statements in, rows out, and the only clock that decides."""

    def __init__(
        self, connection: sa.Connection, clock: Clock | None, numbers: NumberSource = ULID.from_datetime
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._numbers = numbers
        self._not_before: dt.datetime | None = None

    @property
    def skips_locked_rows(self) -> bool:
        """Return whether FOR UPDATE SKIP LOCKED has a meaning here."""
        return self._connection.dialect.name == "postgresql"

    @property
    def dialect(self) -> sa.Dialect:
        """Return the dialect in which queries are written here."""
        return self._connection.dialect

    @property
    def commits_in_order(self) -> bool:
        """Return whether an event with a lower number is never committed after one with a higher."""
        return self._connection.dialect.name != "postgresql"

    def serialise(self, name: str) -> None:
        """Let transactions that give this name go one after another, until each ends.

        SQLite's writers go one after another anyway.
        """
        if self._connection.dialect.name == "postgresql":
            lock = sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(name, 0))
            self._connection.execute(sa.select(lock))

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[Any]:
        """Run a statement and return its cursor result."""
        result = self._connection.execute(statement, parameters)
        assert isinstance(result, sa.CursorResult)
        return result

    def rows(self, statement: sa.Executable, parameters: Any = None) -> list[dict[str, Any]]:
        """Run a query and return its rows as dictionaries."""
        result = self._connection.execute(statement, parameters)
        names = tuple(result.keys())
        return [dict(zip(names, row, strict=True)) for row in result]

    def stream(self, query: sa.Select[Any], *, rows_max: int) -> Iterator[Sequence[sa.Row[Any]]]:
        """Yield the rows of a query in parts of at most `rows_max`, as the database gives them."""
        options = {"stream_results": True, "yield_per": rows_max}
        yield from self._connection.execute(query, execution_options=options).partitions()

    def row(self, statement: sa.Executable, parameters: Any = None) -> dict[str, Any] | None:
        """Run a query and return its first row, or None."""
        result = self._connection.execute(statement, parameters)
        names = tuple(result.keys())
        found = result.first()
        return None if found is None else dict(zip(names, found, strict=True))

    def scalar(self, statement: sa.Executable, parameters: Any = None) -> Any:
        """Run a query and return the first column of its first row."""
        return self._connection.execute(statement, parameters).scalar()

    def now(self) -> dt.datetime:
        """Return the deciding time: the database's clock, or the host's, never before the newest event."""
        if self._clock is None:
            micros = self._connection.execute(
                sa.text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)")
            ).scalar()
            return EPOCH + int(micros or 0) * MICROSECOND
        if self._not_before is None:
            # Nobody else appends while this transaction lasts, and its own events are dated by this clock.
            self._not_before = EPOCH + _newest_event_at(self._connection) * MICROSECOND
        self._not_before = max(self._clock.now(), self._not_before)
        return self._not_before

    def new_number(self) -> ULID:
        """Return a number that no other has, sortable by the ledger's time."""
        return self._numbers(self.now())


class Ledger:
    """The one ledger: every door and service is handed it, nobody else opens the database."""

    def __init__(
        self,
        engine: sa.Engine,
        *,
        clock: Clock | None,
        begin_tries_max: int = BEGIN_TRIES_MAX,
        numbers: NumberSource = ULID.from_datetime,
    ) -> None:
        self.engine = engine
        self._clock = clock
        self._numbers = numbers
        self._begin_tries_max = begin_tries_max

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        """Open a writing transaction; it commits at the end and rolls back on any error.

        Raises:
            LedgerUnavailable: LEDGER.UNAVAILABLE.v1 after bounded tries, and nothing was written; or
                LEDGER.OUTCOME_UNKNOWN.v1 when the connection was lost while committing.
        """
        with self._connected(read_only=False) as connection:
            committing = False
            try:
                yield LedgerTransaction(connection, self._clock, self._numbers)
                committing = True
                connection.commit()
            except BaseException as error:
                _roll_back(connection)
                if committing and _lost_its_answer(error):
                    raise _unavailable(error, reason=LEDGER_OUTCOME_UNKNOWN) from error
                if _is_away(error):
                    raise _unavailable(error) from error
                raise

    @contextmanager
    def reading(self) -> Iterator[LedgerTransaction]:
        """Open a reading transaction: one snapshot, never behind the writer."""
        with self._connected(read_only=True) as connection:
            try:
                yield LedgerTransaction(connection, self._clock, self._numbers)
            except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
                if _is_away(error):
                    raise _unavailable(error) from error
                raise
            finally:
                _roll_back(connection)

    @contextmanager
    def _connected(self, *, read_only: bool) -> Iterator[sa.Connection]:
        connection = self._begin(read_only=read_only)
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _take_connection(self) -> sa.Connection:
        return self.engine.connect()

    def _give_back(self, connection: sa.Connection) -> None:
        connection.close()

    def _begin(self, *, read_only: bool) -> sa.Connection:
        """Connect and begin; repeat within a bound when the database is locked or away.

        Pauses are 0.1 s, 0.2 s, 0.4 s … at most 2 s, with up to 0.1 s of jitter.
        """
        try:
            for attempt in stamina.retry_context(
                on=(sa.exc.DatabaseError, sqlite3.DatabaseError),
                attempts=self._begin_tries_max,
                timeout=None,
                wait_initial=0.1,
                wait_max=2.0,
                wait_jitter=0.1,
            ):
                with attempt:
                    return self._begin_once(read_only=read_only)
        except (sa.exc.DatabaseError, sqlite3.DatabaseError) as error:
            raise _unavailable(error, tries=self._begin_tries_max) from error
        raise AssertionError("unreachable")

    def _begin_once(self, *, read_only: bool) -> sa.Connection:
        connection = self._take_connection()
        try:
            self._start(connection, read_only=read_only)
        except (sa.exc.DatabaseError, sqlite3.DatabaseError):
            self._give_back(connection)
            raise
        return connection

    def _start(self, connection: sa.Connection, *, read_only: bool) -> None:
        if self.engine.dialect.name == "sqlite":
            connection.begin()
            # A deferred transaction that reads and then writes fails at once when another wrote meanwhile.
            _driver(connection).execute("BEGIN" if read_only else "BEGIN IMMEDIATE")
            return
        if read_only:
            # One snapshot for several queries; SQLite's readers have it by nature.
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        connection.begin()

    def migrate(self) -> None:
        """Bring the schema to this version; safe to repeat, and only read where it is there already."""
        from receipt_pipeline.ledger.schema.migrate import is_current, upgrade

        try:
            with self._connected(read_only=True) as connection:
                if is_current(connection):
                    return
            with self._connected(read_only=False) as connection:
                upgrade(connection)
                connection.commit()
        except sa.exc.DBAPIError as error:
            if _is_away(error):
                raise _unavailable(error) from error
            raise

    def roll_back(self, revision: str) -> list[str]:
        """Take the schema back to an earlier revision, in one transaction; returns the dropped tables.

        Raises:
            InputRefused: FIELD.INVALID.v1 for what is no earlier revision.
        """
        from receipt_pipeline.ledger.schema.migrate import downgrade

        before = self.table_names()
        with self._connected(read_only=False) as connection:
            downgrade(connection, revision)
            connection.commit()
        return sorted(before - self.table_names())

    def table_names(self) -> set[str]:
        """Return the names of the tables that are there."""
        with self._connected(read_only=True) as connection:
            return set(sa.inspect(connection).get_table_names())

    def overwrite_deleted(self) -> None:
        """Let no file keep what was deleted: SQLite's log goes into the database and is emptied.

        A reader that holds an older snapshot keeps its part of the log until the next call. PostgreSQL
        cleans up by its own vacuum.
        """
        if self.engine.dialect.name == "sqlite":
            raw = self.engine.raw_connection()  # A checkpoint is no part of any transaction.
            try:
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                raw.close()

    def close(self) -> None:
        """Return every connection."""
        self.engine.dispose()


_TROUBLE = (sa.exc.OperationalError, sa.exc.DatabaseError, sqlite3.OperationalError, sqlite3.DatabaseError)


# Of both databases; SQLite's own index of its log needs room as well, even for reading.
_NO_SPACE = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "DiskFull"})


def _driver(connection: sa.Connection) -> sqlite3.Connection:
    """Return SQLite's own connection: what every transaction says costs a fifth when said to it."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _newest_event_at(connection: sa.Connection) -> int:
    """Return the time of the newest event in microseconds, 0 without one."""
    if connection.dialect.name == "sqlite":
        newest = _driver(connection).execute(_NEWEST_EVENT_AT).fetchone()
    else:
        newest = connection.exec_driver_sql(_NEWEST_EVENT_AT).first()
    return int(newest[0]) if newest else 0


def _is_away(error: BaseException) -> bool:
    """Return whether the database itself is in trouble: gone, locked, or no database (any more)."""
    # Some servers end a connection with an error of another family; what counts is that it is gone.
    lost = isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated
    return lost or type(error) in _TROUBLE


def _unavailable(error: BaseException, *, reason: Reason = LEDGER_UNAVAILABLE, **facts: Any) -> LedgerUnavailable:
    cause = _cause(error)
    return LedgerUnavailable(STORAGE_FULL if cause in _NO_SPACE else reason, **facts, cause=cause)


def _cause(error: BaseException) -> str:
    """Return SQLite's own word for what is wrong, such as SQLITE_NOTADB, else the kind of the error."""
    cause = getattr(error, "orig", error)
    return str(getattr(cause, "sqlite_errorname", "") or type(cause).__name__)


def _lost_its_answer(error: BaseException) -> bool:
    """Return whether a failed commit may have been made: the connection broke, so no server refused it.

    SQLite has no connection to lose: its refused commit is rolled back.
    """
    return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated


def _roll_back(connection: sa.Connection) -> None:
    """Roll back what is open; a connection that is gone has nothing left to roll back."""
    with suppress(sa.exc.DatabaseError):
        connection.rollback()


def open_ledger(
    url: str,
    *,
    clock: Clock | None = None,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    begin_tries_max: int = BEGIN_TRIES_MAX,
    lock_wait_s: float = LOCK_WAIT_S,
    idle_transaction_s: float = IDLE_TRANSACTION_S,
) -> Ledger:
    """Open a ledger by SQLAlchemy URL: `sqlite:///path` or `postgresql+psycopg://…`.

    On PostgreSQL the database's clock decides unless a clock is injected. A transaction waits for
    SQLite's writer at most `begin_tries_max` times `busy_timeout_ms`, with pauses in between, and for
    a lock of PostgreSQL at most `lock_wait_s`; a process that stands still inside a transaction loses
    it, with its locks, after `idle_transaction_s`.
    """
    if url.startswith("sqlite"):
        engine = _sqlite_engine(url, busy_timeout_ms)
        return Ledger(engine, clock=clock or HostClock(), begin_tries_max=begin_tries_max)
    engine = _postgres_engine(url, lock_wait_s, idle_transaction_s)
    return Ledger(engine, clock=clock, begin_tries_max=begin_tries_max)


def engine_over(connection: sqlite3.Connection) -> sa.Engine:
    """Return an engine that runs every transaction on this one connection, opened in autocommit."""
    return _with_ledger_habits(
        sa.create_engine("sqlite://", creator=lambda: connection, poolclass=sa.StaticPool), BUSY_TIMEOUT_MS
    )


def _postgres_engine(url: str, lock_wait_s: float, idle_transaction_s: float) -> sa.Engine:
    engine = sa.create_engine(url, pool_pre_ping=True, pool_size=4, max_overflow=4)

    @event.listens_for(engine, "connect")
    def _bounds(dbapi_connection: Any, _record: Any) -> None:
        # A stopped worker would otherwise hold up every other one for as long as it stands still.
        cursor = dbapi_connection.cursor()
        cursor.execute(f"SET lock_timeout = {round(lock_wait_s * 1000)}")
        cursor.execute(f"SET idle_in_transaction_session_timeout = {round(idle_transaction_s * 1000)}")
        cursor.close()
        dbapi_connection.commit()

    return engine


def _sqlite_engine(url: str, busy_timeout_ms: int) -> sa.Engine:
    path = sa.make_url(url).database
    if path and path != ":memory:":
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    arguments = {"timeout": busy_timeout_ms / 1000, "isolation_level": None}
    return _with_ledger_habits(sa.create_engine(url, connect_args=arguments), busy_timeout_ms)


def _with_ledger_habits(engine: sa.Engine, busy_timeout_ms: int) -> sa.Engine:
    """Let every connection wait, sync and check as the ledger needs it."""

    @event.listens_for(engine, "connect")
    def _pragmas(dbapi_connection: Any, _record: Any) -> None:
        cursor = dbapi_connection.cursor()
        for pragma in (
            f"busy_timeout={busy_timeout_ms}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            # What is deleted is overwritten in every page that is written anyway.
            "secure_delete=FAST",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine
