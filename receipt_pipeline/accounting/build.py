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

from receipt_pipeline.accounting.arrow import column_of
from receipt_pipeline.accounting.export_note import ExportNote, Renewed
from receipt_pipeline.accounting.exported import EXPORTED, Renewal
from receipt_pipeline.accounting.facts import SETTLED_BY_ROWS, Earlier, Facts, read_facts
from receipt_pipeline.accounting.report import build_document
from receipt_pipeline.accounting.reported import asking_of_renewed, asking_report
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.schema.types import EPOCH, MICROSECOND

TIME_ZONE = "UTC"
# Analysts' own tools are seldom the newest: a DuckDB of this version and every later one opens the file.
READABLE_FROM = "v1.2.0"
FINDING_COLUMNS = ("finding", "job_id", "investigation_id", "owner", "deadline_at", "owned", "answered")


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
    """An earlier report that is brought up to date: where it lies, the refresh that it shows, and when."""

    path: Path
    refresh_no: int
    as_of: dt.datetime


def sql_text(name: str) -> str:
    """Return one of the SQL files of this room, whole."""
    return resources.files("receipt_pipeline.accounting").joinpath("sql", name).read_text(encoding="utf-8")


def build_file(
    path: Path,
    *,
    export: Path,
    note: ExportNote,
    moment: LedgerMoment,
    limits: Limits,
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
        renewals = note.renewed(export, after=base.refresh_no if base else 0)
        for renewed in renewals:
            _renew(connection, renewed)
        connection.execute("COMMIT")
        with ExitStack() as asking:
            asked = asking.enter_context(asking_report(connection, now=moment.now, buried=moment.buried))
            earlier = None
            # Where the clock was put back, what was overdue then may not be so now.
            if base is not None and base.as_of <= moment.now:
                changed = asking.enter_context(asking_of_renewed(connection, renewals, now=moment.now))
                earlier = Earlier(changed, _found_before(connection, renewals))
            facts = read_facts(asked, limits=limits, cutoff=cutoff, earlier=earlier)
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
        files = note.files(export, table.name, 0)
        connection.execute(f"CREATE TABLE {table.name} AS SELECT {table.shown} FROM read_parquet(?)", [files])


def _renew(connection: duckdb.DuckDBPyConnection, renewed: Renewed) -> None:
    """Let the rows of one refresh take the place of those that they renew."""
    if renewed.moved:
        connection.execute("CREATE TEMP TABLE moved AS SELECT job_id FROM read_parquet(?)", [renewed.moved])
    for table in EXPORTED:
        files = renewed.rows[table.name]
        if table.renewal is Renewal.BY_JOB and renewed.moved:
            connection.execute(f"DELETE FROM {table.name} WHERE job_id IN (SELECT job_id FROM moved)")
        if not files:
            continue
        if table.renewal is Renewal.BY_JOB:
            if table.source.c.job_id.nullable:
                connection.execute(f"DELETE FROM {table.name} WHERE job_id IS NULL")
        elif table.renewal is Renewal.BY_KEY:
            key = table.key
            again = f"SELECT {key} FROM read_parquet(?)"
            connection.execute(f"DELETE FROM {table.name} WHERE {key} IN ({again})", [files])
        elif table.renewal is Renewal.WHOLE:
            connection.execute(f"DELETE FROM {table.name}")
        connection.execute(f"INSERT INTO {table.name} SELECT {table.shown} FROM read_parquet(?)", [files])
    if renewed.moved:
        connection.execute("DROP TABLE moved")


def _found_before(connection: duckdb.DuckDBPyConnection, renewals: Sequence[Renewed]) -> dict[str, list[str]]:
    """Return what the base found of jobs that did not change since: nothing but a change takes it back."""
    found: dict[str, list[str]] = {finding: [] for finding in SETTLED_BY_ROWS}
    listed = ", ".join(f"'{finding}'" for finding in SETTLED_BY_ROWS)
    query = f"SELECT finding, job_id FROM account_findings WHERE finding IN ({listed})"
    if moved := [file for renewed in renewals for file in renewed.moved]:
        query += " AND job_id NOT IN (SELECT job_id FROM read_parquet(?))"
    for finding, job_id in connection.execute(query, [moved] if moved else []).fetchall():
        found[finding].append(job_id)
    return found


def _load_account(
    connection: duckdb.DuckDBPyConnection,
    note: ExportNote,
    facts: Facts,
    document: Mapping[str, Any],
    limits: Limits,
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
    for principal in sorted(limits.staffing.principals):
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
