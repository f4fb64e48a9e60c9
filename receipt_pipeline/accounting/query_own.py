"""Cuts one tenant's part out of the published report, so that a query over it can reach nothing else."""

from __future__ import annotations

import duckdb

# The tables that say whose each job is.
WITH_TENANT = ("jobs", "imported_jobs")
# Names of releases and principals are no tenant's; every other table without an owner stays empty.
OF_NOBODY = frozenset({"releases", "aliases", "active_principals", "report_info"})


def holds_others(report: duckdb.DuckDBPyConnection, tenant: str) -> bool:
    """Tell whether the published report holds jobs of another tenant."""
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
    """Return how a table is read: of the report as a whole only when it was made, never its verdict."""
    if table == "report_info":
        return "SELECT * REPLACE (NULL AS state, NULL AS gate, NULL AS document) FROM report_info"
    return f'SELECT * FROM "{table}"'


def _create_views(part: duckdb.DuckDBPyConnection, definitions: list[str]) -> None:
    """Create views that stand on one another; the catalogue does not list them in that order."""
    while definitions:
        waiting = [definition for definition in definitions if not _created(part, definition)]
        assert len(waiting) < len(definitions), "a view stands on something that is not in the report"
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
