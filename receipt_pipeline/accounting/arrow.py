"""Rows as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from receipt_pipeline.core.money import minor_digits

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
# A DECIMAL wide enough for any amount a scan can be misread into.
MONEY = pa.decimal128(24, 3)
TIME = pa.timestamp("us", tz="UTC")
TYPES = {"text": pa.string(), "json": pa.string(), "whole": pa.int64(), "yes_no": pa.bool_(), "time": TIME}
_MONEY_BYTES = 16


def column_of(values: Sequence[Any], kind: str) -> Any:
    """Return one column of a table; None is no value.

    Args:
        kind: `text`, `json`, `whole`, `yes_no`, or `time` in microseconds since 1970.
    """
    # A JSON null that the database stored as text is no value; the word in a name of somebody's is one.
    if kind == "json" and "null" in values:
        values = [None if value == "null" else value for value in values]
    absent = values.count(None)
    if absent == len(values):
        return pa.nulls(absent, TYPES[kind])
    if kind in ("text", "json"):
        return _texts(values, any_absent=absent > 0)
    if kind == "yes_no":
        buffers = [_valid(values) if absent else None, _bits(map(bool, values))]
        return pa.Array.from_buffers(TYPES[kind], len(values), buffers)
    return _wholes(values, TYPES[kind], any_absent=absent > 0)


def amounts_of(minors: Sequence[Any], currencies: Sequence[str | None]) -> Any:
    """Return a column of amounts in major units, exact to a thousandth."""
    amounts = [thousandths_of(*pair) for pair in zip(minors, currencies, strict=True)]
    data = b"".join((amount or 0).to_bytes(_MONEY_BYTES, "little", signed=True) for amount in amounts)
    return pa.Array.from_buffers(MONEY, len(amounts), [_valid(amounts), pa.py_buffer(data)])


def thousandths_of(minor: Any, currency: str | None) -> int | None:
    """Return an amount in thousandths of a major unit, exactly; None where there is no amount."""
    number = as_int64(minor)
    return None if number is None else number * 10 ** (MONEY.scale - minor_digits(currency))


def as_int64(value: Any) -> int | None:
    """Return an integer that Arrow can hold; an absurd reading of a scan must not stop the report."""
    if value is None:
        return None
    number = int(value)
    return number if abs(number) <= INT64_MAX else None


def _wholes(values: Sequence[Any], kind: Any, *, any_absent: bool) -> Any:
    try:
        data = np.fromiter((value or 0 for value in values) if any_absent else values, np.int64, len(values))
    except (OverflowError, TypeError, ValueError):  # Numbers as text, or beyond what is to be held.
        values = [as_int64(value) for value in values]
        any_absent = None in values
        data = np.fromiter((value or 0 for value in values), np.int64, len(values))
    return pa.Array.from_buffers(
        kind, len(values), [_valid(values) if any_absent else None, pa.py_buffer(data)]
    )


def _texts(values: Sequence[Any], *, any_absent: bool) -> Any:
    valid = _valid(values) if any_absent else None
    texts = (
        ["" if value is None else str(value) for value in values] if any_absent else list(map(str, values))
    )
    joined = "".join(texts)
    data = joined.encode()
    assert len(data) <= INT32_MAX, "a chunk of rows is small enough for offsets of 32 bits"
    lengths = map(len, texts) if len(data) == len(joined) else (len(text.encode()) for text in texts)
    ends: NDArray[np.int32] = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, len(texts)), out=ends[1:])
    return pa.Array.from_buffers(pa.string(), len(texts), [valid, pa.py_buffer(ends), pa.py_buffer(data)])


def _valid(values: Sequence[Any]) -> Any:
    """Return the bits that say where there is a value."""
    return _bits(value is not None for value in values)


def _bits(flags: Iterable[bool]) -> Any:
    return pa.py_buffer(np.packbits(np.fromiter(flags, bool), bitorder="little"))
