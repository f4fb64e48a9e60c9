"""What of the ledger is exported: tables, columns, and what is left out and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from receipt_pipeline.accounting.arrow import TYPES
from receipt_pipeline.ledger.changes import ALWAYS_WHOLE
from receipt_pipeline.ledger.schema.admin import alert_deliveries, alerts, imported_jobs
from receipt_pipeline.ledger.schema.effects import (
    consumed,
    deliveries,
    effects,
    investigations,
    object_checks,
    outbox,
    quarantine,
    review_tasks,
)
from receipt_pipeline.ledger.schema.jobs import (
    aliases,
    attempts,
    events,
    items,
    jobs,
    refused_writes,
    releases,
    submissions,
)
from receipt_pipeline.ledger.schema.types import UtcMicros

JSON_COLUMNS = frozenset({"data", "evidence", "digests", "reasons", "facts", "warnings", "detail"})


class Renewal(StrEnum):
    """What the rows of a refresh take the place of."""

    BY_JOB = "by job"  # every row of the jobs that changed, and every row of no job
    BY_KEY = "by key"  # the rows with the same key
    WHOLE = "whole"  # all rows
    APPENDED = "appended"  # nothing: a row is written once


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """One table of the export.

    Attributes:
        source: the table of the ledger.
        columns: what is read from the ledger, in order, under the names of the export.
        kinds: per column how its values become Arrow: `text`, `json`, `whole`, `yes_no` or `time`.
    """

    name: str
    source: sa.Table
    columns: tuple[sa.ColumnElement[Any], ...]
    order: tuple[sa.ColumnElement[Any], ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def renewal(self) -> Renewal:
        """Return what the rows of a refresh take the place of."""
        if self.source is events:
            return Renewal.APPENDED
        if self.source.name in ALWAYS_WHOLE:
            return Renewal.WHOLE
        return Renewal.BY_KEY if self.source in (submissions, object_checks) else Renewal.BY_JOB

    @property
    def key(self) -> str:
        """Return the one column that names a row of a table that is renewed by key."""
        [column] = self.source.primary_key.columns
        return exported_name(column.name)

    @property
    def shown(self) -> str:
        """Return what the report selects from the table's parts."""
        columns = [
            f"{column}::JSON AS {column}" if column in JSON_COLUMNS else f'"{column}"'
            for column in self.names
        ]
        return ", ".join([*columns, "total"] if self.name == "items" else columns)

    @property
    def schema(self) -> Any:
        """Return the Arrow schema."""
        return pa.schema(
            [pa.field(name, TYPES[kind]) for name, kind in zip(self.names, self.kinds, strict=True)]
        )


def exported_name(name: str) -> str:
    """Return a column's name in the export: `at` is a word of DuckDB's own and is spelt out."""
    return "recorded_at" if name == "at" else name


def _kind(column: sa.Column[Any]) -> str:
    if isinstance(column.type, UtcMicros):
        return "time"
    if isinstance(column.type, sa.Boolean):
        return "yes_no"
    if isinstance(column.type, sa.JSON):
        return "json"
    return "whole" if isinstance(column.type, sa.Integer) else "text"


def _read(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    if isinstance(column.type, sa.JSON):
        return sa.cast(column, sa.Text)
    if isinstance(column.type, UtcMicros):
        return sa.type_coerce(column, sa.BigInteger)
    return column


def _table(table: sa.Table, *, name: str = "", without: str = "") -> ExportedTable:
    """Take a table as it is, less some columns."""
    left_out = set(without.split())
    assert left_out <= set(table.c.keys()), left_out - set(table.c.keys())
    kept = [column for column in table.c if column.name not in left_out]
    return ExportedTable(
        name=name or table.name,
        source=table,
        columns=tuple(_read(column) for column in kept),
        order=tuple(table.primary_key.columns),
        names=tuple(exported_name(column.name) for column in kept),
        kinds=tuple(_kind(column) for column in kept),
    )


def _items() -> ExportedTable:
    """Items without what was read from the scan, except the total: that is what is summed."""
    plain = _table(items, without="fields evidence label begun_epoch begun_at")
    total = items.c.fields["total"]
    return ExportedTable(
        name=plain.name,
        source=items,
        columns=(*plain.columns, total["minor"].as_string(), total["currency"].as_string()),
        order=plain.order,
        names=(*plain.names, "total_minor", "total_currency"),
        kinds=(*plain.kinds, "whole", "text"),
    )


# Leases, heartbeats and reservations change without an event, and a report of them would be old at once.
_JOB_LEASE = "lease_epoch lease_owner lease_expires_at wave_id retry_at status_shown_seq"

EXPORTED: tuple[ExportedTable, ...] = (
    _table(jobs, without=f"fingerprint_document {_JOB_LEASE}"),
    _items(),
    _table(attempts),
    _table(effects),
    _table(outbox, name="messages", without="payload state sends due_at settled_at"),
    _table(deliveries),
    _table(review_tasks),
    _table(consumed),
    _table(object_checks, name="output_checks", without="latest_seq"),
    _table(investigations, without="tenant"),
    _table(quarantine),
    _table(refused_writes),
    _table(submissions, without="place label stored facts"),
    _table(releases),
    _table(aliases),
    _table(alerts),
    _table(alert_deliveries),
    _table(imported_jobs),
    _table(events, without="written_in"),
)
