"""A worker on the bench: its ledger, store, clock and scripted chain, and the rows that it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Table, select

from receipt_pipeline.core.canonical import digest_of, digest_of_bytes
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.result_document import ResultDocument, parse_result
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.ledger.schema import jobs as tables
from receipt_pipeline.objects.store import scan_key
from receipt_pipeline.worker.context import Classifier, JobResult
from receipt_pipeline.worker.loop import Worker, work_group
from receipt_pipeline_tests.builders import RELEASE, TENANT, a_request, an_accepted_job, approve
from receipt_pipeline_tests.fakes.failing_objects import FailingObjects
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain

# Heartbeats come only where a test makes them come.
BENCH_LIMITS = Limits().replace(heartbeat_s=3600.0, retry_base_s=5.0)
# Longer than a lease and than the pauses of the first retries, shorter than any processing timeout.
PAST_RETRY_S = 40.0


@dataclass(slots=True)
class ActingPlan:
    """A failure plan that calls what a test gives for a point, every time it is passed."""

    actions: dict[str, Callable[[], None]]
    change: Callable[[Any], Any] = lambda value: value
    passed: list[str] = field(default_factory=list)

    def reached(self, point_name: str) -> None:
        self.passed.append(point_name)
        self.actions.get(point_name, lambda: None)()

    def altered(self, alteration: str, value: Any) -> Any:
        return self.change(value) if alteration == "model.change_output" else value

    def __enter__(self) -> ActingPlan:
        install_plan(self)
        return self

    def __exit__(self, *_: object) -> None:
        remove_plan()


@dataclass(slots=True)
class WorkerBench:
    """Everything a worker needs, and short ways to what it left in ledger and store."""

    ledger: Ledger
    objects: FailingObjects
    clock: FakeClock
    chain: ScriptedChain = field(default_factory=ScriptedChain)
    limits: Limits = BENCH_LIMITS

    def accept(
        self, *, items: int = 1, content: str = "", key: str = "key-1", tenant: str = TENANT, **given: Any
    ) -> str:
        """Accept a job whose scans are stored; scan n holds the bytes `<content or key>/<n>`."""
        request = a_request(items=items, content=content, key=key, **given)
        for scan in self.scans(items, content or key):
            self.objects.inner.put(self.scan_key(scan, tenant), scan)
        return str(an_accepted_job(self.ledger, request, tenant=tenant).job_id)

    @staticmethod
    def scans(items: int, content: str = "key-1") -> list[bytes]:
        return [f"{content}/{number}".encode() for number in range(1, items + 1)]

    @staticmethod
    def scan_key(scan: bytes, tenant: str = TENANT) -> str:
        return scan_key(tenant, digest_of_bytes(scan))

    def worker(self, owner: str = "worker-a", **given: Any) -> Worker:
        parts: dict[str, Any] = {
            "ledger": self.ledger,
            "objects": self.objects,
            "chains": self.load,
            "limits": self.limits,
            "owner": owner,
            "run_id": f"run-{owner}",
        }
        return Worker(**(parts | given))

    def load(self, pins: Pins) -> Classifier:
        return self.chain

    def work(self, *job_ids: str, worker: Worker | None = None, wave_id: str = "") -> list[JobResult]:
        return work_group(worker or self.worker(), wave_id=wave_id, job_ids=job_ids)

    def work_until_closed(self, job_id: str, *, rounds_max: int = 20) -> int:
        """Work the job again and again, each time past its retry and lease; returns the rounds it took."""
        for number in range(1, rounds_max + 1):
            self.work(job_id)
            if self.job(job_id)["terminal_at"] is not None:
                return number
            self.clock.advance(PAST_RETRY_S)
        raise AssertionError("the job is still open after the last round")

    def rows(self, table: Table, job_id: str) -> list[dict[str, Any]]:
        with self.ledger.reading() as tx:
            return tx.rows(select(table).where(table.c.job_id == job_id).order_by(*table.primary_key))

    def job(self, job_id: str) -> dict[str, Any]:
        return self.rows(tables.jobs, job_id)[0]

    def items(self, job_id: str) -> list[dict[str, Any]]:
        return self.rows(tables.items, job_id)

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        return self.rows(tables.attempts, job_id)

    def refused(self, job_id: str) -> list[dict[str, Any]]:
        return self.rows(tables.refused_writes, job_id)

    def effects(self, job_id: str, kind: str = "result_object") -> list[dict[str, Any]]:
        return [row for row in self.rows(effect_tables.effects, job_id) if row["kind"] == kind]

    def quarantines(self, job_id: str) -> list[dict[str, Any]]:
        return self.rows(effect_tables.quarantine, job_id)

    def investigations(self, job_id: str) -> list[dict[str, Any]]:
        return self.rows(effect_tables.investigations, job_id)

    def messages(self, job_id: str) -> list[dict[str, Any]]:
        return self.rows(effect_tables.outbox, job_id)

    def stored_results(self, job_id: str) -> list[str]:
        """Return the keys of every result object of the job, named by the ledger or not."""
        return [entry.key for entry in self.objects.listing(f"results/{job_id}/")]

    def result(self, job_id: str) -> ResultDocument:
        job = self.job(job_id)
        assert self.objects.inner.digest(job["result_key"]) == (job["result_digest"], job["result_size_bytes"])
        return parse_result(self.objects.inner.read(job["result_key"]))

    def approve_other(self) -> str:
        other = replace(RELEASE, risk_model_digest=digest_of("another risk model"))
        return approve(self.ledger, other, name="2026-12")
