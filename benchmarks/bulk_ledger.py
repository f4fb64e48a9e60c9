"""Fills a migrated SQLite ledger with many jobs: copies of jobs that the product's own services ran."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import accumulate
from pathlib import Path

import sqlalchemy as sa

from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.ledger.schema import jobs as tables
from receipt_pipeline.ledger.schema.types import UtcMicros
from receipt_pipeline.reconciliation.repair import reconcile_ledger
from receipt_pipeline.reconciliation.sweep import sweep_objects
from receipt_pipeline_tests.fakes.every_outcome import every_outcome
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench

# Of a thousand jobs nearly all are read and finished; every other outcome is among them.
ORDINARY = ("plain",) * 17 + ("rejected", "expired", "canceled")
ROUND = 1_000
MANY = 50_000
APART_US = 1_000
COPIED = (
    tables.jobs,
    tables.items,
    tables.attempts,
    tables.refused_writes,
    effect_tables.effects,
    effect_tables.outbox,
    effect_tables.deliveries,
    effect_tables.consumed,
    effect_tables.review_tasks,
    effect_tables.quarantine,
    effect_tables.investigations,
    effect_tables.object_checks,
    tables.events,
)
NAMES = ("decision_id", "message_id", "delivery_id", "quarantine_id", "investigation_id", "effect_id")
NAMES += ("idempotency_key", "event_id")


def bulk_ledger(folder: Path, jobs: int) -> Path:
    """Make a ledger of about this many jobs, every outcome among them; returns its file."""
    path = folder / "ledger.db"
    clock = FakeClock()
    ledger = open_ledger(f"sqlite:///{path}", clock=clock)
    ledger.migrate()
    bench = ReconcileBench.build(ledger, clock, folder / "bench")
    made = every_outcome(bench) | {"plain": bench.finished(key="plain", items=1)["job_id"]}
    sweep_objects(bench.services)
    reconcile_ledger(bench.services)
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE made (name TEXT PRIMARY KEY, job_id TEXT)")
        connection.executemany("INSERT INTO made VALUES (?, ?)", sorted(made.items()))
        connection.commit()
    add_jobs(path, jobs, 1)
    return path


def add_jobs(path: Path, jobs: int, first: int) -> None:
    """Add copies numbered from `first` on."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        journal = "OFF" if jobs > MANY else "WAL"
        for pragma in (f"journal_mode={journal}", "synchronous=OFF", "cache_size=-400000", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        made = dict(connection.execute("SELECT name, job_id FROM made"))
        copied = "job_id IN (SELECT job_id FROM made)"
        counts = dict(connection.execute(f"SELECT job_id, count(*) FROM events WHERE {copied} GROUP BY job_id"))
        newest = connection.execute("SELECT max(seq) FROM events").fetchone()[0]
        connection.execute("CREATE TEMP TABLE copies (k INTEGER PRIMARY KEY, source TEXT, job_id TEXT, latest INTEGER)")
        plan = [(k, made[name]) for k, name in _plan(jobs, first, sorted(made))]
        latest = accumulate((counts[source] for _, source in plan), initial=newest)
        next(latest)
        rows = ((k, source, f"job_{k:026d}", seq) for (k, source), seq in zip(plan, latest, strict=True))
        connection.executemany("INSERT INTO copies VALUES (?, ?, ?, ?)", rows)
        with _without_indexes(connection, many=jobs > MANY):
            for table in COPIED:
                connection.execute(_copy(connection, table))
        connection.execute("COMMIT")


@contextmanager
def _without_indexes(connection: sqlite3.Connection, *, many: bool) -> Iterator[None]:
    """Rebuild the indexes once the rows are there: sorting many rows together is far cheaper."""
    wanted = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    indexes = connection.execute(wanted).fetchall() if many else []
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    yield
    for _, made_by in indexes:
        connection.execute(made_by)


def _plan(jobs: int, first: int, names: list[str]) -> Iterator[tuple[int, str]]:
    """Say of each number which job is copied: every outcome once in a round, ordinary ones else."""
    for k in range(first, first + jobs):
        place = k % ROUND
        yield k, names[place] if place < len(names) else ORDINARY[place % len(ORDINARY)]


def _copy(connection: sqlite3.Connection, table: sa.Table) -> str:
    """Return the statement that copies a table's rows under the copies' ids, times apart."""
    source = f"source_{table.name}"
    connection.execute(
        f"CREATE TEMP TABLE {source} AS SELECT * FROM {table.name} WHERE job_id IN (SELECT job_id FROM made)"
    )
    connection.execute(f"CREATE INDEX temp.of_{source} ON {source} (job_id)")
    numbered = [column for column in table.primary_key.columns if isinstance(column.type, sa.Integer)]
    left = {column.name for column in numbered if len(table.primary_key.columns) == 1} | {"written_in"}
    columns = [column for column in table.columns if column.name not in left]
    naming = {column.name for column in columns if _names_its_job(connection, source, column)}
    shown = ", ".join(_copied(column, names_job=column.name in naming) for column in columns)
    names = ", ".join(f'"{column.name}"' for column in columns)
    order = ", ".join(f"t.{column.name}" for column in table.primary_key.columns)
    return (
        f"INSERT INTO {table.name} ({names}) SELECT {shown} FROM copies AS c"
        f" CROSS JOIN {source} AS t ON t.job_id = c.source ORDER BY c.k, {order}"
    )


def _names_its_job(connection: sqlite3.Connection, source: str, column: sa.Column[object]) -> bool:
    """Check whether a row of the source names its job in this column; the others are copied as they are."""
    query = f'SELECT max(instr("{column.name}", job_id)) FROM {source}'
    return isinstance(column.type, sa.String | sa.JSON) and bool(connection.execute(query).fetchone()[0])


def _copied(column: sa.Column[object], *, names_job: bool) -> str:
    own = f't."{column.name}"'
    if column.name in ("job_id", "latest_seq"):
        return {"job_id": "c.job_id", "latest_seq": "c.latest"}[column.name]
    if isinstance(column.type, UtcMicros):
        return f"{own} + c.k * {APART_US}"
    renamed = f"replace({own}, c.source, c.job_id)" if names_job else own
    if column.name not in NAMES or not isinstance(column.type, sa.String):
        return renamed
    return f"CASE WHEN instr({own}, c.source) THEN {renamed} ELSE {own} || '-' || c.k END"
