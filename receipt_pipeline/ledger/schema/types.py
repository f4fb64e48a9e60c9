"""Column types that are equal on both databases."""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types
from sqlalchemy.ext.compiler import compiles

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)


class UtcMicros(types.TypeDecorator[dt.datetime]):
    """An aware UTC time as integer microseconds since 1970: exact, sortable, alike everywhere."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: Any) -> int | None:
        """Return microseconds. Raises ValueError on a naive time."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("naive time")
        return (value - EPOCH) // MICROSECOND

    def process_result_value(self, value: int | None, dialect: Any) -> dt.datetime | None:
        """Return the aware UTC time."""
        return None if value is None else EPOCH + value * MICROSECOND


# SQLite numbers rows by itself only in a plain INTEGER primary key.
Sequence64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class WritingTransaction(sa.sql.expression.ColumnElement[int]):
    """The number of the transaction that writes the row, where transactions may commit in any order."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(WritingTransaction)
def _no_number(_element: Any, _compiler: Any, **_: Any) -> str:
    # SQLite's writers go one after another: what an event's number says is enough.
    return "NULL"


@compiles(WritingTransaction, "postgresql")
def _its_number(_element: Any, _compiler: Any, **_: Any) -> str:
    return "((pg_current_xact_id())::text)::bigint"
