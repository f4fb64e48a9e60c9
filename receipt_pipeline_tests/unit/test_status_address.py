"""The status of a job stays at its address, whatever is replaced below it."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import pytest

from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.effects.status_documents import send_status_documents
from receipt_pipeline.intake.context import status_document_location
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.waves import close_silent_waves, register_worker, reserve_wave
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.failing_objects import FailingObjects, PutFault
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_channel import ScriptedChannel
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, WorkerBench


@pytest.mark.requirement("R022")
def test_the_status_stays_at_its_address_whatever_is_replaced_below_it(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    bench = WorkerBench(ledger, FailingObjects(LocalObjectStore(tmp_path / "objects")), clock)
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
    # The reservation that would have carried it is lost, and another takes its place.
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
