"""The story of a lease that changes hands during an upload, told once from beginning to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.effects.results import read_result
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.effects import review_tasks
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline.reconciliation.repair import reconcile, reconcile_ledger
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.conformance.ledger_rows import assert_invariants, event_kinds
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_settled
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan


def assert_one_asset(house: ReconcileBench, job_id: str) -> None:
    """Assert that one verified result is served, each decision is handed on once, and nothing is asked."""
    bench = house.bench
    job = bench.job(job_id)
    assert bench.result(job_id).digest == job["result_digest"]
    assert read_result(house.effects, job_id, tenant=TENANT)["object"]["verified"]
    house.settle_effects()
    assert len(bench.rows(review_tasks, job_id)) == 2
    assert [row["state"] for row in bench.effects(job_id)].count("committed") == 1
    others = [key for key in bench.stored_results(job_id) if key != job["result_key"]]
    assert set(others) <= {row["idempotency_key"] for row in bench.effects(job_id)}, "every object has a row"
    reconcile(house.services)
    assert_settled(house)
    assert house.questions() == []
    assert_invariants(house.ledger, bench.limits)


@pytest.mark.requirement("R071", "R063", "R065", "R066", "R067", "R069")
def test_a_worker_that_sleeps_through_its_upload_loses_the_job_and_changes_nothing_when_it_wakes(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    house = ReconcileBench.build(ledger, clock, tmp_path)
    bench = house.bench
    job_id = bench.accept(items=2)
    seen_by_the_user: list[str] = []
    left_by_b: list[Any] = []

    def look() -> None:
        with ledger.reading() as tx:
            seen_by_the_user.append(str(read_status(tx, job_id)["phase"]))

    def state() -> list[Any]:
        job = {name: value for name, value in bench.job(job_id).items() if name != "latest_seq"}
        return [job, bench.items(job_id), bench.effects(job_id), bench.messages(job_id)]

    def while_a_sleeps() -> None:
        if left_by_b:
            return
        look()
        clock.advance(bench.limits.work.lease_ttl_s + 1)
        look()
        assert reconcile_ledger(house.services).taken_over == (job_id,)
        clock.advance(PAST_RETRY_S)
        left_by_b.append(None)  # B passes the same point and must not fall asleep there.
        bench.work(job_id, worker=bench.worker("worker-b", chains=lambda pins: ScriptedChain()))
        look()
        left_by_b[:] = state()

    # Worker A finishes its items, writes down what it will upload, and falls asleep before the put.
    with ActingPlan({"upload.before": while_a_sleeps}):
        [line] = bench.work(job_id, worker=bench.worker("worker-a"))

    # A woke up, put its bytes under its own key, and was refused at the terminal record.
    assert line.outcome == "stood_down"
    assert state() == left_by_b
    [refused] = bench.refused(job_id)
    assert (refused["write_kind"], refused["lease_epoch"]) == ("commit", 1)
    assert refused["current_epoch"] > refused["lease_epoch"]

    # The receipt tells of both attempts and of the change of owner.
    attempts = bench.attempts(job_id)
    assert [(row["owner"], row["outcome"]) for row in attempts] == [
        ("worker-a", "lost"),
        ("worker-b", "committed"),
    ]
    assert attempts[0]["lease_epoch"] < attempts[1]["lease_epoch"]
    kinds = event_kinds(ledger, job_id)
    assert [kind for kind in kinds if kind in ("claimed", "attempt_closed", "write_refused")] == [
        "claimed",
        "attempt_closed",
        "claimed",
        "attempt_closed",
        "write_refused",
    ]

    assert seen_by_the_user == ["publishing", "delayed", "closed"]
    assert sum(row["invocations"] for row in attempts) == 2, "no item was read twice"
    assert_one_asset(house, job_id)
