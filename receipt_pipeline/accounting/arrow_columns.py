"""Lays values of the ledger out as Arrow columns, for the export and the report.

`pa.array` looks for pandas whatever it is given, and importing pandas costs a third of a small refresh;
so the columns are made of the buffers that Arrow documents.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from receipt_pipeline.core.money import minor_digits

INT64_MAX = 2**63 - 1
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
    if kind in ("whole", "time"):
        return _wholes([None if value is None else as_int64(value) for value in values], TYPES[kind])
    if kind == "yes_no":
        return _yes_nos(values)
    # A JSON null that the database stored as text is no value; the word in a name of somebody's is one.
    absent = (None, "null") if kind == "json" else (None,)
    return _texts([None if value in absent else str(value) for value in values])


def amounts_of(minors: Sequence[Any], currencies: Sequence[str | None]) -> Any:
    """Return a column of amounts in major units, exact to a thousandth."""
    amounts = [as_amount(minor, currency) for minor, currency in zip(minors, currencies, strict=True)]
    thousandths = (0 if amount is None else int(amount.scaleb(MONEY.scale)) for amount in amounts)
    data = b"".join(number.to_bytes(_MONEY_BYTES, "little", signed=True) for number in thousandths)
    return pa.Array.from_buffers(MONEY, len(amounts), [_valid(amounts), pa.py_buffer(data)])


def as_amount(minor: Any, currency: str | None) -> Decimal | None:
    """Return an amount in major units, exactly; None where there is no amount."""
    number = None if minor is None else as_int64(minor)
    return None if number is None else Decimal(number).scaleb(-minor_digits(currency))


def as_int64(value: Any) -> int | None:
    """Return an integer that Arrow can hold; an absurd reading of a scan must not stop the report."""
    number = int(value)
    return number if abs(number) <= INT64_MAX else None


def _wholes(numbers: Sequence[int | None], kind: Any) -> Any:
    data = array("q", [number or 0 for number in numbers])
    return pa.Array.from_buffers(kind, len(numbers), [_valid(numbers), pa.py_buffer(data)])


def _yes_nos(values: Sequence[Any]) -> Any:
    return pa.Array.from_buffers(pa.bool_(), len(values), [_valid(values), _bits(map(bool, values))])


def _texts(texts: Sequence[str | None]) -> Any:
    joined = "".join(text for text in texts if text)
    data = joined.encode()
    if len(data) == len(joined):
        lengths = [len(text) if text else 0 for text in texts]
    else:
        lengths = [len(text.encode()) if text else 0 for text in texts]
    ends = array("i", accumulate(lengths, initial=0))
    buffers = [_valid(texts), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def _valid(values: Sequence[Any]) -> Any:
    """Return the bits that say where there is a value; None where that is everywhere."""
    return _bits(value is not None for value in values) if None in values else None


def _bits(flags: Iterable[bool]) -> Any:
    return pa.py_buffer(np.packbits(np.fromiter(flags, bool), bitorder="little"))
