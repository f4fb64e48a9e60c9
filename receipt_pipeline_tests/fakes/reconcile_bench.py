"""A house to reconcile: real worker, store and effects over one ledger, and ways to break it by hand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import select

from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import WORKER_LOST
from receipt_pipeline.effects.channels import Channel, FileChannel
from receipt_pipeline.effects.consume import consume_due
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.invariants import CHECKED, INVARIANTS
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome, find, query_text
from receipt_pipeline.ledger.jobs.checkpoint import write_checkpoint
from receipt_pipeline.ledger.jobs.failures import fail_attempt
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.ledger.schema.jobs import jobs, metadata
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.reconciliation.checks import run_check
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests.builders import claimed
from receipt_pipeline_tests.fakes.failing_objects import FailingObjects
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.worker_bench import BENCH_LIMITS, PAST_RETRY_S, WorkerBench


@dataclass(slots=True)
class ReconcileBench:
    """Everything that reconciliation compares, on one ledger and in one folder."""

    ledger: Ledger
    clock: FakeClock
    folder: Path
    bench: WorkerBench
    limits: Limits = BENCH_LIMITS
    channel: Channel | None = None

    @classmethod
    def build(cls, ledger: Ledger, clock: FakeClock, folder: Path) -> ReconcileBench:
        objects = FailingObjects(LocalObjectStore(folder / "objects"))
        return cls(ledger, clock, folder, WorkerBench(ledger, objects, clock))

    @property
    def services(self) -> ReconciliationContext:
        return ReconciliationContext(self.ledger, self.bench.objects, self.limits)

    @property
    def effects(self) -> EffectContext:
        outbox = self.folder / "outbox"
        return EffectContext(
            ledger=self.ledger,
            objects=self.bench.objects,
            channel=self.channel or FileChannel(outbox),
            outbox_root=outbox,
            limits=self.limits,
        )

    def succeeded(self, *, key: str, items: int = 2, **given: Any) -> dict[str, Any]:
        """Accept and work off a job; nothing of it is delivered or consumed yet."""
        job_id = self.bench.accept(key=key, items=items, **given)
        self.bench.work(job_id)
        return self.bench.job(job_id)

    def finished(self, *, key: str, items: int = 2, **given: Any) -> dict[str, Any]:
        job_id = str(self.succeeded(key=key, items=items, **given)["job_id"])
        self.finish_effects()
        return self.bench.job(job_id)

    def finish_effects(self) -> None:
        deliver(self.effects, limit=100, time_bound_s=30)
        consume_due(self.effects, limit=100, time_bound_s=30)

    def check(self, name: str) -> CheckOutcome:
        return run_check(self.services, name)

    def red_checks(self) -> set[str]:
        return {name for name in CHECKED if not self.check(name).passed}

    def find(self, key: str) -> list[dict[str, Any]]:
        """Return the violations of the invariant with this finding key; its query text finds them as well."""
        (invariant,) = [line for line in INVARIANTS if line.finding == key]
        with self.ledger.reading() as tx:
            finding = find(tx, invariant, self.services.bounds())
            text = query_text(finding.query, tx)
        assert len(self.ask_by_hand(text)) == len(finding.rows)
        return finding.rows

    def edit(self, statement: str, **values: Any) -> None:
        with self.ledger.transaction() as tx:
            tx.execute(sa.text(statement).bindparams(**values))

    def ask_by_hand(self, query_text: str) -> list[dict[str, Any]]:
        with self.ledger.engine.connect() as connection:
            return [dict(row) for row in connection.exec_driver_sql(query_text).mappings()]

    def path(self, key: str) -> Path:
        return self.folder / "objects" / key

    def store_at(self, key: str, data: bytes, *, age_s: float) -> Path:
        """Put bytes under a key as if a stranger had, so many seconds ago by the ledger's clock."""
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        moment = self.clock.now().timestamp() - age_s
        os.utime(path, (moment, moment))
        return path

    def investigations(self, *, only_open: bool = True) -> list[dict[str, Any]]:
        query = select(effect_tables.investigations).order_by(
            effect_tables.investigations.c.opened_at, effect_tables.investigations.c.investigation_id
        )
        with self.ledger.reading() as tx:
            rows = tx.rows(query)
        return [row for row in rows if row["state"] == "open" or not only_open]

    def open_subjects(self) -> set[tuple[str, str]]:
        return {(row["kind"], row["subject"]) for row in self.investigations()}

    def snapshot(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return every row of every table: two equal ones mean that nothing at all happened."""
        with self.ledger.reading() as tx:
            return {
                table.name: [
                    tuple(repr(value) for value in row.values())
                    for row in tx.rows(select(table).order_by(*table.primary_key))
                ]
                for table in metadata.sorted_tables
            }

    def lose_item(self, job_id: str, *, times: int) -> None:
        """Lose the worker so many times while the first item is begun, each time past its retry."""
        for number in range(times):
            job = claimed(self.ledger, job_id, owner=f"worker-{number}", limits=self.limits)
            with self.ledger.transaction() as tx:
                write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=self.limits)
            with self.ledger.transaction() as tx:
                fail_attempt(
                    tx, job.token, failure_class=FailureClass.WORKER_LOST, reason=WORKER_LOST, limits=self.limits
                )
            self.clock.advance(PAST_RETRY_S)


def job_of(house: ReconcileBench, key: str) -> dict[str, Any]:
    with house.ledger.reading() as tx:
        row = tx.row(select(jobs).where(jobs.c.idempotency_key == key))
    assert row is not None
    return row


def assert_red(house: ReconcileBench, name: str, *job_ids: str | None) -> list[dict[str, Any]]:
    """Assert that a check names these jobs, and that its own query finds the very same rows."""
    outcome = house.check(name)
    assert not outcome.passed
    assert sorted({str(row["job_id"]) for row in outcome.violations}) == sorted(map(str, job_ids))
    assert all(next(iter(row)) == "job_id" for row in outcome.violations)
    by_hand = house.ask_by_hand(outcome.query_text)
    assert [row["job_id"] for row in by_hand] == [row["job_id"] for row in outcome.violations]
    return [dict(row) for row in outcome.violations]


def assert_nothing_left(house: ReconcileBench) -> None:
    """Assert that another pass changes no row of any table, and so writes no event."""
    before = house.snapshot()
    again = reconcile(house.services)
    assert house.snapshot() == before
    assert not again.changed


def two_finished_jobs(ledger: Ledger, clock: FakeClock, folder: Path) -> ReconcileBench:
    """Return a bench with the finished jobs `one` and `two`, in which every check is green."""
    bench = ReconcileBench.build(ledger, clock, folder)
    for key in ("one", "two"):
        bench.finished(key=key)
    return bench
