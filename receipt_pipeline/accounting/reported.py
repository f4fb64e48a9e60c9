"""Asks the tables of a report what the ledger's own queries ask the ledger: one definition, two engines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import duckdb
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from receipt_pipeline.accounting.exported import EXPORTED, ExportedTable, exported_name
from receipt_pipeline.ledger.effect_tables import tombstones
from receipt_pipeline.ledger.engine import LedgerTransaction

ASKED = "asked"
# DuckDB reads what is written for PostgreSQL; named parameters keep it from doubling percent signs.
_DIALECT = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]


class ReportedLedger(LedgerTransaction):
    """A report in the place of the ledger from which it was made: the same rows, read by columns.

    Columns that are not exported are there and empty. What changes without an event is given: the
    moment, and the tombstones of results whose removal is not recorded yet.
    """

    def __init__(
        self, report: duckdb.DuckDBPyConnection, *, now: dt.datetime, buried: Sequence[str] = ()
    ) -> None:
        self._moment = now
        self._report = report.cursor()
        [(name,)] = self._report.execute("SELECT current_database()").fetchall()
        self._of_report = f'"{name}".main'
        _show_as_ledger(self._report, self._of_report, buried)

    def close(self) -> None:
        """Take the ledger's names away again; the report is as it was."""
        self._report.execute(f"USE {self._of_report}")
        self._report.execute(f"DETACH {ASKED}")
        self._report.close()

    @property
    def dialect(self) -> sa.Dialect:
        """Return the dialect that the queries are written in."""
        return _DIALECT

    def now(self) -> dt.datetime:
        """Return the moment at which the ledger was read."""
        return self._moment

    def execute(self, statement: sa.Executable, parameters: Any = None) -> sa.CursorResult[Any]:
        """Refuse: a report is asked for rows, and never changed."""
        raise AssertionError("a report is only read")

    def rows(self, statement: sa.Executable, parameters: Any = None) -> list[dict[str, Any]]:
        """Run a query of the ledger and return its rows as dictionaries."""
        assert isinstance(statement, sa.Select | sa.CompoundSelect)
        compiled = statement.params(parameters or {}).compile(
            dialect=_DIALECT, compile_kwargs={"literal_binds": True}
        )
        found = self._report.execute(str(compiled)).fetchall()
        read = [
            (column.name, column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None))
            for column in statement.selected_columns
        ]
        return [
            {
                name: value if process is None else process(value)
                for (name, process), value in zip(read, row, strict=True)
            }
            for row in found
        ]

    def row(self, statement: sa.Executable, parameters: Any = None) -> dict[str, Any] | None:
        """Run a query and return its first row, or None."""
        return next(iter(self.rows(statement, parameters)), None)

    def scalar(self, statement: sa.Executable, parameters: Any = None) -> Any:
        """Run a query and return the first column of its first row."""
        found = self.row(statement, parameters)
        return None if found is None else next(iter(found.values()))


def _show_as_ledger(report: duckdb.DuckDBPyConnection, place: str, buried: Sequence[str]) -> None:
    """Let the ledger's names stand for the report's tables, in a database of this connection's memory."""
    report.execute(f"ATTACH ':memory:' AS {ASKED}")
    report.execute(f"USE {ASKED}.main")
    for table in EXPORTED:
        shown = ", ".join(_as_in_ledger(table, column) for column in table.source.columns)
        report.execute(f'CREATE VIEW "{table.source.name}" AS SELECT {shown} FROM {place}."{table.name}"')
    keys = "SELECT unnest(?::VARCHAR[]) AS object_key"
    report.execute(f"CREATE TABLE {tombstones.name} AS {keys}", [list(buried)])


def _as_in_ledger(table: ExportedTable, column: sa.Column[Any]) -> str:
    """Return a column as the ledger has it: times are microseconds, what is not exported is empty."""
    name = exported_name(column.name)
    if name not in table.names:
        return f'NULL AS "{column.name}"'
    shown, kind = f'"{name}"', table.kinds[table.names.index(name)]
    return f'epoch_us({shown}) AS "{column.name}"' if kind == "time" else f'{shown} AS "{column.name}"'
