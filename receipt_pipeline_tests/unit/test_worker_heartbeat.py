"""The heartbeat keeps a slow worker's lease, gives a silent one up, and stands under the epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import select

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.jobs.claim import ClaimRefused, claim_job
from receipt_pipeline.ledger.jobs.waves import close_wave, register_worker, renew_wave, reserve_wave
from receipt_pipeline.ledger.schema.jobs import waves
from receipt_pipeline.worker import heartbeat
from receipt_pipeline.worker.heartbeat import Heartbeat
from receipt_pipeline_tests.builders import RELEASE, claimed
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.fakes.worker_bench import ActingPlan, WorkerBench

ANSWER_WITHIN_S = 20.0


@pytest.fixture
def resumed() -> Iterator[None]:
    yield
    heartbeat._silenced.clear()


def a_watched_claim(bench: WorkerBench, job_id: str, seconds: list[float]) -> tuple[Heartbeat, list[str]]:
    ended: list[str] = []
    worker = bench.worker(monotonic=lambda: seconds[0], end_process=lambda: ended.append(job_id))
    beats = Heartbeat(worker)
    beats.watch(claimed(bench.ledger, job_id).token)
    return beats, ended


@pytest.mark.requirement("R068")
def test_a_slow_worker_that_beats_keeps_its_lease_past_its_nominal_end(bench: WorkerBench) -> None:
    bench.limits = Limits().replace(heartbeat_s=0.02)
    job_id = bench.accept(items=1)

    def take_long(data: bytes) -> None:
        for _ in range(4):
            bench.clock.advance(20)
            wanted = bench.clock.now()
            give_up = time.monotonic() + ANSWER_WITHIN_S
            while (bench.job(job_id)["lease_expires_at"] - wanted).total_seconds() < 25:
                assert time.monotonic() < give_up, "no heartbeat came"
                time.sleep(0.01)
        with bench.ledger.transaction() as tx:
            other = claim_job(tx, job_id=job_id, owner="worker-b", run_id="run-b", limits=bench.limits)
        assert isinstance(other, ClaimRefused)

    bench.chain = ScriptedChain(on_classify=take_long)
    [line] = bench.work(job_id)
    assert (line.outcome, line.terminal_class) == ("closed", "complete")
    assert [row["outcome"] for row in bench.attempts(job_id)] == ["committed"]


@pytest.mark.requirement("R063")
def test_a_fresh_heartbeat_under_an_old_epoch_is_refused(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    beats, _ = a_watched_claim(bench, job_id, [0.0])
    bench.clock.advance(31)
    with bench.ledger.transaction() as tx:
        claim_job(tx, job_id=job_id, owner="worker-b", run_id="run-b", limits=bench.limits)
    taken_away = bench.job(job_id)
    beats.beat()
    assert beats.refused
    assert bench.job(job_id) == taken_away


def test_a_refused_heartbeat_makes_the_worker_stand_down_at_the_next_boundary(bench: WorkerBench) -> None:
    bench.limits = Limits().replace(heartbeat_s=0.02)
    job_id = bench.accept(items=2)

    def lose(data: bytes) -> None:
        bench.clock.advance(31)
        give_up = time.monotonic() + ANSWER_WITHIN_S
        while True:
            with bench.ledger.transaction() as tx:
                # A beat may renew in between, and then the lease has to run out once more.
                bench.clock.advance(31)
                claim_job(tx, job_id=job_id, owner="worker-b", run_id="run-b", limits=bench.limits)
            if bench.job(job_id)["lease_epoch"] > 1:
                break
            assert time.monotonic() < give_up, "the lease was never lost"

    bench.chain = ScriptedChain(on_classify=lose)
    [line] = bench.work(job_id)
    assert (line.outcome, line.items_done) == ("stood_down", 0)
    assert [row["ordinal"] for row in bench.refused(job_id)] == [0]


def test_a_worker_that_stands_still_between_claim_and_first_item_is_ended_too(bench: WorkerBench) -> None:
    seconds, ended = [0.0], list[str]()
    worker = bench.worker(monotonic=lambda: seconds[0], end_process=lambda: ended.append("ended"))
    beats = Heartbeat(worker)
    seconds[0] = bench.limits.work.item_timeout_s + 1
    beats.beat()
    assert ended == []
    beats.take_up()
    beats.beat()
    assert ended == []
    seconds[0] += bench.limits.work.item_timeout_s
    beats.beat()
    assert ended == ["ended"]


def test_a_worker_between_two_jobs_is_not_watched(bench: WorkerBench) -> None:
    seconds, ended = [0.0], list[str]()
    beats = Heartbeat(bench.worker(monotonic=lambda: seconds[0], end_process=lambda: ended.append("ended")))
    beats.take_up()
    beats.let_go()
    seconds[0] = bench.limits.work.item_timeout_s + 1
    beats.beat()
    assert ended == []


def test_without_progress_nothing_is_renewed_and_the_process_is_ended(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    seconds = [0.0]
    beats, ended = a_watched_claim(bench, job_id, seconds)
    seconds[0] = bench.limits.work.item_timeout_s - 1
    bench.clock.advance(10)
    beats.beat()
    renewed = bench.job(job_id)["lease_expires_at"]
    assert (renewed - bench.clock.now()).total_seconds() == bench.limits.work.lease_ttl_s
    seconds[0] += 1
    bench.clock.advance(10)
    beats.beat()
    beats.beat()
    assert ended == [job_id]
    assert bench.job(job_id)["lease_expires_at"] == renewed


def test_every_page_counts_as_progress(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    seconds = [0.0]
    beats, ended = a_watched_claim(bench, job_id, seconds)
    for _ in range(5):
        seconds[0] += bench.limits.work.item_timeout_s - 1
        beats.progressed()
        beats.beat()
    assert ended == []
    assert not beats.refused


def test_what_is_let_go_is_neither_renewed_nor_watched(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    seconds = [0.0]
    beats, ended = a_watched_claim(bench, job_id, seconds)
    before = bench.job(job_id)["lease_expires_at"]
    beats.let_go()
    seconds[0] = 10_000.0
    bench.clock.advance(10)
    beats.beat()
    assert (ended, bench.job(job_id)["lease_expires_at"]) == ([], before)


@pytest.mark.usefixtures("resumed")
def test_a_silenced_process_renews_nothing_until_it_is_resumed(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    beats, ended = a_watched_claim(bench, job_id, [10_000.0])
    before = bench.job(job_id)["lease_expires_at"]
    bench.clock.advance(10)
    heartbeat.stop_all()
    beats.beat()
    assert (ended, bench.job(job_id)["lease_expires_at"]) == ([], before)
    heartbeat._silenced.clear()
    beats.beat()
    assert bench.job(job_id)["lease_expires_at"] > before


def a_wave(bench: WorkerBench) -> str:
    with bench.ledger.transaction() as tx:
        register_worker(tx, worker_id="here", release_ids=[RELEASE.release_id])
        wave = reserve_wave(tx, items_max=60, jobs_max=60, worker_ttl_s=120)
    assert wave is not None
    return wave.wave_id


def test_a_group_keeps_its_wave_alive(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    wave_id = a_wave(bench)
    bench.clock.advance(50)
    bench.work(job_id, wave_id=wave_id)
    with bench.ledger.reading() as tx:
        row = tx.row(select(waves).where(waves.c.wave_id == wave_id))
    assert row is not None
    assert (row["heartbeat_at"], row["run_id"]) == (bench.clock.now(), "run-worker-a")


def test_a_worker_whose_wave_was_closed_leaves_its_jobs(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    wave_id = a_wave(bench)
    with bench.ledger.transaction() as tx:
        close_wave(tx, wave_id)
        assert not renew_wave(tx, wave_id, run_id="run-worker-a")
    [line] = bench.work(job_id, wave_id=wave_id)
    assert (line.outcome, line.state) == ("left", "accepted")


def test_a_renewal_that_is_refused_after_the_job_was_let_go_concerns_nobody(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    beats, _ = a_watched_claim(bench, job_id, [0.0])
    beats.watch(FencingToken(job_id, 99))
    beats.let_go()
    beats.beat()
    assert not beats.refused


def test_points_of_one_item_are_passed_in_the_order_of_the_flow(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    with ActingPlan({}) as plan:
        bench.work(job_id)
    boundaries = ("claim", "begin", "model", "checkpoint", "intent", "upload", "read_back", "commit")
    assert plan.passed == [f"{name}.{side}" for name in boundaries for side in ("before", "after")]
