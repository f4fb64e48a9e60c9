"""Watches every commit on SQLite: what it changed of the exported rows must be found again by a mark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from receipt_pipeline.accounting.refresh import TABLES
from receipt_pipeline.ledger.changes import LedgerMark, changed_rows, is_mark_of, read_mark
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction

Rows = dict[tuple[Any, ...], tuple[Any, ...]]


class ChangeWatch:
    """Compares the exported rows before and after each commit with what `changed_rows` would read again."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[LedgerMark, dict[str, Rows]]] = {}
        self._lock = threading.Lock()
        self._transaction = Ledger.transaction
        self._execute = LedgerTransaction.execute
        self._by_hand = False
        self.missed: list[str] = []

    @contextmanager
    def transaction(self, ledger: Ledger) -> Iterator[LedgerTransaction]:
        watched = ledger.engine.dialect.name == "sqlite" and self._lock.acquire(blocking=False)
        try:
            if watched:
                self._look(ledger)
            with self._transaction(ledger) as tx:
                yield tx
            if watched:
                self._look(ledger)
        finally:
            if watched:
                self._lock.release()

    def execute(self, tx: LedgerTransaction, *given: Any) -> sa.CursorResult[Any]:
        """Stand in for LedgerTransaction.execute; what a test writes by hand is no command of the ledger."""
        caller = str(sys._getframe(2).f_globals.get("__name__"))
        self._by_hand |= caller.startswith("receipt_pipeline_tests.")
        return self._execute(tx, *given)

    def _look(self, ledger: Ledger) -> None:
        place = str(ledger.engine.url)
        with ledger.reading() as tx:
            if not sa.inspect(tx._connection).has_table("object_checks"):
                return
            now = {table.name: self._rows(tx, table) for table in TABLES}
            mark, before = self._seen.get(place, (None, {}))
            # A ledger that did not go on from the mark is read whole, and tells nothing of changes.
            if mark is not None and not self._by_hand and is_mark_of(tx, mark):
                for table in TABLES:
                    self._compare(tx, table, mark, before[table.name], now[table.name])
            self._seen[place], self._by_hand = (read_mark(tx), now), False

    def _compare(self, tx: LedgerTransaction, table: Any, mark: LedgerMark, before: Rows, now: Rows) -> None:
        self.missed += [f"{table.name} {key} is gone" for key in before.keys() - now.keys()]
        changed = {key for key, row in now.items() if before.get(key) != row}
        if changed:
            keys = sa.select(*table.source.primary_key.columns).where(changed_rows(table.source, mark))
            found = {tuple(row) for row in self._execute(tx, keys)}
            for key in changed - found:
                names = [column.name for column in table.columns]
                pairs = zip(names, before.get(key, now[key]), now[key], strict=True)
                differ = [name for name, old, new in pairs if old != new]
                self.missed.append(f"{table.name} {key} changed without a word: {differ or 'it is new'}")

    def _rows(self, tx: LedgerTransaction, table: Any) -> Rows:
        order = table.source.primary_key.columns
        keys = len(order)
        found = self._execute(tx, sa.select(*order, *(column.read for column in table.columns)))
        return {tuple(row[:keys]): tuple(row[keys:]) for row in found}
