"""Reads the rows of queries as Arrow batches, all of them in the snapshot of one reading transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.reasons import LEDGER_UNAVAILABLE
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction

BATCH_ROWS = 16_384


@contextmanager
def open_snapshot(ledger: Ledger) -> Iterator[LedgerTransaction]:
    """Open a reading transaction that may be idle for as long as its reader needs.

    The rows are read over the driver of the ledger itself. A second SQLite library in this process, such as
    the one in ADBC's driver, would drop this process's file locks when it closes the file; another process
    then removes the write-ahead log that is still in use here, and what is committed to it is lost.
    Source: https://www.sqlite.org/howtocorrupt.html, section 2.2.1; seen in the four-job drill.

    Raises:
        LedgerUnavailable: LEDGER.UNAVAILABLE.v1.
    """
    with ledger.reading() as tx:
        if ledger.engine.dialect.name == "postgresql":
            tx.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield tx


@contextmanager
def read_batches(tx: LedgerTransaction, query: sa.Select[Any]) -> Iterator[pa.RecordBatchReader]:
    """Stream the rows of a query over text, integers and booleans.

    Raises:
        LedgerUnavailable: LEDGER.UNAVAILABLE.v1; some batches may have been read.
    """
    schema = pa.schema([(column.name, _arrow_type(column.type)) for column in query.selected_columns])
    faults: list[sa.exc.DatabaseError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for rows in tx.stream(query, rows_max=BATCH_ROWS):
                columns = [
                    pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)
                ]
                yield pa.record_batch(columns, schema=schema)
        except sa.exc.DatabaseError as error:
            faults.append(error)
            raise

    try:
        yield pa.RecordBatchReader.from_batches(schema, batches())
    except Exception as error:
        if faults:  # The reader of the stream knows this error by its text alone.
            raise LedgerUnavailable(LEDGER_UNAVAILABLE, cause=type(faults[0].orig).__name__) from error
        raise


def _arrow_type(column_type: sa.types.TypeEngine[Any]) -> pa.DataType:
    if isinstance(column_type, sa.Boolean):
        return pa.bool_()
    return pa.int64() if isinstance(column_type, sa.Integer) else pa.string()
