"""Builds the report's DuckDB file aside, from the exported Parquet and the account's document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from receipt_pipeline.accounting.exported import EXPORTED, TIME
from receipt_pipeline.accounting.facts import Facts
from receipt_pipeline.core.limits import ServiceLimits

TIME_ZONE = "UTC"
_FINDING_TYPES = {"deadline_at": TIME, "owned": pa.bool_(), "answered": pa.bool_()}
JSON_COLUMNS = frozenset({"data", "evidence", "digests", "reasons", "facts", "warnings", "detail"})


def sql_text(name: str) -> str:
    """Return one of the SQL files of this room, whole."""
    return resources.files("receipt_pipeline.accounting").joinpath("sql", name).read_text(encoding="utf-8")


def build_file(
    path: Path, *, export: Path, facts: Facts, document: Mapping[str, Any], limits: ServiceLimits
) -> None:
    """Write tables, views and descriptions into a new file and close it with nothing left to replay."""
    connection = duckdb.connect(str(path))
    try:
        connection.execute(f"SET TimeZone = '{TIME_ZONE}'")
        connection.execute("BEGIN")
        for table in EXPORTED:
            _load(connection, table.name, table.names, export / table.name)
        _load_account(connection, facts, document, limits)
        connection.execute(sql_text("views.sql"))
        connection.execute(sql_text("comments.sql"))
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    finally:
        connection.close()


def _load(connection: duckdb.DuckDBPyConnection, name: str, columns: tuple[str, ...], folder: Path) -> None:
    shown = ", ".join(
        f"{column}::JSON AS {column}" if column in JSON_COLUMNS else f'"{column}"' for column in columns
    )
    total = ", total" if name == "items" else ""
    connection.execute(
        f"CREATE TABLE {name} AS SELECT {shown}{total} FROM read_parquet(?)", [str(folder / "*.parquet")]
    )


def _load_account(
    connection: duckdb.DuckDBPyConnection, facts: Facts, document: Mapping[str, Any], limits: ServiceLimits
) -> None:
    connection.execute(
        "CREATE TABLE report_info (seq BIGINT, as_of TIMESTAMPTZ, cutoff TIMESTAMPTZ, time_zone VARCHAR,"
        " state VARCHAR, gate VARCHAR, document JSON)"
    )
    connection.execute(
        "INSERT INTO report_info VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            facts.snapshot.seq,
            facts.snapshot.as_of,
            facts.snapshot.cutoff or facts.snapshot.as_of,
            TIME_ZONE,
            document["state"],
            document["gate"],
            json.dumps(document, ensure_ascii=False),
        ],
    )
    connection.execute("CREATE TABLE active_principals (principal VARCHAR)")
    for principal in sorted(limits.principals):
        connection.execute("INSERT INTO active_principals VALUES (?)", [principal])
    connection.execute(
        "CREATE TABLE account_findings (finding VARCHAR, job_id VARCHAR, investigation_id VARCHAR,"
        " owner VARCHAR, deadline_at TIMESTAMPTZ, owned BOOLEAN, answered BOOLEAN)"
    )
    # As one Arrow table: a row-wise insert of many findings takes a millisecond each.
    names = ("finding", "job_id", "investigation_id", "owner", "deadline_at", "owned", "answered")
    lines = {name: [getattr(line, name) for line in facts.open_findings] for name in names}
    found = pa.table({name: pa.array(lines[name], _FINDING_TYPES.get(name, pa.string())) for name in names})
    connection.register("found", found)
    connection.execute("INSERT INTO account_findings SELECT * FROM found")
    connection.unregister("found")
