"""The status of a job that waits says for what, and the one safe next action."""

from __future__ import annotations

import pytest

from receipt_pipeline.core.lifecycle import CloseCause
from receipt_pipeline.ledger.jobs.expire import overrun_job, overrunning_jobs
from receipt_pipeline.ledger.jobs.waves import mark_incapable, register_worker, reserve_wave
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.worker_bench import ActingPlan, WorkerBench


def test_a_job_that_no_worker_carries_says_so_until_one_appears(bench: WorkerBench) -> None:
    job_id = bench.accept()
    ttl_s = bench.limits.work.worker_ttl_s
    with bench.ledger.transaction() as tx:
        assert mark_incapable(tx, worker_ttl_s=ttl_s) == [job_id]
        stranded = read_status(tx, job_id)
        register_worker(tx, worker_id="w", release_ids=[bench.job(job_id)["release_id"]])
        mark_incapable(tx, worker_ttl_s=ttl_s)
        found = read_status(tx, job_id)

    assert stranded["phase"] == "no_capable_worker"
    assert stranded["reason"]["code"] == "WORKER.NONE_CAPABLE.v1"
    assert stranded["next_action"] == "start_a_worker_that_carries_the_release"
    assert (found["phase"], found["reason"], found["next_action"]) == ("queued", None, "wait")


@pytest.mark.requirement("R047")
def test_a_reading_past_the_queue_deadline_shows_overdue_before_anything_expires_it(
    bench: WorkerBench, clock: FakeClock
) -> None:
    job_id = bench.accept()
    clock.advance(bench.job(job_id)["max_queue_age_s"] + 1)

    with bench.ledger.reading() as tx:
        status = read_status(tx, job_id)

    assert (status["state"], status["phase"]) == ("accepted", "overdue")


def test_a_job_that_only_needs_closing_is_taken_by_any_worker(bench: WorkerBench, clock: FakeClock) -> None:
    job_id = bench.accept(items=2)
    # The first item is finished; the worker is lost in the second, and the processing timeout passes.
    with ActingPlan({"checkpoint.after": _die}), pytest.raises(SystemExit):
        bench.work(job_id)
    clock.advance(bench.job(job_id)["processing_timeout_s"] + bench.limits.work.overrun_grace_s + 1)
    with bench.ledger.transaction() as tx:
        (late,) = overrunning_jobs(tx, grace_s=0, limit=9)
        assert overrun_job(
            tx, job_id=job_id, seen_epoch=late["lease_epoch"], cause=CloseCause.TIMEOUT, grace_s=0
        )
        register_worker(tx, worker_id="of-another-installation", release_ids=[])
        wave = reserve_wave(tx, items_max=9, jobs_max=9, worker_ttl_s=bench.limits.work.worker_ttl_s)

    assert wave is not None
    bench.work(job_id, wave_id=wave.wave_id)
    job = bench.job(job_id)
    assert (job["state"], job["terminal_class"]) == ("succeeded", "partial")


def _die() -> None:
    raise SystemExit
