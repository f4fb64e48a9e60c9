"""CSV and JSON lines as rows; errors name the line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import (
    FIELD_INVALID,
    FIELD_MISSING,
    FIELD_UNKNOWN,
    MANIFEST_DUPLICATE_KEY,
    MANIFEST_TOO_LARGE,
)
from receipt_pipeline.intake.strict_json import decode_text, parse_strict, part

DELIMITERS = (",", ";", "\t")
LIMIT_COLUMNS = ("max_queue_age_s", "processing_timeout_s", "result_retention_s", "max_attempts")
EFFECT_COLUMNS = ("notification", "review_tasks")
NUMBER_COLUMNS = frozenset({"size_bytes", "bytes", *LIMIT_COLUMNS})
REQUIRED_COLUMNS = (("idempotency_key", "key"), ("uri", "file"), ("sha256",))
COLUMNS = frozenset(
    {"idempotency_key", "key", "uri", "file", "sha256", "size_bytes", "bytes", "media_type", "item_id"}
    | {"release", "reconciliation_cutoff", "operation_class", "note", "contract"}
    | {*LIMIT_COLUMNS, *EFFECT_COLUMNS}
)
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class TableShape:
    """Known columns, required ones (one of each group), and those with whole numbers."""

    known: frozenset[str]
    required: tuple[tuple[str, ...], ...]
    numbers: frozenset[str]


BATCH_SHAPE = TableShape(COLUMNS, REQUIRED_COLUMNS, NUMBER_COLUMNS)


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row before validation: its value and place, or why it cannot be read."""

    pointer: str
    value: Any
    line: int | None = None
    refusal: InputRefused | None = None


def read_json_lines(data: bytes, rows_max: int) -> Iterator[RawRow]:
    """Yield one row per line that is not blank; a line that is not JSON refuses only itself."""
    lines = decode_text(data).split("\n")
    for at, (line, text) in enumerate((line, text) for line, text in enumerate(lines, 1) if text.strip()):
        _bounded(at + 1, rows_max)
        pointer = f"/rows/{at}"
        try:
            yield RawRow(pointer, parse_strict(text, pointer=pointer, line=line), line)
        except InputRefused as refusal:
            yield RawRow(pointer, None, line, refusal)


def read_csv(data: bytes, rows_max: int, shape: TableShape = BATCH_SHAPE) -> Iterator[RawRow]:
    """Yield the rows of a CSV with a header; byte-order mark, CRLF, and `;` or tab are supported.

    Raises:
        InputRefused: for a header with missing, repeated or unknown columns, or text that is not CSV.
    """
    text = decode_text(data)
    header_text = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=header_text.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, shape)
        at = 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            _bounded(at + 1, rows_max)
            yield _from_cells(f"/rows/{at}", header, cells, reader.line_num, shape)
            at += 1
    except csv.Error as error:
        raise InputRefused(FIELD_INVALID, pointer="/rows", line=reader.line_num, expected="CSV") from error


def _check_header(header: list[str], shape: TableShape) -> None:
    for name in header:
        if header.count(name) > 1:
            raise InputRefused(MANIFEST_DUPLICATE_KEY, pointer="/header" + part(name))
        if name not in shape.known:
            raise InputRefused(FIELD_UNKNOWN, pointer="/header" + part(name))
    for names in shape.required:
        if not set(names) & set(header):
            raise InputRefused(FIELD_MISSING, pointer="/header" + part(names[0]))


def _from_cells(pointer: str, header: list[str], cells: list[str], line: int, shape: TableShape) -> RawRow:
    if len(cells) > len(header):
        refusal = InputRefused(FIELD_INVALID, pointer=pointer, cells=len(cells), columns=len(header))
        return RawRow(pointer, None, line, refusal)
    given: dict[str, Any] = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
    for name in shape.numbers & given.keys():
        if _NUMBER.fullmatch(given[name]):
            given[name] = int(given[name])
    return RawRow(pointer, _nested(given), line)


def _nested(given: dict[str, Any]) -> dict[str, Any]:
    """Put the flat columns of limits and effects where JSON has them."""
    for section, names in (("limits", LIMIT_COLUMNS), ("effects", EFFECT_COLUMNS)):
        found = {name: given.pop(name) for name in names if name in given}
        if found:
            given[section] = found
    return given


def _bounded(rows: int, rows_max: int) -> None:
    if rows > rows_max:
        raise InputRefused(MANIFEST_TOO_LARGE, pointer="/rows", rows=rows, rows_max=rows_max)
