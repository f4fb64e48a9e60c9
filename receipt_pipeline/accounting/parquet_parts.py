"""Writes rows of the ledger as parts of an export: Arrow in chunks, Parquet in files of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from receipt_pipeline.accounting.exported import MONEY, ExportedTable
from receipt_pipeline.core.money import minor_digits

PART_ROWS = 200_000
INT64_MAX = 2**63 - 1


def write_parts(
    table: ExportedTable, chunks: Iterable[Sequence[Sequence[Any]]], folder: Path, *, name: str
) -> list[tuple[Path, int]]:
    """Write rows as `<name>-00000.parquet` and on; returns each file with its number of rows.

    Args:
        chunks: rows over the columns of the table. Without rows there is one empty part.
    """
    folder.mkdir(parents=True, exist_ok=True)
    schema = written_schema(table)
    written: list[tuple[Path, int]] = []
    writer: Any = None
    try:
        for chunk in chunks:
            if writer is None or written[-1][1] >= PART_ROWS:
                if writer is not None:
                    writer.close()
                path = folder / f"{name}-{len(written):05d}.parquet"
                written.append((path, 0))
                writer = pq.ParquetWriter(path, schema, compression="zstd")
            writer.write_table(arrow_of(table, chunk, schema))
            written[-1] = (written[-1][0], written[-1][1] + len(chunk))
    finally:
        if writer is not None:
            writer.close()
    if not written:
        path = folder / f"{name}-00000.parquet"
        with pq.ParquetWriter(path, schema, compression="zstd"):
            written.append((path, 0))
    return written


def written_schema(table: ExportedTable) -> Any:
    """Return the schema of a table's parts: items carry their total as an amount, too."""
    if table.name != "items":
        return table.schema
    return table.schema.append(pa.field("total", MONEY))


def arrow_of(table: ExportedTable, chunk: Sequence[Sequence[Any]], schema: Any) -> Any:
    """Return rows of the ledger as an Arrow table."""
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
