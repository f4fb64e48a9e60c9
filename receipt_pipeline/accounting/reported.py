"""Asks the tables of a report what the ledger's own queries ask the ledger: one definition, two engines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import sqlalchemy as sa

from receipt_pipeline.accounting.export_note import Renewed
from receipt_pipeline.accounting.exported import EXPORTED, ExportedTable, Renewal, exported_name
from receipt_pipeline.ledger.changes import CopiedLedger
from receipt_pipeline.ledger.schema.effects import tombstones

ASKED = "asked"
SOME = "asked_of_some"


@contextmanager
def asking_report(
    report: duckdb.DuckDBPyConnection, *, now: dt.datetime, buried: Sequence[str] = ()
) -> Iterator[CopiedLedger]:
    """Let a report stand for the ledger from which it was made: the same rows, read by columns.

    Columns that are not exported are there and empty. What changes without an event is given: the
    moment, and the tombstones of results whose removal is not recorded yet.
    """
    connection = report.cursor()
    try:
        [(name,)] = connection.execute("SELECT current_database()").fetchall()
        place = f'"{name}".main'
        _show_as_ledger(connection, place, buried)
        yield CopiedLedger(lambda text: connection.execute(text).fetchall(), now=now)
        connection.execute(f"USE {place}")
        connection.execute(f"DETACH {ASKED}")
    finally:
        connection.close()


@contextmanager
def asking_of_renewed(
    report: duckdb.DuckDBPyConnection, renewals: Sequence[Renewed], *, now: dt.datetime
) -> Iterator[CopiedLedger]:
    """Let the rows of the jobs that refreshes renewed stand for the ledger: what is renewed by job, alone.

    They are taken from what was exported, for to find them in the report all its rows would be read.
    """
    connection = report.cursor()
    try:
        [(name,)] = connection.execute("SELECT current_database()").fetchall()
        place = f'"{name}".main'
        connection.execute(f"ATTACH ':memory:' AS {SOME}")
        connection.execute(f"USE {SOME}.main")
        for table in EXPORTED:
            if table.renewal is Renewal.BY_JOB:
                _load_renewed(connection, place, table, renewals)
        yield CopiedLedger(lambda text: connection.execute(text).fetchall(), now=now)
        connection.execute(f"USE {place}")
        connection.execute(f"DETACH {SOME}")
    finally:
        connection.close()


def _load_renewed(
    connection: duckdb.DuckDBPyConnection, place: str, table: ExportedTable, renewals: Sequence[Renewed]
) -> None:
    """Make a table of the ledger out of the rows that refreshes read again, later ones instead of earlier."""
    name = f'"{table.source.name}"'
    shown = ", ".join(_as_in_ledger(table, column) for column in table.source.columns)
    read = f"SELECT {shown} FROM (SELECT {table.shown} FROM read_parquet(?) WHERE job_id IS NOT NULL)"
    there = False
    for renewed in renewals:
        if there and renewed.moved:
            again = "SELECT job_id FROM read_parquet(?)"
            connection.execute(f"DELETE FROM {name} WHERE job_id IN ({again})", [renewed.moved])
        if files := renewed.rows[table.name]:
            into = f"INSERT INTO {name}" if there else f"CREATE TABLE {name} AS"
            connection.execute(f"{into} {read}", [files])
            there = True
    if not there:
        connection.execute(f'CREATE TABLE {name} AS SELECT {shown} FROM {place}."{table.name}" LIMIT 0')


def _show_as_ledger(connection: duckdb.DuckDBPyConnection, place: str, buried: Sequence[str]) -> None:
    """Let the ledger's names stand for the report's tables, in a database in memory."""
    connection.execute(f"ATTACH ':memory:' AS {ASKED}")
    connection.execute(f"USE {ASKED}.main")
    for table in EXPORTED:
        shown = ", ".join(_as_in_ledger(table, column) for column in table.source.columns)
        connection.execute(f'CREATE VIEW "{table.source.name}" AS SELECT {shown} FROM {place}."{table.name}"')
    keys = "SELECT unnest(?::VARCHAR[]) AS object_key"
    connection.execute(f"CREATE TABLE {tombstones.name} AS {keys}", [list(buried)])


def _as_in_ledger(table: ExportedTable, column: sa.Column[Any]) -> str:
    """Return a column as the ledger has it: times are microseconds, what is not exported is empty."""
    name = exported_name(column.name)
    if name not in table.names:
        return f'NULL AS "{column.name}"'
    shown, kind = f'"{name}"', table.kinds[table.names.index(name)]
    return f'epoch_us({shown}) AS "{column.name}"' if kind == "time" else f'{shown} AS "{column.name}"'
