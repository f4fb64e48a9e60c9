"""Writes rows of the ledger as parts of an export: Arrow in chunks, Parquet in files of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from receipt_pipeline.accounting.arrow import MONEY, amounts_of, column_of
from receipt_pipeline.accounting.exported import ExportedTable

PART_ROWS = 200_000


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
    arrays = [column_of(columns[name], kind) for name, kind in zip(table.names, table.kinds, strict=True)]
    if "total" in schema.names:
        arrays.append(amounts_of(columns["total_minor"], columns["total_currency"]))
    return pa.Table.from_arrays(arrays, schema=schema)
