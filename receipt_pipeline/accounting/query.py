"""Reads the published report: read-only, whatever others do to the file meanwhile."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from receipt_pipeline.accounting.query_own import holds_others, own_part
from receipt_pipeline.accounting.services import Accountant
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound, ReportFault
from receipt_pipeline.core.reasons import REPORT_NONE, REPORT_SEVERAL_TENANTS, REPORT_SQL, REPORT_UNREADABLE


def run_query(accountant: Accountant, sql: str, *, tenant: str | None = None) -> list[dict[str, Any]]:
    """Run SQL on the published report and return its rows; money as Decimal, times as aware UTC.

    Args:
        tenant: whose rows the query may see; None for all.
    Raises:
        ReportFault: REPORT.UNREADABLE.v1 when there is no report that opens.
        InputRefused: REPORT.SQL.v1 with DuckDB's words when it refuses the query.
        NotFound: REPORT.NONE.v1 when none was published yet.
    """
    _must_exist(accountant)
    with reading_report(accountant.published) as connection:
        shared = tenant is not None and holds_others(connection, tenant)
        seen = own_part(connection, tenant) if shared and tenant is not None else connection
        try:
            return fetch_rows(seen, sql)
        except ReportFault as fault:  # Somebody's own query is input, not a fault of the report.
            raise InputRefused(fault.reason, **fault.facts) from fault
        finally:
            if seen is not connection:
                seen.close()


def read_published(accountant: Accountant, *, tenant: str | None = None) -> dict[str, Any]:
    """Return the account's document as it was published.

    Args:
        tenant: who asks; None for the product itself.
    Raises:
        NotAllowed: REPORT.SEVERAL_TENANTS.v1 when it is not the account of this tenant alone.
        ReportFault: REPORT.UNREADABLE.v1. NotFound: REPORT.NONE.v1 when none was published yet.
    """
    _must_exist(accountant)
    with reading_report(accountant.published) as connection:
        if tenant is not None and holds_others(connection, tenant):
            raise NotAllowed(REPORT_SEVERAL_TENANTS)
        (row,) = fetch_rows(connection, "SELECT document FROM report_info")
    document: dict[str, Any] = json.loads(row["document"])
    return document


def _must_exist(accountant: Accountant) -> None:
    if not accountant.published.exists():
        raise NotFound(REPORT_NONE, report=accountant.published.name)


def fetch_rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query as dictionaries.

    Raises:
        ReportFault: REPORT.SQL.v1.
    """
    try:
        cursor: duckdb.DuckDBPyConnection | None = connection.execute(sql)
        if cursor is None:  # DuckDB's answer to a text without a statement.
            raise ReportFault(REPORT_SQL, detail="there is no statement in it")
        names = [str(column[0]) for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except duckdb.Error as error:
        raise ReportFault(REPORT_SQL, detail=str(error).partition("\n")[0]) from error


@contextmanager
def reading_report(published: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the published report for one reader and close it; days and times are UTC.

    Raises:
        ReportFault: REPORT.UNREADABLE.v1.
    """
    connection = _open(published)
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def _open(published: Path) -> duckdb.DuckDBPyConnection:
    """Open the file under a name of this reader's own.

    So a log that somebody left beside the published name is not replayed, and a file that this
    process opened earlier is not taken for the new one. Whoever holds the file for writing locks it
    itself; then a copy is read, which shows what was published.
    """
    own = published.with_name(f".open-{os.getpid()}-{os.urandom(6).hex()}.duckdb")
    try:
        for take in (os.link, shutil.copyfile):
            with suppress(duckdb.Error, OSError):
                take(published, own)
                return duckdb.connect(str(own), read_only=True)
            own.unlink(missing_ok=True)
    finally:
        own.unlink(missing_ok=True)
    with suppress(duckdb.Error):  # A reader who may not write into the folder opens the file as it is.
        return duckdb.connect(str(published), read_only=True)
    raise ReportFault(REPORT_UNREADABLE, report=published.name, exists=published.exists())
