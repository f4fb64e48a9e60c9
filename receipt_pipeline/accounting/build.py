"""Builds the report's DuckDB file aside, from the exported Parquet and the account's document."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from receipt_pipeline.accounting.arrow_columns import column_of
from receipt_pipeline.accounting.export_note import CHANGED_JOBS, ExportNote, Part
from receipt_pipeline.accounting.exported import EXPORTED, ExportedTable, Renewal
from receipt_pipeline.accounting.facts import SETTLED_BY_ROWS, Facts, read_facts
from receipt_pipeline.accounting.report_document import build_document
from receipt_pipeline.accounting.reported import asking_of_jobs, asking_report
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.ledger.columns import EPOCH, MICROSECOND

TIME_ZONE = "UTC"
# Analysts' own tools are seldom the newest: a DuckDB of this version and every later one opens the file.
READABLE_FROM = "v1.2.0"
FINDING_COLUMNS = ("finding", "job_id", "investigation_id", "owner", "deadline_at", "owned", "answered")
JSON_COLUMNS = frozenset({"data", "evidence", "digests", "reasons", "facts", "warnings", "detail"})


@dataclass(frozen=True, slots=True)
class LedgerMoment:
    """What a report takes from the ledger beside the export, in the same snapshot.

    Attributes:
        now: the deciding time.
        alerts: rows of the alerts that stand.
        buried: keys of results that are being removed, and whose removal is not recorded yet.
    """

    now: dt.datetime
    alerts: Sequence[Mapping[str, Any]]
    buried: Sequence[str]


@dataclass(frozen=True, slots=True)
class Base:
    """An earlier report that is brought up to date: where it lies, and the refresh that it shows."""

    path: Path
    refresh_no: int


def sql_text(name: str) -> str:
    """Return one of the SQL files of this room, whole."""
    return resources.files("receipt_pipeline.accounting").joinpath("sql", name).read_text(encoding="utf-8")


def build_file(
    path: Path,
    *,
    export: Path,
    note: ExportNote,
    moment: LedgerMoment,
    limits: ServiceLimits,
    cutoff: dt.datetime | None = None,
    base: Base | None = None,
) -> tuple[Facts, dict[str, Any]]:
    """Write a report into a new file and close it with nothing left to replay; returns its account.

    Args:
        base: the report of which a copy is brought up to date; None to build all of it.
    """
    if base is not None:
        shutil.copyfile(base.path, path)
        path.chmod(0o644)
    connection = duckdb.connect(str(path), config={"storage_compatibility_version": READABLE_FROM})
    try:
        connection.execute(f"SET TimeZone = '{TIME_ZONE}'")
        connection.execute("BEGIN")
        if base is None:
            _create(connection, export, note)
        for refresh_no in range((base.refresh_no if base else 0) + 1, note.refresh_no + 1):
            _renew(connection, export, note, refresh_no)
        connection.execute("COMMIT")
        with ExitStack() as asking:
            asked = asking.enter_context(asking_report(connection, now=moment.now, buried=moment.buried))
            in_question = None
            if base is not None:
                job_ids = _jobs_in_question(export, note, base)
                in_question = asking.enter_context(asking_of_jobs(connection, job_ids, now=moment.now))
            facts = read_facts(asked, limits=limits, cutoff=cutoff, in_question=in_question)
            document = build_document(asked, facts, standing_alerts=moment.alerts)
        connection.execute("BEGIN")
        if base is None:
            connection.execute(sql_text("account.sql"))
            connection.execute(sql_text("views.sql"))
            connection.execute(sql_text("comments.sql"))
        _load_account(connection, note, facts, document, limits)
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
    finally:
        connection.close()
    return facts, document


def _create(connection: duckdb.DuckDBPyConnection, export: Path, note: ExportNote) -> None:
    for table in EXPORTED:
        files = _files(export, note.of_refresh(table.name, 0))
        connection.execute(
            f"CREATE TABLE {table.name} AS SELECT {_shown(table)} FROM read_parquet(?)", [files]
        )


def _renew(connection: duckdb.DuckDBPyConnection, export: Path, note: ExportNote, refresh_no: int) -> None:
    """Let the rows of one refresh take the place of those that they renew."""
    moved = _files(export, note.of_refresh(CHANGED_JOBS, refresh_no))
    if moved:
        connection.execute("CREATE TEMP TABLE moved AS SELECT job_id FROM read_parquet(?)", [moved])
    for table in EXPORTED:
        files = _files(export, note.of_refresh(table.name, refresh_no))
        if table.renewal is Renewal.BY_JOB and moved:
            connection.execute(f"DELETE FROM {table.name} WHERE job_id IN (SELECT job_id FROM moved)")
        if not files:
            continue
        if table.renewal is Renewal.BY_JOB:
            connection.execute(f"DELETE FROM {table.name} WHERE job_id IS NULL")
        elif table.renewal is Renewal.BY_KEY:
            key = table.key
            again = f"SELECT {key} FROM read_parquet(?)"
            connection.execute(f"DELETE FROM {table.name} WHERE {key} IN ({again})", [files])
        elif table.renewal is Renewal.WHOLE:
            connection.execute(f"DELETE FROM {table.name}")
        connection.execute(f"INSERT INTO {table.name} SELECT {_shown(table)} FROM read_parquet(?)", [files])
    if moved:
        connection.execute("DROP TABLE moved")


def _jobs_in_question(export: Path, note: ExportNote, base: Base) -> str:
    """Return the query for the jobs that changed since the base, or of which it found something."""
    renewals = range(base.refresh_no + 1, note.refresh_no + 1)
    files = [file for no in renewals for file in _files(export, note.of_refresh(CHANGED_JOBS, no))]
    listed = ", ".join(f"'{finding}'" for finding in SETTLED_BY_ROWS)
    found = f"SELECT job_id FROM account_findings WHERE finding IN ({listed})"
    quoted = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    changed = [f"SELECT job_id FROM read_parquet([{quoted}])"] if files else []
    return " UNION ".join([found, *changed])


def _files(export: Path, parts: Sequence[Part]) -> list[str]:
    return [str(export / part.file) for part in parts]


def _shown(table: ExportedTable) -> str:
    columns = [
        f"{column}::JSON AS {column}" if column in JSON_COLUMNS else f'"{column}"' for column in table.names
    ]
    return ", ".join([*columns, "total"] if table.name == "items" else columns)


def _load_account(
    connection: duckdb.DuckDBPyConnection,
    note: ExportNote,
    facts: Facts,
    document: Mapping[str, Any],
    limits: ServiceLimits,
) -> None:
    """Put the account of this moment in the place of any earlier one."""
    for table in ("report_info", "active_principals", "account_findings"):
        connection.execute(f"DELETE FROM {table}")
    connection.execute(
        "INSERT INTO report_info VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            facts.snapshot.seq,
            facts.snapshot.as_of,
            facts.snapshot.cutoff or facts.snapshot.as_of,
            limits.time_zone,
            document["state"],
            document["gate"],
            json.dumps(document, ensure_ascii=False),
            note.export_id,
            note.refresh_no,
        ],
    )
    for principal in sorted(limits.principals):
        connection.execute("INSERT INTO active_principals VALUES (?)", [principal])
    # As one Arrow table: a row-wise insert of many findings takes a millisecond each.
    connection.register("found", _found(facts))
    connection.execute("INSERT INTO account_findings SELECT * FROM found")
    connection.unregister("found")


def _found(facts: Facts) -> Any:
    """Return what the account has to answer for as an Arrow table."""
    lines = {name: [getattr(line, name) for line in facts.open_findings] for name in FINDING_COLUMNS}
    due = lines["deadline_at"]
    lines["deadline_at"] = [None if at is None else (at - EPOCH) // MICROSECOND for at in due]
    kinds = {"deadline_at": "time", "owned": "yes_no", "answered": "yes_no"}
    return pa.table({name: column_of(line, kinds.get(name, "text")) for name, line in lines.items()})
