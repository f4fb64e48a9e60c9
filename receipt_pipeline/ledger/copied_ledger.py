"""Asks a copy of the ledger's tables, kept by another engine, what the ledger itself is asked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from receipt_pipeline.ledger.engine import LedgerTransaction

# Named parameters keep percent signs from being doubled.
_DIALECT = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]


class CopiedLedger(LedgerTransaction):
    """A copy that is only read: the queries of the ledger, run as text that PostgreSQL would read.

    Args:
        ask: runs a query under the ledger's names and returns its rows.
        now: the moment at which the copy was made.
    """

    def __init__(self, ask: Callable[[str], Sequence[Sequence[Any]]], *, now: dt.datetime) -> None:
        self._ask = ask
        self._moment = now

    @property
    def dialect(self) -> sa.Dialect:
        """Return the dialect in which queries are written here."""
        return _DIALECT

    def now(self) -> dt.datetime:
        """Return the moment at which the copy was made."""
        return self._moment

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[Any]:
        """Refuse: a copy is asked for rows, and never changed."""
        raise AssertionError("a copy is only read")

    def rows(self, statement: sa.Executable, parameters: Any = None) -> list[dict[str, Any]]:
        """Run a query of the ledger and return its rows as dictionaries."""
        assert isinstance(statement, sa.Select | sa.CompoundSelect)
        given = statement.params(parameters or {})
        text = str(given.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True}))
        read = [
            (column.name, column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None))
            for column in statement.selected_columns
        ]
        return [
            {
                name: value if process is None else process(value)
                for (name, process), value in zip(read, row, strict=True)
            }
            for row in self._ask(text)
        ]

    def row(self, statement: sa.Executable, parameters: Any = None) -> dict[str, Any] | None:
        """Run a query and return its first row, or None."""
        return next(iter(self.rows(statement, parameters)), None)

    def scalar(self, statement: sa.Executable, parameters: Any = None) -> Any:
        """Run a query and return the first column of its first row."""
        found = self.row(statement, parameters)
        return None if found is None else next(iter(found.values()))
