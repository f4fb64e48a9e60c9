"""The public cases as the tests play them: their files, their manifests in our words, and a whole house."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.report import report_document
from receipt_pipeline.intake.accept import Arrival
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.scans import FolderScans
from receipt_pipeline.intake.submission import Delivered, deliver
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.effects import review_tasks
from receipt_pipeline.objects.store import scan_key
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
from receipt_pipeline_tests.fakes.worker_bench import WorkerBench
from receipt_pipeline_tests.intake_home import PRINCIPAL, an_intake, as_bytes, job_rows


def case(shared: Path, number: str) -> Path:
    (folder,) = (shared / "cases").glob(f"{number}-*")
    return folder


def ours(data: bytes) -> bytes:
    """Rename a case's fields to the contract's; values, and what is odd about the text, stay."""
    text = data.decode()
    for theirs, name in (
        ('"manifest_version": 1', '"contract": "receipt-batch/v1"'),
        ('"batch"', '"note"'),
        ('"items"', '"rows"'),
        ('"model": "risk-model@pinned-A", ', ""),
        ('"model": "risk-model@pinned-A",', ""),
        ('"policy": "policy-r1"', '"release": "production"'),
        ('"policy": "policy-r2"', '"release": "2026-11"'),
    ):
        text = text.replace(theirs, name)
    return text.encode()


def with_limits(data: bytes) -> bytes:
    """Return a whole case manifest as a batch, its queue age put where the contract has it."""
    document = json.loads(ours(data))
    return as_bytes(document | {"limits": {"max_queue_age_s": document.pop("max_queue_age_seconds")}})


def manifest_of(folder: Path, name: str = "manifest.json") -> bytes:
    return with_limits((folder / name).read_bytes())


def submit_case(intake: IntakeContext, document: bytes, folder: Path, *, suffix: str = ".json") -> Delivered:
    return deliver(intake, document, Arrival(PRINCIPAL, FolderScans(folder), "test", "case"), suffix=suffix)


@dataclass(slots=True)
class CaseHouse:
    """Intake, worker, effects, reconciliation and account over one ledger and one folder."""

    ledger: Ledger
    clock: FakeClock
    folder: Path
    intake: IntakeContext
    reconciling: ReconcileBench

    @classmethod
    def build(cls, ledger: Ledger, clock: FakeClock, folder: Path) -> CaseHouse:
        intake = an_intake(ledger, folder)
        return cls(ledger, clock, folder, intake, ReconcileBench.build(ledger, clock, folder))

    @property
    def bench(self) -> WorkerBench:
        return self.reconciling.bench

    def submit(self, folder: Path, name: str = "manifest.json") -> list[str]:
        answer = submit_case(self.intake, manifest_of(folder, name), folder)
        return [line.acceptance.job_id for line in answer.lines if line.acceptance is not None]

    def scans(self, job_id: str) -> list[bytes]:
        rows = self.bench.items(job_id)
        return [self.intake.objects.read(scan_key(row["tenant"], row["sha256"])) for row in rows]

    def work_off(self, *, rounds_max: int = 20) -> None:
        """Work, deliver and consume until every job is closed, each round past all retries."""
        for _ in range(rounds_max):
            open_ids = [row["job_id"] for row in job_rows(self.ledger) if row["terminal_at"] is None]
            self.bench.work(*open_ids)
            self.reconciling.finish_effects()
            if not [row for row in job_rows(self.ledger) if row["terminal_at"] is None]:
                return
            self.clock.advance(40)
        raise AssertionError("jobs are still open after the last round")

    def report(self) -> dict[str, Any]:
        limits = self.reconciling.limits
        return report_document(Accountant(self.ledger, self.folder / "report", limits))

    def tasks(self) -> dict[str, int]:
        with self.ledger.reading() as tx:
            jobs_of_tasks = [row["job_id"] for row in tx.rows(review_tasks.select())]
        return {job_id: jobs_of_tasks.count(job_id) for job_id in sorted(set(jobs_of_tasks))}

    def assert_objects(self, *job_ids: str) -> None:
        """Assert that each job has one result object, of the digest that its record states."""
        for job_id in job_ids:
            assert self.bench.stored_results(job_id) == [self.bench.job(job_id)["result_key"]]
            assert self.bench.result(job_id).job_id == job_id


def balance(report: dict[str, Any]) -> dict[str, int]:
    """Return the counts of an account that are not zero, and assert that they balance."""
    names = ("accepted", "succeeded", "failed", "expired", "canceled", "in_flight", "unresolved")
    assert report["accepted"] == sum(report[name] for name in names[1:])
    return {name: report[name] for name in names if report[name]}
