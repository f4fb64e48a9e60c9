"""The status of a job: what a waiting job waits for, and one address whatever is replaced below it."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import pytest

from receipt_pipeline.core.lifecycle import CloseCause
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.effects.status_documents import send_status_documents
from receipt_pipeline.intake.context import status_document_location
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.expire import overrun_job, overrunning_jobs
from receipt_pipeline.ledger.jobs.waves import close_silent_waves, mark_incapable, register_worker, reserve_wave
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.failing_objects import PutFault
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_channel import ScriptedChannel
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan, WorkerBench


def test_a_job_that_no_worker_supports_says_so_until_one_appears(bench: WorkerBench) -> None:
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


def test_a_job_that_only_needs_closing_is_claimed_by_any_worker(bench: WorkerBench, clock: FakeClock) -> None:
    job_id = bench.accept(items=2)
    # The first item is finished; the worker is lost in the second, and the processing timeout passes.
    with ActingPlan({"checkpoint.after": _die}), pytest.raises(SystemExit):
        bench.work(job_id)
    clock.advance(bench.job(job_id)["processing_timeout_s"] + bench.limits.work.overrun_grace_s + 1)
    with bench.ledger.transaction() as tx:
        (late,) = overrunning_jobs(tx, grace_s=0, limit=9)
        assert overrun_job(tx, job_id=job_id, seen_epoch=late["lease_epoch"], cause=CloseCause.TIMEOUT, grace_s=0)
        register_worker(tx, worker_id="of-another-installation", release_ids=[])
        wave = reserve_wave(tx, items_max=9, jobs_max=9, worker_ttl_s=bench.limits.work.worker_ttl_s)

    assert wave is not None
    bench.work(job_id, wave_id=wave.wave_id)
    job = bench.job(job_id)
    assert (job["state"], job["terminal_class"]) == ("succeeded", "partial")


def _die() -> None:
    raise SystemExit


@pytest.mark.requirement("R022")
def test_the_status_stays_at_its_address_whatever_is_replaced_below_it(
    bench: WorkerBench, ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    services = EffectContext(
        ledger=ledger,
        objects=bench.objects,
        channel=ScriptedChannel(script=["lose", "deliver"]),
        outbox_root=tmp_path / "outbox",
        limits=bench.limits,
    )
    job_id = bench.accept()
    address = Path(status_document_location(tmp_path)(TENANT, job_id))
    seen = []

    def look() -> None:
        send_status_documents(services, limit=10)
        document = json.loads(address.read_text())
        seen.append((document["job_id"], document["state"]))

    look()
    # The reservation that held it is lost, and another takes its place.
    waves = []
    for _ in range(2):
        with ledger.transaction() as tx:
            register_worker(tx, worker_id="w", release_ids=[bench.job(job_id)["release_id"]])
            close_silent_waves(tx, limits=bench.limits)
            wave = reserve_wave(tx, items_max=9, jobs_max=9, worker_ttl_s=bench.limits.work.worker_ttl_s)
            assert wave is not None
            waves.append(wave.wave_id)
        clock.advance(bench.limits.work.wave_start_s + 1)
    look()
    # The first attempt fails over its upload, the second publishes.
    bench.objects.put_faults = deque([PutFault.REFUSED])
    bench.work(job_id)
    look()
    clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    look()
    # The first notification is lost, the second arrives.
    for _ in range(2):
        deliver(services, limit=10, time_bound_s=60)
        clock.advance(PAST_RETRY_S)
    look()

    assert len(set(waves)) == 2
    assert [row["outcome"] for row in bench.attempts(job_id)] == ["failed", "committed"]
    assert len(bench.objects.puts) == 2
    assert [row["sends"] for row in bench.messages(job_id)] == [2]
    assert {shown for shown, _ in seen} == {job_id}
    assert [state for _, state in seen] == ["accepted", "accepted", "running", "succeeded", "succeeded"]
    assert [path.name for path in address.parent.glob("*.status.json")] == [address.name]
