"""Read-only queries over the report, and one tenant's part of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound, ReportFault
from receipt_pipeline.core.reasons import REPORT_NONE, REPORT_SEVERAL_TENANTS, REPORT_SQL, REPORT_UNREADABLE


def run_query(accountant: Accountant, sql: str, *, tenant: str | None = None) -> list[dict[str, Any]]:
    """Run SQL on the published report and return its rows; money as Decimal, times as aware UTC.

    Args:
        tenant: whose rows the query may see; None for all.
    Raises:
        ReportFault: REPORT.UNREADABLE.v1 when there is no report that opens.
        InputRefused: REPORT.SQL.v1 with DuckDB's message when it refuses the query.
        NotFound: REPORT.NONE.v1 when none was published yet.
    """
    _must_exist(accountant)
    with reading_report(accountant.published) as connection:
        shared = tenant is not None and holds_others(connection, tenant)
        seen = own_part(connection, tenant) if shared and tenant is not None else connection
        try:
            return fetch_rows(seen, sql)
        except ReportFault as fault:  # A query from outside is input, not a fault of the report.
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
    connection = open_published(published)
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
    finally:
        connection.close()


def open_published(published: Path) -> duckdb.DuckDBPyConnection:
    """Open the file under a name that only this reader uses.

    So a log that was left next to the published name is not replayed, and a file that this process
    opened earlier is not mistaken for the new one. A session that writes to the file locks it; then a
    copy is read, which shows what was published.
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


# The tables that say whose each job is.
WITH_TENANT = ("jobs", "imported_jobs")
# Names of releases and principals are no tenant's; every other table without an owner stays empty.
OF_NOBODY = frozenset({"releases", "aliases", "active_principals", "report_info"})


def holds_others(report: duckdb.DuckDBPyConnection, tenant: str) -> bool:
    """Check whether the published report holds jobs of another tenant."""
    ids = " UNION ALL ".join(f"SELECT job_id FROM {table} WHERE tenant <> ?" for table in WITH_TENANT)
    return report.execute(f"{ids} LIMIT 1", [tenant] * len(WITH_TENANT)).fetchone() is not None


def own_part(report: duckdb.DuckDBPyConnection, tenant: str) -> duckdb.DuckDBPyConnection:
    """Return a database in memory with the same tables and views, and the rows of one tenant alone."""
    part = duckdb.connect(":memory:")
    part.execute("SET TimeZone = 'UTC'")
    for name, definition in _listed(report, "SELECT table_name, sql FROM duckdb_tables() ORDER BY table_oid"):
        part.execute(definition)
        condition = _condition(report, name)
        if condition is None:
            continue
        given = [tenant] * condition.count("?")
        own = report.sql(f"{_read(name)} WHERE {condition}", params=given).to_arrow_table()
        part.register("own_rows", own)
        part.execute(f'INSERT INTO "{name}" SELECT * FROM own_rows')
        part.unregister("own_rows")
    views = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY view_oid"
    _create_views(part, [definition for _, definition in _listed(report, views)])
    part.execute("SET enable_external_access = false")
    part.execute("SET lock_configuration = true")
    return part


def _read(table: str) -> str:
    """Return how a table is read: of the whole report only when it was made, never its verdict."""
    if table == "report_info":
        return "SELECT * REPLACE (NULL AS state, NULL AS gate, NULL AS document) FROM report_info"
    return f'SELECT * FROM "{table}"'


def _create_views(part: duckdb.DuckDBPyConnection, definitions: list[str]) -> None:
    """Create views that use one another; the catalog does not list them in that order."""
    while definitions:
        waiting = [definition for definition in definitions if not _created(part, definition)]
        assert len(waiting) < len(definitions), "a view uses something that is not in the report"
        definitions = waiting


def _created(part: duckdb.DuckDBPyConnection, definition: str) -> bool:
    try:
        part.execute(definition)
    except duckdb.CatalogException:
        return False
    return True


def _listed(report: duckdb.DuckDBPyConnection, query: str) -> list[tuple[str, str]]:
    return [(str(name), str(definition)) for name, definition in report.execute(query).fetchall()]


def _condition(report: duckdb.DuckDBPyConnection, table: str) -> str | None:
    """Return which rows of a table are a tenant's own, None for none of them."""
    columns = {
        str(name)
        for (name,) in report.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [table]
        ).fetchall()
    }
    if "job_id" in columns:
        ids = " UNION ALL ".join(f"SELECT job_id FROM {own} WHERE tenant = ?" for own in WITH_TENANT)
        return f"job_id IN ({ids})"
    if "tenant" in columns:
        return "tenant = ?"
    return "true" if table in OF_NOBODY else None
