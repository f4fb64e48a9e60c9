"""Reads the ledger as Arrow batches, all of them in the snapshot of one reading transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql
import adbc_driver_sqlite
import pyarrow as pa
import sqlalchemy as sa
from adbc_driver_manager import AdbcConnection, AdbcStatement
from sqlalchemy.dialects import postgresql, sqlite

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.reasons import LEDGER_UNAVAILABLE
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction

SNAPSHOT_ATTEMPTS_MAX = 100
BATCH_ROWS = 16_384


class LedgerBatches(ABC):
    """Answers queries of the ledger as Arrow record batches, over a separate connection.

    Args:
        connection: commits each statement by itself until `snapshot` begins a transaction, once.
    """

    dialect: sa.Dialect

    def __init__(self, ledger: Ledger, connection: AdbcConnection) -> None:
        self._ledger = ledger
        self._connection = connection

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[LedgerTransaction]:
        """Open a reading transaction; all that is read here afterward is of its snapshot."""

    @contextmanager
    def read(self, query: sa.Select[Any]) -> Iterator[pa.RecordBatchReader]:
        """Stream the rows of a query over text, integers and booleans.

        Raises:
            LedgerUnavailable: LEDGER.UNAVAILABLE.v1; some batches may have been read.
        """
        with AdbcStatement(self._connection) as statement:
            with _ledger_errors():
                stream = self._execute(statement, query)
            faults: list[Exception] = []

            def batches() -> Iterator[pa.RecordBatch]:
                try:
                    yield from self._rows(stream)
                except (pa.ArrowException, OSError) as error:
                    faults.append(error)
                    raise

            try:
                yield pa.RecordBatchReader.from_batches(stream.schema, batches())
            except Exception as error:
                if faults:  # The reader of the stream knows this error by its text alone.
                    raise _unavailable(faults[0]) from error
                raise

    def _execute(self, statement: AdbcStatement, query: sa.Select[Any]) -> pa.RecordBatchReader:
        return _answer(statement, self._text(query))

    def _rows(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        yield from stream

    def _text(self, query: sa.Select[Any]) -> str:
        return str(query.compile(dialect=self.dialect, compile_kwargs={"literal_binds": True}))

    def _run(self, text: str) -> list[dict[str, Any]]:
        """Run a short statement of the driver's database and return its rows."""
        with _ledger_errors(), AdbcStatement(self._connection) as statement:
            rows: list[dict[str, Any]] = _answer(statement, text).read_all().to_pylist()
            return rows


class _SqliteBatches(LedgerBatches):
    dialect = sqlite.dialect()

    @contextmanager
    def snapshot(self) -> Iterator[LedgerTransaction]:
        """Begin both transactions; once more when another connection committed between them."""
        for _ in range(SNAPSHOT_ATTEMPTS_MAX):
            version = self._version()
            with self._ledger.reading() as tx:
                tx.scalar(sa.text("PRAGMA schema_version"))
                self._run("BEGIN")
                if self._version() == version:
                    yield tx
                    return
            self._run("ROLLBACK")
        raise LedgerUnavailable(LEDGER_UNAVAILABLE, cause="busy", tries=SNAPSHOT_ATTEMPTS_MAX)

    def _execute(self, statement: AdbcStatement, query: sa.Select[Any]) -> pa.RecordBatchReader:
        """Ask for a row without NULL first: the driver takes the type of a column from its first value."""
        samples = ("''" if isinstance(column.type, sa.String) else "0" for column in query.selected_columns)
        names = (column.name for column in query.selected_columns)
        typed = ", ".join(f'{sample} AS "{name}"' for sample, name in zip(samples, names, strict=True))
        statement.set_options(**{"adbc.sqlite.query.batch_rows": BATCH_ROWS})
        return _answer(statement, f"SELECT {typed} UNION ALL {self._text(query)}")

    def _rows(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(stream):
            yield batch if number else batch.slice(1)

    def _version(self) -> int:
        """Return a number that changes with every commit of another connection."""
        [row] = self._run("PRAGMA data_version")
        return int(row["data_version"])


class _PostgresBatches(LedgerBatches):
    # Named parameters keep percent signs from being doubled.
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]

    @contextmanager
    def snapshot(self) -> Iterator[LedgerTransaction]:
        """Begin both transactions on one snapshot of the server."""
        with self._ledger.reading() as tx:
            name = tx.scalar(sa.text("SELECT pg_export_snapshot()"))
            self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            self._run(f"SET TRANSACTION SNAPSHOT '{name}'")
            yield tx


@contextmanager
def open_batches(ledger: Ledger) -> Iterator[LedgerBatches]:
    """Connect to the ledger for reading batches of one snapshot.

    Raises:
        LedgerUnavailable: LEDGER.UNAVAILABLE.v1.
    """
    url = ledger.engine.url
    batches: type[LedgerBatches]
    with _ledger_errors():
        if url.get_backend_name() == "sqlite":
            batches = _SqliteBatches
            uri = f"{Path(str(url.database)).absolute().as_uri()}?mode=ro"
            database = adbc_driver_sqlite.connect(uri)
        else:
            batches = _PostgresBatches
            uri = url.set(drivername="postgresql").render_as_string(hide_password=False)
            database = adbc_driver_postgresql.connect(uri)
    with database:
        with _ledger_errors():
            connection = AdbcConnection(database)
        with connection:
            yield batches(ledger, connection)


def _answer(statement: AdbcStatement, text: str) -> pa.RecordBatchReader:
    statement.set_sql_query(text)
    stream, _ = statement.execute_query()
    return pa.RecordBatchReader.from_stream(stream)


@contextmanager
def _ledger_errors() -> Iterator[None]:
    """Raise LedgerUnavailable for what the driver says is wrong with the database."""
    try:
        yield
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> LedgerUnavailable:
    return LedgerUnavailable(LEDGER_UNAVAILABLE, cause=type(error).__name__)
