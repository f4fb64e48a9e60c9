"""The ledger of a simulation: the real one over SQLite in memory, fresh per seed, every change watched."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table
from ulid import ULID

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.pins import Release
from receipt_pipeline.core.reasons import LEDGER_UNAVAILABLE
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction, engine_over
from receipt_pipeline.ledger.releases import SETUP, approve_release, move_alias
from receipt_pipeline.ledger.schema.effects import effects, outbox, review_tasks
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs, metadata
from receipt_pipeline_tests.chaos.simulator.fakes import Outside, VirtualClock
from receipt_pipeline_tests.chaos.simulator.faults import Fault, Place

RELEASE = Release(
    image_digest=digest_of("simulated image"),
    chain_revision=digest_of("simulated chain"),
    feature_contract="receipt-features/v1",
    risk_model_digest=digest_of("simulated risk model"),
    policy_revision=digest_of("simulated policy"),
)
# Per watched table: the columns whose every change is kept, old and new.
WATCHED: dict[Table, tuple[str, ...]] = {
    jobs: (
        "job_id",
        "state",
        "terminal_class",
        "reason_code",
        "result_key",
        "result_digest",
        "terminal_at",
        "settled_at",
        "lease_epoch",
        "lease_owner",
        "lease_expires_at",
        "attempts_spent",
    ),
    items: ("job_id", "ordinal", "item_class", "decision", "outcome_digest", "written_epoch", "begun_epoch", "losses"),
    attempts: ("job_id", "lease_epoch", "kind", "owner", "closed_at", "outcome"),
    effects: ("job_id", "idempotency_key", "kind", "lease_epoch", "required", "state"),
    outbox: ("job_id", "message_id", "state"),
    review_tasks: ("job_id", "decision_id", "state"),
}

CHANGE_COLUMNS = "actor, now_us, relation, before, after, state, epoch, owner, transaction_no"
# Every row of every table, by table.
Dump = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change of a watched row.

    Attributes:
        actor: who wrote; `now_us` is the ledger's time, `epoch`, `owner` and `state` are the job's after it.
        before: the watched columns as they were, None for a new row.
        transaction: counts the transactions; changes of one share its number.
    """

    number: int
    actor: str
    now_us: int
    relation: str
    before: dict[str, Any] | None
    after: dict[str, Any]
    state: str
    epoch: int
    owner: str | None
    transaction: int


class SimulatedLedger(Ledger):
    """The real ledger, whose transactions are places for faults."""

    outside: Outside
    kept: Connection
    inside: bool = False
    opened: int = 0

    @contextmanager
    def transaction(self) -> Iterator[LedgerTransaction]:
        """Open a writing transaction, or fail: before anything is written, or after it was committed."""
        self._enter("open a transaction")
        try:
            with super().transaction() as tx:
                yield tx
        finally:
            self.inside = False
        if self.outside(Place.WRITTEN, "commit") is Fault.ANSWER_LOST:
            raise LedgerUnavailable(LEDGER_UNAVAILABLE, cause="simulated")

    @contextmanager
    def reading(self) -> Iterator[LedgerTransaction]:
        """Open a reading transaction, or fail."""
        self._enter("read")
        try:
            with super().reading() as tx:
                yield tx
        finally:
            self.inside = False

    def _take_connection(self) -> Connection:
        return self.kept

    def _give_back(self, connection: Connection) -> None:
        """Keep it for the next transaction: there is never more than one."""

    def _enter(self, what: str) -> None:
        assert not self.inside, "one transaction inside another"
        if self.outside(Place.OPEN, what) is Fault.UNAVAILABLE:
            raise LedgerUnavailable(LEDGER_UNAVAILABLE, cause="simulated")
        self.inside = True
        self.opened += 1


class MemoryDatabase:
    """One connection and engine for seed after seed, so that statements are compiled once a process."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.engine = engine_over(self.connection)
        self.acting: Callable[[], str] = lambda: "setup"
        self.micros: Callable[[], int] = lambda: 0
        self.writing: Callable[[], int] = lambda: 0
        self._migrate()
        self._kept = self.engine.connect()
        self._image = sqlite3.connect(":memory:", check_same_thread=False)
        self.connection.backup(self._image)
        self._watch()

    def fresh(self, clock: VirtualClock, *, seed: int) -> SimulatedLedger:
        """Return an empty, migrated ledger with one approved release; the one before is gone."""
        # Not `deserialize`: it reopens the database, which drops the triggers on its tables.
        self._image.backup(self.connection)
        self.connection.execute("DELETE FROM temp.changes")
        ledger = SimulatedLedger(self.engine, clock=clock, numbers=_numbers(seed))
        ledger.kept = self._kept
        self.writing = lambda: ledger.opened
        return ledger

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return every row of a table in the order in which it was written; times in microseconds."""
        cursor = self.connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def dump(self) -> Dump:
        """Return every row of every table: two equal dumps mean that nothing at all happened."""
        return {table.name: self.rows(table.name) for table in metadata.sorted_tables}

    def changes_so_far(self) -> int:
        """Return the number of the newest change."""
        newest = self.connection.execute("SELECT ifnull(max(number), 0) FROM temp.changes").fetchone()
        return int(newest[0])

    def changes(self) -> list[Change]:
        """Return every committed change of the watched rows, in order."""
        rows = self.connection.execute(f"SELECT number, {CHANGE_COLUMNS} FROM changes ORDER BY number")
        return [
            Change(number, actor, now_us, relation, json.loads(before) if before else None, json.loads(after), *job)
            for number, actor, now_us, relation, before, after, *job in rows
        ]

    def _migrate(self) -> None:
        ledger = Ledger(self.engine, clock=VirtualClock(), numbers=_numbers(0))
        ledger.migrate()
        with ledger.transaction() as tx:
            release_id = approve_release(tx, RELEASE, name="simulated", approved_by=SETUP)
            move_alias(tx, alias="production", release_id=release_id, moved_by=SETUP)

    def _watch(self) -> None:
        """Let triggers of this connection alone keep what changes, in the transaction that changes it."""
        self.connection.create_function("acting", 0, lambda: self.acting())
        self.connection.create_function("clock_us", 0, lambda: self.micros())
        self.connection.create_function("writing", 0, lambda: self.writing())
        self.connection.execute(f"CREATE TEMP TABLE changes (number INTEGER PRIMARY KEY, {CHANGE_COLUMNS})")
        for table, columns in WATCHED.items():
            self._watch_table(table.name, columns)

    def _watch_table(self, name: str, columns: tuple[str, ...]) -> None:
        def picture(row: str) -> str:
            pairs = ", ".join(f"'{column}', {row}.{column}" for column in columns)
            return f"json_object({pairs})"

        differs = " OR ".join(f"old.{column} IS NOT new.{column}" for column in columns)
        job = "(SELECT {} FROM main.jobs WHERE job_id = new.job_id)"
        # The ledger's own time: its clock, never before the newest event.
        now = "max(clock_us(), ifnull((SELECT at FROM main.events ORDER BY seq DESC LIMIT 1), 0))"
        for event, before, when in (("INSERT", "NULL", "1"), ("UPDATE", picture("old"), differs)):
            self.connection.execute(
                f"CREATE TEMP TRIGGER watch_{name}_{event} AFTER {event} ON main.{name} WHEN {when} BEGIN"
                f" INSERT INTO changes ({CHANGE_COLUMNS})"
                f" VALUES (acting(), {now}, '{name}', {before}, {picture('new')},"
                f" {job.format('state')}, {job.format('lease_epoch')}, {job.format('lease_owner')},"
                " writing()); END"
            )


def _numbers(seed: int) -> Callable[[dt.datetime], ULID]:
    """Return a source of numbers that count up, so that a seed makes the same ids every time."""
    count = itertools.count(1)

    def number(moment: dt.datetime) -> ULID:
        millis = int(moment.timestamp() * 1000)
        return ULID.from_bytes(millis.to_bytes(6, "big") + seed.to_bytes(6, "big") + next(count).to_bytes(4, "big"))

    return number
