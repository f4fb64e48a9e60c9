"""Reads the ledger as Arrow batches, all of them in the snapshot of one reading transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql.dbapi
import adbc_driver_sqlite.dbapi
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.reasons import LEDGER_UNAVAILABLE
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction

SNAPSHOT_ATTEMPTS_MAX = 100
BATCH_ROWS = 16_384


class LedgerBatches:
    """Answers queries of the ledger as Arrow record batches, over a connection of its own.

    Args:
        connection: an ADBC connection that commits by itself until `snapshot` begins a transaction.
    """

    dialect: sa.Dialect

    def __init__(self, ledger: Ledger, connection: Any) -> None:
        self._ledger = ledger
        self._connection = connection

    @contextmanager
    def snapshot(self) -> Iterator[LedgerTransaction]:
        """Open a reading transaction; all that is read here afterward is of its snapshot."""
        raise NotImplementedError

    @contextmanager
    def read(self, query: sa.Select[Any]) -> Iterator[pa.RecordBatchReader]:
        """Stream the rows of a query over text, integers and booleans.

        Raises:
            LedgerUnavailable: LEDGER.UNAVAILABLE.v1; some batches may have been read.
        """
        faults: list[adbc_driver_manager.Error] = []
        with _driver_errors(), self._connection.cursor() as cursor:
            reader = self._execute(cursor, query)

            def batches() -> Iterator[pa.RecordBatch]:
                try:
                    yield from self._rows(reader)
                except adbc_driver_manager.Error as error:
                    faults.append(error)
                    raise

            try:
                yield pa.RecordBatchReader.from_batches(reader.schema, batches())
            except Exception:
                if faults:  # The reader of the stream knows this error by its text alone.
                    raise faults[0] from None
                raise

    def _execute(self, cursor: Any, query: sa.Select[Any]) -> pa.RecordBatchReader:
        cursor.execute(self._text(query))
        return cursor.fetch_record_batch()

    def _rows(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        yield from reader

    def _text(self, query: Any) -> str:
        return str(query.compile(dialect=self.dialect, compile_kwargs={"literal_binds": True}))


class _SqliteBatches(LedgerBatches):
    dialect = sqlite.dialect()

    @contextmanager
    def snapshot(self) -> Iterator[LedgerTransaction]:
        """Begin both transactions; once more when another connection committed between them."""
        with _driver_errors(), self._connection.cursor() as cursor:
            for _ in range(SNAPSHOT_ATTEMPTS_MAX):
                version = self._version(cursor)
                with self._ledger.reading() as tx:
                    tx.scalar(sa.text("PRAGMA schema_version"))
                    cursor.execute("BEGIN")
                    if self._version(cursor) == version:
                        yield tx
                        return
                cursor.execute("ROLLBACK")
        raise LedgerUnavailable(LEDGER_UNAVAILABLE, cause="busy", tries=SNAPSHOT_ATTEMPTS_MAX)

    def _execute(self, cursor: Any, query: sa.Select[Any]) -> pa.RecordBatchReader:
        """Ask for a row without NULL first: the driver takes the type of a column from its first value."""
        samples = ("''" if isinstance(column.type, sa.String) else "0" for column in query.selected_columns)
        names = (column.name for column in query.selected_columns)
        typed = ", ".join(f'{sample} AS "{name}"' for sample, name in zip(samples, names, strict=True))
        cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": BATCH_ROWS})
        cursor.execute(f"SELECT {typed} UNION ALL {self._text(query)}")
        return cursor.fetch_record_batch()

    def _rows(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(reader):
            yield batch if number else batch.slice(1)

    @staticmethod
    def _version(cursor: Any) -> int:
        """Return a number that changes with every commit of another connection."""
        cursor.execute("PRAGMA data_version")
        return int(cursor.fetchone()[0])


class _PostgresBatches(LedgerBatches):
    # Named parameters keep percent signs from being doubled.
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]

    @contextmanager
    def snapshot(self) -> Iterator[LedgerTransaction]:
        """Begin both transactions on one snapshot of the server."""
        with _driver_errors(), self._connection.cursor() as cursor, self._ledger.reading() as tx:
            name = tx.scalar(sa.text("SELECT pg_export_snapshot()"))
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
            yield tx


@contextmanager
def open_batches(ledger: Ledger) -> Iterator[LedgerBatches]:
    """Connect to the ledger for reading batches.

    Raises:
        LedgerUnavailable: LEDGER.UNAVAILABLE.v1.
    """
    url = ledger.engine.url
    batches: type[LedgerBatches]
    with _driver_errors():
        if url.get_backend_name() == "sqlite":
            batches = _SqliteBatches
            uri = f"{Path(str(url.database)).absolute().as_uri()}?mode=ro"
            connection = adbc_driver_sqlite.dbapi.connect(uri, autocommit=True)
        else:
            batches = _PostgresBatches
            uri = url.set(drivername="postgresql").render_as_string(hide_password=False)
            connection = adbc_driver_postgresql.dbapi.connect(uri, autocommit=True)
    with closing(connection):
        yield batches(ledger, connection)


@contextmanager
def _driver_errors() -> Iterator[None]:
    """Raise LedgerUnavailable for what the driver says is wrong with the database."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        raise LedgerUnavailable(LEDGER_UNAVAILABLE, cause=type(error).__name__) from error
