"""The plain rows that the oracle reads, and how it runs invariants over them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.jobs import metadata

Row = Mapping[str, Any]
# Yields a job id, or None, and what is wrong.
Broken = Iterator[tuple[str | None, str]]
Found = TypeVar("Found", bound="LedgerRows")
TABLES = (
    "jobs",
    "items",
    "attempts",
    "events",
    "effects",
    "outbox",
    "deliveries",
    "consumed",
    "review_tasks",
    "quarantine",
    "investigations",
    "refused_writes",
    "tombstones",
    "waves",
)
NO_OBJECTS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRows:
    """Every row of a ledger at one moment, and the digests of its stored results.

    Attributes:
        rows: rows by table, in the order of their keys.
        now: the ledger's time, in the unit of the time columns.
        second: one second in that unit.
        clock_step: how far the clock may move inside one transaction, in that unit.
        stored: digest by key of every object below `results/`.
        by_job: rows by table and job id; filled from `rows`.
    """

    rows: Mapping[str, list[Row]]
    limits: Limits
    now: Any
    second: Any
    clock_step: Any = 0
    stored: Mapping[str, str] = field(default_factory=lambda: NO_OBJECTS)
    by_job: dict[str, dict[str, list[Row]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_job: dict[str, dict[str, list[Row]]] = {}
        for table, listed in self.rows.items():
            grouped: dict[str, list[Row]] = defaultdict(list)
            for row in listed:
                grouped[row.get("job_id") or ""].append(row)
            by_job[table] = grouped
        object.__setattr__(self, "by_job", by_job)

    @property
    def jobs(self) -> list[Row]:
        """Return every job's row."""
        return self.rows["jobs"]

    def of(self, table: str, job_id: str) -> list[Row]:
        """Return a job's rows of one table, in order."""
        return self.by_job[table].get(job_id, [])


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant."""

    invariant: str
    job_id: str | None
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.job_id or 'no job'}: {self.detail}"


def read_ledger(
    ledger: Ledger, limits: Limits, *, job_id: str | None = None, stored: Mapping[str, str] = NO_OBJECTS
) -> LedgerRows:
    """Read every row of a ledger, or those of one job, in one transaction."""
    with ledger.reading() as tx:
        rows: dict[str, list[Row]] = {}
        for name in TABLES:
            table = metadata.tables[name]
            query = sa.select(table).order_by(*table.primary_key.columns)
            if job_id is not None:
                query = query.where(table.c.job_id == job_id if "job_id" in table.c else sa.false())
            rows[name] = list(tx.rows(query))
        second = dt.timedelta(seconds=1)
        return LedgerRows(rows=rows, limits=limits, now=tx.now(), second=second, clock_step=second, stored=stored)


def find_violations(found: Found, invariants: Iterable[Callable[[Found], Broken]]) -> Iterator[Violation]:
    """Yield what breaks each invariant; its name is that of its function."""
    for invariant in invariants:
        for job_id, detail in invariant(found):
            yield Violation(invariant.__name__, job_id, detail)


def difference(before: Row, after: Row) -> str:
    """Return the changed columns of a row with old and new values."""
    changed = [name for name in before if before[name] != after[name]]
    return ", ".join(f"{name}: {before[name]} -> {after[name]}" for name in changed)
