"""A worker killed at any boundary, or inside any transaction, leaves a job that ends once."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import func, select

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.journal import EventKind
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline_tests.crash.worker_process import WorkerOrder, run_worker, start_worker
from receipt_pipeline_tests.fakes.failing_objects import FailingObjects
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain, invocations_in
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, WorkerBench

ITEMS = 2
BOUNDARIES = ("claim", "begin", "model", "checkpoint", "intent", "upload", "read_back", "commit")
PLACES = [f"{name}.{side}" for name in BOUNDARIES for side in ("before", "after")]
# Claim, begin, two checkpoints, intent, commit: the transactions of a job with two items.
TRANSACTIONS = 6
PINS = ("release_id", "image_digest", "chain_revision", "feature_contract", "risk_model_digest")
WITHIN_S = 30.0


@pytest.fixture
def tally(tmp_path: Path) -> Path:
    return tmp_path / "invocations"


@pytest.fixture
def bench(ledger: Ledger, clock: FakeClock, tmp_path: Path, tally: Path) -> WorkerBench:
    objects = FailingObjects(LocalObjectStore(tmp_path / "objects"))
    return WorkerBench(ledger, objects, clock, chain=ScriptedChain(tally=tally))


@pytest.fixture
def order(ledger_url: str, clock: FakeClock, tmp_path: Path, tally: Path) -> dict[str, Any]:
    return {"ledger_url": ledger_url, "store": tmp_path / "objects", "tally": tally, "now": clock.now()}


def finish(bench: WorkerBench, job_id: str) -> None:
    bench.clock.advance(bench.limits.work.lease_ttl_s + 1)
    bench.work(job_id, worker=bench.worker("worker-b"))
    if bench.job(job_id)["terminal_at"] is None:
        bench.clock.advance(PAST_RETRY_S)
        bench.work(job_id, worker=bench.worker("worker-b"))


def assert_one_ending(bench: WorkerBench, job_id: str, tally: Path, accepted: dict[str, Any]) -> None:
    job = bench.job(job_id)
    assert (job["state"], job["terminal_class"]) == ("succeeded", "complete")
    assert bench.result(job_id).digest == job["result_digest"]
    assert [job[pin] for pin in PINS] == [accepted[pin] for pin in PINS]
    assert bench.result(job_id).pins.release_id == accepted["release_id"]
    with bench.ledger.reading() as tx:
        endings = tx.scalar(
            select(func.count())
            .select_from(events)
            .where(events.c.job_id == job_id)
            .where(events.c.kind == EventKind.TERMINAL)
        )
    assert endings == 1
    assert len(bench.messages(job_id)) == 1
    assert len(bench.effects(job_id, "review_tasks")) == 1
    assert [row["state"] for row in bench.effects(job_id)].count("committed") == 1
    attempts = bench.attempts(job_id)
    assert [row["outcome"] for row in attempts].count("committed") == 1
    assert None not in [row["outcome"] for row in attempts]
    losses = sum(row["losses"] for row in bench.items(job_id))
    assert len(attempts) <= 2
    assert all(count <= 1 + losses for count in invocations_in(tally).values())
    assert set(invocations_in(tally)) == set(bench.scans(ITEMS))
    assert bench.quarantines(job_id) == []


@pytest.mark.requirement("R051", "R077", "R097", "R113")
@pytest.mark.parametrize("place", PLACES)
def test_a_worker_killed_at_a_boundary_leaves_a_job_that_ends_once(
    bench: WorkerBench, order: dict[str, Any], tally: Path, place: str
) -> None:
    job_id = bench.accept(items=ITEMS)
    accepted = bench.job(job_id)
    assert run_worker(WorkerOrder(**order, job_ids=(job_id,), place=place)) == -signal.SIGKILL
    checkpoint, kept = bench.job(job_id)["checkpoint"], bench.items(job_id)
    finish(bench, job_id)
    assert_one_ending(bench, job_id, tally, accepted)
    assert bench.items(job_id)[:checkpoint] == kept[:checkpoint]
    lost = [row["outcome"] for row in bench.attempts(job_id)].count("lost")
    assert lost == (0 if place in ("claim.before", "commit.after") else 1)


@pytest.mark.requirement("R089", "R097")
@pytest.mark.parametrize("number", range(1, TRANSACTIONS + 1))
def test_a_worker_killed_inside_a_transaction_leaves_nothing_of_it(
    bench: WorkerBench, order: dict[str, Any], tally: Path, number: int
) -> None:
    job_id = bench.accept(items=ITEMS)
    accepted = bench.job(job_id)
    assert run_worker(WorkerOrder(**order, job_ids=(job_id,), dies_at_commit=number)) == -signal.SIGKILL
    job, listed = bench.job(job_id), bench.items(job_id)
    assert job["state"] == ("accepted" if number == 1 else "running")
    assert len(bench.attempts(job_id)) == (0 if number == 1 else 1)
    finished = [row for row in listed if row["item_class"] is not None]
    assert job["checkpoint"] == len(finished) == max(0, min(ITEMS, number - 3))
    begun = [row for row in listed if row["begun_epoch"] is not None]
    assert len(begun) == (0 if number < 3 else min(ITEMS, number - 2))
    assert len(bench.effects(job_id)) == (1 if number == TRANSACTIONS else 0)
    assert bench.messages(job_id) == []
    assert bench.effects(job_id, "review_tasks") == []
    finish(bench, job_id)
    assert_one_ending(bench, job_id, tally, accepted)


@pytest.mark.parametrize("place", ["yield.before", "yield.after"])
def test_a_worker_killed_while_it_yields_spends_no_budget_beyond_its_own_loss(
    bench: WorkerBench, order: dict[str, Any], tally: Path, place: str
) -> None:
    job_id = bench.accept(items=ITEMS)
    accepted = bench.job(job_id)
    killed = run_worker(WorkerOrder(**order, job_ids=(job_id,), place=place, yields_after=1))
    assert killed == -signal.SIGKILL
    finish(bench, job_id)
    assert_one_ending(bench, job_id, tally, accepted)
    assert set(invocations_in(tally).values()) == {1}
    outcomes = [row["outcome"] for row in bench.attempts(job_id)]
    assert outcomes == ["lost" if place == "yield.before" else "yielded", "committed"]
    assert bench.job(job_id)["attempts_spent"] == (1 if place == "yield.before" else 0)


def test_a_scan_that_kills_every_worker_is_isolated_while_its_sibling_finishes(
    bench: WorkerBench, order: dict[str, Any], tally: Path
) -> None:
    job_id = bench.accept(items=ITEMS)
    for number in range(bench.limits.work.item_losses_max):
        # The first worker dies on its second item, the later ones on their first, which is the same.
        again = WorkerOrder(
            **(order | {"now": bench.clock.now()}),
            job_ids=(job_id,),
            place="model.before",
            passage=2 if number == 0 else 1,
        )
        assert run_worker(again) == -signal.SIGKILL
        bench.clock.advance(bench.limits.work.lease_ttl_s + 1)
        bench.work(job_id)
        bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    job = bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["attempts_spent"]) == ("succeeded", "partial", 0)
    assert [row["item_class"] for row in bench.items(job_id)] == ["classified", "unresolved"]
    assert [row["reason_code"] for row in bench.items(job_id)] == ["", "WORKER.LOST.v1"]
    assert invocations_in(tally) == {bench.scans(ITEMS)[0]: 1}
    [question] = bench.investigations(job_id)
    assert (question["kind"], question["state"]) == ("unresolved_items", "open")


def stopped_worker(order: WorkerOrder) -> Any:
    process = start_worker(order)
    give_up = time.monotonic() + WITHIN_S
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < give_up, "the worker never reached its place"
        time.sleep(0.01)
    return process


@pytest.mark.requirement("R064", "R065", "R066", "R067")
@pytest.mark.parametrize("place", ["model.after", "upload.before", "commit.before"])
def test_an_old_worker_that_wakes_after_a_takeover_changes_nothing(
    bench: WorkerBench, order: dict[str, Any], tally: Path, place: str
) -> None:
    job_id = bench.accept(items=ITEMS)
    accepted = bench.job(job_id)
    stopped = stopped_worker(WorkerOrder(**order, job_ids=(job_id,), place=place, sent=signal.SIGSTOP))
    finish(bench, job_id)
    left = {name: value for name, value in bench.job(job_id).items() if name != "latest_seq"}
    items_left = bench.items(job_id)
    psutil.Process(stopped.pid).resume()
    stopped.join(WITHIN_S)
    assert stopped.exitcode == 0
    after = {name: value for name, value in bench.job(job_id).items() if name != "latest_seq"}
    assert (after, bench.items(job_id)) == (left, items_left)
    assert len(bench.refused(job_id)) == 1
    assert_one_ending(bench, job_id, tally, accepted)


def test_a_worker_that_stands_still_is_ended_by_its_own_watchdog(
    bench: WorkerBench, order: dict[str, Any], tally: Path
) -> None:
    job_id = bench.accept(items=ITEMS)
    accepted = bench.job(job_id)
    short = Limits().replace(heartbeat_s=0.05, item_timeout_s=0.5)
    ended = run_worker(WorkerOrder(**order, job_ids=(job_id,), place="model.before", stalls_s=600, limits=short))
    assert ended == -signal.SIGKILL
    assert bench.job(job_id)["lease_owner"] == "worker-a"
    finish(bench, job_id)
    assert [row["losses"] for row in bench.items(job_id)] == [1, 0]
    assert_one_ending(bench, job_id, tally, accepted)


@pytest.mark.requirement("R027")
def test_two_workers_that_race_for_the_same_jobs_do_each_of_them_once(
    bench: WorkerBench, order: dict[str, Any], tally: Path
) -> None:
    job_ids = tuple(bench.accept(items=1, key=f"key-{number}") for number in range(6))
    racing = [start_worker(WorkerOrder(**order, job_ids=job_ids, owner=owner)) for owner in ("worker-a", "worker-b")]
    for process in racing:
        process.join(WITHIN_S)
    assert [process.exitcode for process in racing] == [0, 0]
    assert set(invocations_in(tally).values()) == {1}
    for job_id in job_ids:
        assert bench.result(job_id).job_id == job_id
        assert [row["outcome"] for row in bench.attempts(job_id)] == ["committed"]
        assert len(bench.messages(job_id)) == 1
