"""Writes the report's DuckDB file: a new one, or a copy of an earlier one with the changed rows replaced."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import sqlalchemy as sa
from iso4217 import Currency

from receipt_pipeline.accounting.facts import ROW_FINDINGS, Earlier, Facts, read_facts
from receipt_pipeline.accounting.report import build_document
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.money import minor_digits
from receipt_pipeline.ledger.arrow import read_batches
from receipt_pipeline.ledger.changes import ALWAYS_WHOLE, CopiedLedger, LedgerMark, changed_jobs, changed_rows
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema import admin, effects, jobs
from receipt_pipeline.ledger.schema.types import UtcMicros

# Analysts' own tools are seldom the newest: a DuckDB of this version and every later one opens the file.
READABLE_FROM = "v1.2.0"
# A DECIMAL wide enough for any amount a scan can be misread into.
MONEY = "DECIMAL(24, 3)"
# Names of databases in memory that are attached to the report while it is written.
CHANGES, ASKED = "changes", "asked"


# Where the columns of a view or table come from; those of the others are of the first table that has them.
_COLUMNS_FROM = {"unresolved_investigations": "investigations", "account_findings": "investigations"}


class Replaces(StrEnum):
    """What the rows of a refresh take the place of."""

    JOBS = "every row of the jobs that changed, and every row of no job"
    KEYS = "the rows with the same key"
    ALL = "all rows"
    NOTHING = "nothing: a row is written once"


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """One column of the report.

    Attributes:
        read: what is selected from the ledger: text, an integer or a boolean.
        type: its type in the report.
        shown: SQL that makes it of what was read.
    """

    name: str
    read: sa.ColumnElement[Any]
    type: str
    shown: str


@dataclass(frozen=True, slots=True)
class ReportTable:
    """One table of the report, and the table of the ledger whose rows it shows."""

    name: str
    source: sa.Table
    columns: tuple[ReportColumn, ...]

    @property
    def replaces(self) -> Replaces:
        """Return what the rows of a refresh take the place of."""
        if self.source is jobs.events:
            return Replaces.NOTHING
        if self.source.name in ALWAYS_WHOLE:
            return Replaces.ALL
        return Replaces.KEYS if self.source in (jobs.submissions, effects.object_checks) else Replaces.JOBS

    @property
    def types(self) -> dict[str, str]:
        """Return the types of the columns in the report by name; items have their total as an amount, too."""
        types = {column.name: column.type for column in self.columns}
        return types | {"total": MONEY} if self.source is jobs.items else types

    @property
    def definition(self) -> str:
        """Return the columns as they are created in the report."""
        return ", ".join(f'"{name}" {type_}' for name, type_ in self.types.items())

    def query(self, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        """Return the query for its rows in the ledger."""
        return sa.select(*(column.read for column in self.columns)).where(*conditions)


def _name(column: sa.Column[Any]) -> str:
    """Return the name of a column in the report: `at` is a keyword of DuckDB and is spelled out."""
    return "recorded_at" if column.name == "at" else column.name


def _column(column: sa.Column[Any]) -> ReportColumn:
    name = _name(column)
    if isinstance(column.type, UtcMicros):
        read = sa.type_coerce(column, sa.BigInteger).label(name)
        return ReportColumn(name, read, "TIMESTAMPTZ", f"make_timestamptz({name})")
    if isinstance(column.type, sa.JSON):
        # A JSON null that the database stored as text is no value.
        return ReportColumn(name, sa.cast(column, sa.Text).label(name), "JSON", f"nullif({name}, 'null')")
    if isinstance(column.type, sa.Boolean):
        return ReportColumn(name, column.label(name), "BOOLEAN", f'"{name}"')
    kind = "BIGINT" if isinstance(column.type, sa.Integer) else "VARCHAR"
    return ReportColumn(name, column.label(name), kind, f'"{name}"')


def _table(source: sa.Table, *, name: str = "", without: str = "") -> ReportTable:
    """Take a table as it is, without some columns."""
    left_out = set(without.split())
    assert left_out <= set(source.c.keys()), left_out - set(source.c.keys())
    kept = tuple(_column(column) for column in source.c if column.name not in left_out)
    return ReportTable(name or source.name, source, kept)


def _items() -> ReportTable:
    """Items without what was read from the scan, except the total: that is what is summed."""
    plain = _table(jobs.items, without="fields evidence label begun_epoch begun_at")
    total = jobs.items.c.fields["total"]
    minor = sa.cast(total["minor"].as_string(), sa.Text).label("total_minor")
    currency = sa.cast(total["currency"].as_string(), sa.Text).label("total_currency")
    read = (
        # An absurd reading of a scan must not stop the report.
        ReportColumn("total_minor", minor, "BIGINT", "TRY_CAST(total_minor AS BIGINT)"),
        ReportColumn("total_currency", currency, "VARCHAR", "total_currency"),
    )
    return ReportTable(plain.name, plain.source, (*plain.columns, *read))


# Leases, heartbeats and reservations change without an event, and a report of them would be old at once.
_JOB_LEASE = "lease_epoch lease_owner lease_expires_at wave_id retry_at status_shown_seq"

TABLES: tuple[ReportTable, ...] = (
    _table(jobs.jobs, without=f"fingerprint_document {_JOB_LEASE}"),
    _items(),
    _table(jobs.attempts),
    _table(effects.effects),
    _table(effects.outbox, name="messages", without="payload state sends due_at settled_at"),
    _table(effects.deliveries),
    _table(effects.review_tasks),
    _table(effects.consumed),
    _table(effects.object_checks, name="output_checks", without="latest_seq"),
    _table(effects.investigations, without="tenant"),
    _table(effects.quarantine),
    _table(jobs.refused_writes),
    _table(jobs.submissions, without="place label stored facts"),
    _table(jobs.releases),
    _table(jobs.aliases),
    _table(admin.alerts),
    _table(admin.alert_deliveries),
    _table(admin.imported_jobs),
    _table(jobs.events, without="written_in"),
)


@dataclass(frozen=True, slots=True)
class LedgerMoment:
    """What a report takes from the ledger besides its tables, in the same snapshot.

    Attributes:
        now: the deciding time.
        mark: what of the ledger the snapshot shows.
        alerts: rows of the active alerts.
        removed: keys of results that are being removed, and whose removal is not recorded yet.
    """

    now: dt.datetime
    mark: LedgerMark
    alerts: Sequence[Mapping[str, Any]]
    removed: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReportVersion:
    """Of which ledger, and how much of it, a report file was made.

    Attributes:
        export_id: names the full build that its refreshes started from.
        refresh_no: its newest refresh; 0 when there was none.
        shape: names the tables, columns and views it was written with.
        as_of: the deciding time when it was built.
        mark: what of the ledger it has seen.
    """

    export_id: str
    refresh_no: int
    shape: str
    as_of: dt.datetime
    mark: LedgerMark


def sql_text(name: str) -> str:
    """Return one of the SQL files of this package, whole."""
    return resources.files("receipt_pipeline.accounting").joinpath("sql", name).read_text(encoding="utf-8")


@functools.cache
def report_shape() -> str:
    """Return a digest of what decides how a report is made: tables, views, comments, queries and code."""
    shape = hashlib.sha256()
    for table in TABLES:
        shape.update(f"{table.name} {table.definition}".encode())
    # A query that changed may find more among the jobs that did not change.
    accounting = resources.files("receipt_pipeline.accounting")
    for folder in (accounting, accounting / "sql", resources.files("receipt_pipeline.ledger.invariants")):
        for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
            shape.update(file.read_bytes() if file.is_file() else b"")
    return shape.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Base:
    """An earlier report: its file, what of the ledger it has seen, and when."""

    path: Path
    mark: LedgerMark
    as_of: dt.datetime


@dataclass(frozen=True, slots=True)
class ReportWriter:
    """Writes one report file.

    Attributes:
        ledger: a snapshot of the ledger.
        version: what the file will show.
        base: the report of which a copy is refreshed; None to build all of it.
    """

    ledger: LedgerTransaction
    moment: LedgerMoment
    version: ReportVersion
    limits: Limits
    base: Base | None

    def write(self, path: Path, cutoff: dt.datetime | None = None) -> dict[str, Any]:
        """Write the file and close it with nothing left to replay; returns the report document."""
        if self.base is not None:
            shutil.copyfile(self.base.path, path)
            path.chmod(0o644)
        connection = duckdb.connect(str(path), config={"storage_compatibility_version": READABLE_FROM})
        try:
            connection.execute("SET TimeZone = 'UTC'")
            if self.base is not None:
                self._replace_changed(connection, self.base.mark)
            else:
                connection.execute("BEGIN")
                _create(connection)
                for table in TABLES:
                    _load(connection, table, self.ledger, table.query())
                connection.execute("COMMIT")
            now, removed = self.moment.now, self.moment.removed
            with ExitStack() as asking:
                tx = asking.enter_context(report_as_ledger(connection, now=now, removed=removed))
                earlier = None
                # Where the clock was put back, what was overdue then may not be so now.
                if self.base is not None and self.base.as_of <= self.moment.now:
                    changed = asking.enter_context(report_as_ledger(connection, now=now, database=CHANGES))
                    earlier = Earlier(changed, _found_before(connection))
                facts = read_facts(tx, limits=self.limits, cutoff=cutoff, earlier=earlier)
                document = build_document(tx, facts, active_alerts=self.moment.alerts)
            connection.execute("BEGIN")
            if self.base is None:
                for name in ("account.sql", "views.sql"):
                    connection.execute(sql_text(name))
                _comment(connection)
            self._load_account(connection, facts, document)
            connection.execute("COMMIT")
            connection.execute("CHECKPOINT")
        finally:
            connection.close()
        return document

    def _replace_changed(self, connection: duckdb.DuckDBPyConnection, mark: LedgerMark) -> None:
        """Put the rows that may have changed since the mark in the place of those in the file."""
        connection.execute(f"ATTACH ':memory:' AS {CHANGES}")
        _create(connection, f"{CHANGES}.main.")
        connection.execute(f"CREATE TABLE {CHANGES}.main.changed_jobs (job_id VARCHAR)")
        with read_batches(self.ledger, changed_jobs(mark)) as stream:
            connection.register("stream", stream)
            connection.execute(f"INSERT INTO {CHANGES}.main.changed_jobs SELECT DISTINCT job_id FROM stream")
            connection.unregister("stream")
        for table in TABLES:
            query = table.query(changed_rows(table.source, mark))
            _load(connection, table, self.ledger, query, f"{CHANGES}.main.")
        connection.execute("BEGIN")
        for table in TABLES:
            fresh = f"{CHANGES}.main.{table.name}"
            if condition := _replaced(table, fresh):
                connection.execute(f"DELETE FROM {table.name} WHERE {condition}")
            connection.execute(f"INSERT INTO {table.name} SELECT * FROM {fresh}")
        connection.execute("COMMIT")

    def _load_account(self, connection: duckdb.DuckDBPyConnection, facts: Facts, document: Mapping[str, Any]) -> None:
        """Put the account of this moment in the place of any earlier one."""
        for table in ("report_info", "active_principals", "account_findings"):
            connection.execute(f"DELETE FROM {table}")
        snapshot = facts.snapshot
        info = [snapshot.seq, snapshot.as_of, snapshot.cutoff or snapshot.as_of, self.limits.time_zone]
        info += [document["state"], document["gate"], json.dumps(document, ensure_ascii=False)]
        info += [self.version.export_id, self.version.refresh_no]
        connection.execute(f"INSERT INTO report_info VALUES ({', '.join('?' * len(info))})", info)
        for principal in sorted(self.limits.staffing.principals):
            connection.execute("INSERT INTO active_principals VALUES (?)", [principal])
        columns = connection.execute("DESCRIBE account_findings").fetchall()
        # By columns: a row-wise insert takes a millisecond each, and an Arrow table of them imports pandas.
        lists = ", ".join(f"unnest(?::{kind}[])" for _, kind, *_ in columns)
        found = [[getattr(line, name) for line in facts.open_findings] for name, *_ in columns]
        connection.execute(f"INSERT INTO account_findings SELECT {lists}", found)


def _create(connection: duckdb.DuckDBPyConnection, place: str = "") -> None:
    created = [f"CREATE TABLE {place}{table.name} ({table.definition})" for table in TABLES]
    connection.execute("; ".join(created))


def _load(
    connection: duckdb.DuckDBPyConnection,
    table: ReportTable,
    ledger: LedgerTransaction,
    query: sa.Select[Any],
    place: str = "",
) -> None:
    """Insert the rows of a query of the ledger."""
    shown = ", ".join(column.shown for column in table.columns)
    total = f", {_total()}" if table.source is jobs.items else ""
    with read_batches(ledger, query) as stream:
        connection.register("stream", stream)
        connection.execute(f"INSERT INTO {place}{table.name} SELECT {shown}{total} FROM stream")
        connection.unregister("stream")


def _total() -> str:
    """Return SQL for the exact total in major units; currencies have two minor digits, or are listed."""
    units = {currency.value: 10.0 ** -minor_digits(currency.value) for currency in Currency}
    cases = "".join(f" WHEN '{name}' THEN {unit:.4f}" for name, unit in units.items() if unit != 0.01)
    unit = f"(CASE total_currency{cases} ELSE 0.01 END)::DECIMAL(5, 4)"
    return f"TRY_CAST(total_minor AS BIGINT)::DECIMAL(19, 0) * {unit}"


def _replaced(table: ReportTable, fresh: str) -> str:
    """Return which rows of a table the fresh ones replace; empty for none of them."""
    if table.replaces is Replaces.JOBS:
        changed = f"job_id IN (SELECT job_id FROM {CHANGES}.main.changed_jobs)"
        return f"{changed} OR job_id IS NULL" if table.source.c.job_id.nullable else changed
    if table.replaces is Replaces.KEYS:
        [key] = table.source.primary_key.columns.keys()
        return f"{key} IN (SELECT {key} FROM {fresh})"
    return "true" if table.replaces is Replaces.ALL else ""


def _found_before(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """Return what the base found of jobs that did not change since: nothing but a change takes it back."""
    found: dict[str, list[str]] = {finding: [] for finding in ROW_FINDINGS}
    query = f"FROM account_findings ANTI JOIN {CHANGES}.main.changed_jobs USING (job_id)"
    for finding, job_id in connection.execute(f"SELECT finding, job_id {query}").fetchall():
        if finding in found:
            found[finding].append(job_id)
    return found


def _comment(connection: duckdb.DuckDBPyConnection) -> None:
    """Say what each table, view and column means, as the schema of the ledger and `comments.sql` do."""
    texts: dict[str, str] = {}
    for table in TABLES:
        connection.execute(f"COMMENT ON TABLE {table.name} IS {_quoted(table.source.comment)}")
        for column in table.source.columns:
            texts[f"{table.name}.{_name(column)}"] = str(column.comment)
            texts.setdefault(_name(column), str(column.comment))
    connection.execute(sql_text("comments.sql"))
    silent = "FROM duckdb_columns() WHERE NOT internal AND comment IS NULL ORDER BY ALL"
    query = f"SELECT table_name, column_name {silent}"
    for relation, column_name in connection.execute(query).fetchall():
        origin = _COLUMNS_FROM.get(relation, relation)
        text = texts.get(f"{origin}.{column_name}") or texts[column_name]
        connection.execute(f'COMMENT ON COLUMN {relation}."{column_name}" IS {_quoted(text)}')


def _quoted(text: str | None) -> str:
    return "'" + str(text).replace("'", "''") + "'"


@contextmanager
def report_as_ledger(
    report: duckdb.DuckDBPyConnection, *, now: dt.datetime, removed: Sequence[str] = (), database: str = ""
) -> Iterator[CopiedLedger]:
    """Query the tables of a report under the names of the ledger from which they were made.

    Columns that are not in the report are there and empty. What changes without an event is given: the
    moment, and the tombstones of results whose removal is not recorded yet.

    Args:
        database: the changes alone, with only the rows of jobs; the report by default.
    """
    connection = report.cursor()
    asked = f"{ASKED}{database}"
    try:
        [(main,)] = connection.execute("SELECT current_database()").fetchall()
        connection.execute(f"ATTACH ':memory:' AS {asked}")
        connection.execute(f"USE {asked}.main")
        views = []
        for table in TABLES:
            if database and table.replaces is not Replaces.JOBS:
                continue
            shown = ", ".join(_as_in_ledger(table, column) for column in table.source.columns)
            query = f'SELECT {shown} FROM "{database or main}".main.{table.name}'
            query += " WHERE job_id IS NOT NULL" if database else ""
            views.append(f'CREATE VIEW "{table.source.name}" AS {query}')
        connection.execute("; ".join(views))
        keys = "SELECT unnest(?::VARCHAR[]) AS object_key"
        connection.execute(f"CREATE TABLE {effects.tombstones.name} AS {keys}", [list(removed)])
        yield CopiedLedger(lambda text: connection.execute(text).fetchall(), now=now)
        connection.execute(f'USE "{main}".main')
        connection.execute(f"DETACH {asked}")
    finally:
        connection.close()


def _as_in_ledger(table: ReportTable, column: sa.Column[Any]) -> str:
    """Return a column as the ledger has it: times are microseconds, what is not in the report is empty."""
    found = next((own for own in table.columns if own.name == _name(column)), None)
    if found is None:
        return f'NULL AS "{column.name}"'
    shown = f"epoch_us({found.name})" if found.type == "TIMESTAMPTZ" else f'"{found.name}"'
    return f'{shown} AS "{column.name}"'
