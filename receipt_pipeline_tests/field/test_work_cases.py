"""The public cases about working: 05, 06, 07, 11, 14, 15 and 16, from the manifest to the account."""

from __future__ import annotations

import signal
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import func, select

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline_tests.crash.worker_process import WorkerOrder, run_worker, start_worker
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain, invocations_in
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan
from receipt_pipeline_tests.field.cases import CaseHouse, balance, case
from receipt_pipeline_tests.fork_server import fork_server
from receipt_pipeline_tests.intake_home import job_rows

pytestmark = pytest.mark.field
WITHIN_S = 90.0


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> CaseHouse:
    return CaseHouse.build(ledger, clock, tmp_path)


@pytest.fixture
def order(ledger_url: str, clock: FakeClock, tmp_path: Path) -> dict[str, Any]:
    return {
        "ledger_url": ledger_url,
        "store": tmp_path / "objects",
        "tally": tmp_path / "invocations",
        "now": clock.now(),
    }


def count_events(house: CaseHouse, job_id: str, kind: EventKind) -> int:
    query = select(func.count()).select_from(events).where(events.c.job_id == job_id)
    with house.ledger.reading() as tx:
        return int(tx.scalar(query.where(events.c.kind == kind)) or 0)


def test_case_05_a_canceled_job_stays_canceled_though_its_worker_finishes(house: CaseHouse, shared: Path) -> None:
    held, other = house.submit(case(shared, "05"))

    def cancel() -> None:
        with house.ledger.transaction() as tx:
            assert cancel_job(tx, job_id=held, limits=house.reconciling.limits) is not None

    # The worker stands still after its claim until the job was canceled, and then finishes its work.
    with ActingPlan({"model.after": cancel}):
        house.bench.work(held)
    house.bench.work(other)
    house.reconciling.finish_effects()
    job = house.bench.job(held)
    assert (job["state"], job["terminal_class"], job["result_key"]) == ("canceled", "canceled", None)
    assert [row["write_kind"] for row in house.bench.refused(held)] == ["checkpoint"]
    assert [row["outcome"] for row in house.bench.attempts(held)] == ["canceled"]
    assert house.bench.stored_results(held) == []
    assert [row["payload"]["state"] for row in house.bench.messages(held)] == ["canceled"]
    assert house.tasks() == {other: 1}
    house.assert_objects(other)
    assert balance(house.report()) == {"accepted": 2, "succeeded": 1, "canceled": 1}


def test_case_05_an_upload_that_a_cancellation_overtook_is_kept_aside_and_said_so(
    house: CaseHouse, shared: Path
) -> None:
    held, _ = house.submit(case(shared, "05"))

    def cancel() -> None:
        with house.ledger.transaction() as tx:
            assert cancel_job(tx, job_id=held, limits=house.reconciling.limits) is not None

    with ActingPlan({"upload.before": cancel}):
        house.bench.work(held)
    house.work_off()
    assert house.bench.job(held)["state"] == "canceled"
    assert [row["write_kind"] for row in house.bench.refused(held)] == ["commit"]
    (upload,) = house.bench.effects(held)
    assert house.bench.stored_results(held) == [upload["idempotency_key"]]
    assert house.bench.job(held)["result_key"] is None
    assert held not in house.tasks()


def ask_for_status(url: str, job_ids: list[str], stop: Event, asked: SimpleQueue[int]) -> None:
    ledger = open_ledger(url)
    while not stop.is_set():
        for job_id in job_ids:
            with ledger.reading() as tx:
                assert read_status(tx, job_id)["items"]["requested"] == 1
        asked.put(1)
        time.sleep(0.1)
    ledger.close()


def test_case_06_many_workers_and_readers_on_one_ledger_cost_no_item_an_attempt(
    house: CaseHouse, shared: Path, order: dict[str, Any], ledger_url: str
) -> None:
    job_ids = house.submit(case(shared, "06"))
    stop, asked = fork_server.Event(), fork_server.SimpleQueue()
    readers = [fork_server.Process(target=ask_for_status, args=(ledger_url, job_ids, stop, asked)) for _ in range(2)]
    for reader in readers:
        reader.start()
    asked.get()
    workers = [
        start_worker(WorkerOrder(**order, job_ids=tuple(job_ids), owner=f"worker-{number}")) for number in range(8)
    ]
    for worker in workers:
        worker.join(WITHIN_S)
    stop.set()
    for reader in readers:
        reader.join(WITHIN_S)
    assert [process.exitcode for process in (*workers, *readers)] == [0] * 10
    house.reconciling.finish_effects()
    assert len(job_ids) == 16
    for job_id in job_ids:
        assert [row["outcome"] for row in house.bench.attempts(job_id)] == ["committed"]
        for kind in (EventKind.ACCEPTED, EventKind.CLAIMED, EventKind.TERMINAL):
            assert count_events(house, job_id, kind) == 1
    house.assert_objects(*job_ids)
    assert set(invocations_in(order["tally"]).values()) <= {1}
    assert balance(house.report()) == {"accepted": 16, "succeeded": 16}


@pytest.mark.requirement("R109")
def test_case_07_a_run_that_was_killed_skips_nothing_when_it_runs_again(
    house: CaseHouse, shared: Path, order: dict[str, Any]
) -> None:
    job_ids = house.submit(case(shared, "07"))
    killed = run_worker(WorkerOrder(**order, job_ids=tuple(job_ids), place="model.before", passage=3))
    assert killed == -signal.SIGKILL
    half = house.report()
    assert [house.bench.job(job_id)["state"] for job_id in job_ids] == (
        ["succeeded"] * 2 + ["running"] + ["accepted"] * 3
    )
    assert (half["terminal"], half["in_flight"]) == (2, 4)
    house.clock.advance(house.bench.limits.work.lease_ttl_s + 1)
    for _ in range(2):
        again = WorkerOrder(**order | {"now": house.clock.now()}, job_ids=tuple(job_ids), owner="worker-b")
        assert run_worker(again) == 0
        house.clock.advance(PAST_RETRY_S)
    house.reconciling.finish_effects()
    assert [count for _, count in sorted(invocations_in(order["tally"]).items())] == [1] * 6
    house.assert_objects(*job_ids)
    report = house.report()
    assert balance(report) == {"accepted": 6, "succeeded": 6}
    assert (report["state"], report["gate"]) == ("accounted", "pass")
    assert house.tasks() == dict.fromkeys(sorted(job_ids), 1)


@pytest.mark.requirement("R048", "R052")
def test_case_11_what_was_finished_in_time_is_kept_and_what_waited_too_long_was_never_run(
    house: CaseHouse, shared: Path
) -> None:
    job_ids = house.submit(case(shared, "11"))
    house.bench.chain = ScriptedChain(on_classify=lambda data: house.clock.advance(25))
    house.bench.work(*job_ids)
    house.reconciling.finish_effects()
    # The third was claimed at 50 s and in work at 60 s: queue age ends with the claim (D3), so it finishes.
    states = [house.bench.job(job_id)["state"] for job_id in job_ids]
    assert states == ["succeeded", "succeeded", "succeeded", "expired"]
    assert len(house.bench.chain.asked) == 3
    late = house.bench.job(job_ids[3])
    assert (late["reason_code"], late["claimed_at"], house.bench.attempts(job_ids[3])) == (
        "QUEUE.AGE_REACHED.v1",
        None,
        [],
    )
    assert [row["item_class"] for row in house.bench.items(job_ids[3])] == ["expired"]
    report = house.report()
    assert balance(report) == {"accepted": 4, "succeeded": 3, "expired": 1}
    assert (report["failed"], report["gate"]) == (0, "pass")


@pytest.mark.requirement("R066")
def test_case_14_a_worker_that_slept_through_its_lease_changes_nothing_when_it_wakes(
    house: CaseHouse, shared: Path, order: dict[str, Any]
) -> None:
    (job_id,) = house.submit(case(shared, "14"))
    lease = Limits().replace(lease_ttl_s=10.0, heartbeat_s=3600.0)
    asleep = WorkerOrder(**order, job_ids=(job_id,), place="upload.before", sent=signal.SIGSTOP, limits=lease)
    process = start_worker(asleep)
    give_up = time.monotonic() + WITHIN_S
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < give_up, "the worker never reached its upload"
        time.sleep(0.01)
    house.clock.advance(30)
    house.bench.work(job_id, worker=house.bench.worker("worker-b"))
    house.clock.advance(PAST_RETRY_S)
    house.bench.work(job_id, worker=house.bench.worker("worker-b"))
    before = house.bench.job(job_id)
    psutil.Process(process.pid).resume()
    process.join(WITHIN_S)
    house.reconciling.finish_effects()
    attempts = house.bench.attempts(job_id)
    assert [(row["owner"], row["outcome"]) for row in attempts] == [("worker-a", "lost"), ("worker-b", "committed")]
    (refusal,) = house.bench.refused(job_id)
    assert (refusal["write_kind"], refusal["lease_epoch"]) == ("commit", attempts[0]["lease_epoch"])
    job = house.bench.job(job_id)
    assert (job["state"], job["result_key"], job["result_digest"]) == (
        "succeeded",
        before["result_key"],
        before["result_digest"],
    )
    assert house.bench.result(job_id).digest == attempts[1]["output_digest"]
    assert count_events(house, job_id, EventKind.TERMINAL) == 1
    assert house.tasks() == {job_id: 1}
    assert balance(house.report()) == {"accepted": 1, "succeeded": 1}


def test_case_15_a_scan_that_kills_its_workers_ends_and_holds_nobody_up(
    house: CaseHouse, shared: Path, order: dict[str, Any]
) -> None:
    job_ids = house.submit(case(shared, "15"))
    poisoned = job_ids[2]
    (poison,) = house.scans(poisoned)

    def a_worker(*ids: str) -> int | None:
        return run_worker(
            WorkerOrder(**order | {"now": house.clock.now()}, job_ids=ids, poison=poison), within_s=WITHIN_S
        )

    assert a_worker(*job_ids) == -signal.SIGKILL
    # Those behind it do not wait for it.
    assert a_worker(*job_ids) == 0
    healthy = [job_id for job_id in job_ids if job_id != poisoned]
    assert [house.bench.job(job_id)["state"] for job_id in healthy] == ["succeeded"] * 4
    pauses = []
    for _ in range(2):
        house.clock.advance(house.bench.limits.work.lease_ttl_s + 1)
        assert a_worker(poisoned) == 0
        pauses.append((house.bench.job(poisoned)["retry_at"] - house.clock.now()).total_seconds())
        assert a_worker(poisoned) == 0
        house.clock.advance(PAST_RETRY_S)
        assert a_worker(poisoned) == -signal.SIGKILL
    house.clock.advance(house.bench.limits.work.lease_ttl_s + 1)
    for _ in range(2):
        assert a_worker(poisoned) == 0
        house.clock.advance(PAST_RETRY_S)
    house.reconciling.finish_effects()
    assert 0 < pauses[0] < pauses[1]
    assert invocations_in(order["tally"])[poison] == 3
    assert [row["outcome"] for row in house.bench.attempts(poisoned)] == ["lost"] * 3 + ["committed"]
    job = house.bench.job(poisoned)
    assert (job["state"], job["reason_code"]) == ("failed", "WORKER.LOST.v1")
    report = house.report()
    assert balance(report) == {"accepted": 5, "succeeded": 4, "failed": 1}
    assert report["attempts"]["lost"] == 3
    (question,) = house.bench.investigations(poisoned)
    assert (question["kind"], question["owner"]) == ("unresolved_items", "operations")


def test_case_16_a_worker_whose_clock_is_behind_neither_waits_nor_counts_below_zero(
    house: CaseHouse, shared: Path, order: dict[str, Any], clock: FakeClock
) -> None:
    job_ids = house.submit(case(shared, "16"))
    behind = WorkerOrder(**order | {"now": FakeClock(clock.now()).advance(-120)}, job_ids=tuple(job_ids))
    assert run_worker(behind) == 0
    house.reconciling.finish_effects()
    for job_id in job_ids:
        job = house.bench.job(job_id)
        assert (job["state"], job["claimed_at"]) == ("succeeded", job["submitted_at"])
        assert job["submitted_at"] <= job["claimed_at"] <= job["terminal_at"]
        (attempt,) = house.bench.attempts(job_id)
        assert attempt["facts"]["clock_skew_s"] != 0
    report = house.report()
    assert min(report["time_to_completion_s"].values()) >= 0
    assert balance(report) == {"accepted": 2, "succeeded": 2}
    assert len(job_rows(house.ledger)) == 2
