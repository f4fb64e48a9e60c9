"""Exports the ledger to Parquet, in chunks, from one read snapshot."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import select

from receipt_pipeline.accounting.exported import EXPORTED, MONEY, ExportedTable
from receipt_pipeline.accounting.facts import Snapshot, read_facts
from receipt_pipeline.accounting.publish_lock import publishing, storage_faults
from receipt_pipeline.accounting.services import Accountant
from receipt_pipeline.core.money import minor_digits
from receipt_pipeline.ledger.engine import LedgerTransaction

CHUNK_ROWS = 20_000
PART_ROWS = 200_000
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What was exported: rows per table, as of which moment and event."""

    snapshot: Snapshot
    rows: Mapping[str, int]
    folder: Path


def export_ledger(accountant: Accountant) -> ExportSummary:
    """Export the whole ledger into `report/export/`, which is replaced at the end.

    Raises:
        ReportFault: STORAGE.FULL.v1; the earlier export is still there.
    """
    with publishing(accountant.report_root), storage_faults(), accountant.ledger.reading() as tx:
        facts = read_facts(tx, limits=accountant.limits)
        return export_snapshot(tx, facts.snapshot, accountant.export)


def export_snapshot(tx: LedgerTransaction, snapshot: Snapshot, folder: Path) -> ExportSummary:
    """Write every table aside and put the new folder in place of the old one."""
    building = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    try:
        rows = {table.name: _export_table(tx, table, building / table.name) for table in EXPORTED}
        note = {"seq": snapshot.seq, "as_of": snapshot.as_of.isoformat(), "rows": rows}
        (building / "export.json").write_text(json.dumps(note, indent=1) + "\n")
    except Exception:
        # On a full disk the space of a part of an export is wanted back.
        shutil.rmtree(building, ignore_errors=True)
        raise
    former = folder.with_name(f"{folder.name}.former")
    shutil.rmtree(former, ignore_errors=True)
    if folder.exists():
        folder.rename(former)
    building.rename(folder)
    shutil.rmtree(former, ignore_errors=True)
    return ExportSummary(snapshot, rows, folder)


def _export_table(tx: LedgerTransaction, table: ExportedTable, folder: Path) -> int:
    """Write one table as parts of bounded size; a table without rows is one empty part."""
    folder.mkdir(parents=True)
    query = select(*table.columns).order_by(*table.order).execution_options(yield_per=CHUNK_ROWS)
    rows = part_rows = part = 0
    schema = _written_schema(table)
    writer = pq.ParquetWriter(folder / "part-00000.parquet", schema, compression="zstd")
    try:
        for chunk in tx.execute(query).partitions(CHUNK_ROWS):
            if part_rows >= PART_ROWS:
                writer.close()
                part, part_rows = part + 1, 0
                writer = pq.ParquetWriter(folder / f"part-{part:05d}.parquet", schema, compression="zstd")
            writer.write_table(_arrow(table, chunk, schema))
            rows += len(chunk)
            part_rows += len(chunk)
    finally:
        writer.close()
    return rows


def _written_schema(table: ExportedTable) -> Any:
    if table.name != "items":
        return table.schema
    return table.schema.append(pa.field("total", MONEY))


def _arrow(table: ExportedTable, chunk: Sequence[Sequence[Any]], schema: Any) -> Any:
    columns = dict(zip(table.names, zip(*chunk, strict=True), strict=True))
    arrays = [_array(columns[name], kind) for name, kind in zip(table.names, table.kinds, strict=True)]
    if "total" in schema.names:
        pairs = zip(columns["total_minor"], columns["total_currency"], strict=True)
        arrays.append(pa.array([as_amount(minor, currency) for minor, currency in pairs], MONEY))
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Iterable[Any], kind: str) -> Any:
    if kind == "time":
        return pa.array(values, pa.int64()).cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    if kind == "whole":
        return pa.array([_whole(value) for value in values], pa.int64())
    if kind == "yes_no":
        return pa.array([None if value is None else bool(value) for value in values], pa.bool_())
    # A JSON null that the database stored as text is no value; the word in a name of somebody's is one.
    absent = (None, "null") if kind == "json" else (None,)
    return pa.array([None if value in absent else str(value) for value in values], pa.string())


def _whole(value: Any) -> int | None:
    """Return an integer that Arrow can hold; an absurd reading of a scan must not stop the report."""
    if value is None:
        return None
    number = int(value)
    return number if abs(number) <= INT64_MAX else None


def as_amount(minor: Any, currency: str | None) -> Decimal | None:
    """Return an amount in major units, exactly; None where there is no amount."""
    number = _whole(minor)
    return None if number is None else Decimal(number).scaleb(-minor_digits(currency))
