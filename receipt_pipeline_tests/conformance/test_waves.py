"""Waves on every ledger: reservations of ready jobs that never keep a job from becoming ready again."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.lifecycle import CloseCause
from receipt_pipeline.core.reasons import UPLOAD_UNKNOWN
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.expire import overrun_job
from receipt_pipeline.ledger.jobs.failures import fail_attempt, lose_lease, yield_job
from receipt_pipeline.ledger.jobs.waves import (
    Wave,
    close_silent_waves,
    close_wave,
    count_ready_items,
    mark_incapable,
    open_waves,
    register_worker,
    renew_wave,
    reserve_wave,
    wave_jobs,
)
from receipt_pipeline.ledger.schema.jobs import workers
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, event_kinds, job_row
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS
FOREVER_S = 10**9
THREADS = 4


def reserve(ledger: Ledger, *, items_max: int = 60, jobs_max: int = 60) -> Wave | None:
    with ledger.transaction() as tx:
        register_worker(tx, worker_id="worker-a", release_ids=[builders.RELEASE.release_id])
        return reserve_wave(tx, items_max=items_max, jobs_max=jobs_max, worker_ttl_s=FOREVER_S)


def reserved(ledger: Ledger, wave: Wave | None) -> list[str]:
    if wave is None:
        return []
    with ledger.reading() as tx:
        return [row["job_id"] for row in wave_jobs(tx, wave.wave_id)]


def accepted_jobs(ledger: Ledger, clock: FakeClock, *sizes: int) -> list[str]:
    listed = []
    for size in sizes:
        listed.append(str(builders.an_accepted_job(ledger, items=size).job_id))
        clock.advance(1)
    return listed


def test_a_wave_takes_the_oldest_ready_jobs_up_to_its_items(ledger: Ledger, clock: FakeClock) -> None:
    listed = accepted_jobs(ledger, clock, 2, 2, 2, 1)
    with ledger.reading() as tx:
        assert count_ready_items(tx) == 7
    first = reserve(ledger, items_max=5)
    assert first is not None
    assert (first.items_total, first.jobs_total, first.run_key) == (4, 2, f"{first.wave_id}:1")
    assert reserved(ledger, first) == listed[:2]
    second = reserve(ledger, items_max=5)
    assert reserved(ledger, second) == listed[2:]
    assert reserve(ledger) is None
    with ledger.reading() as tx:
        assert count_ready_items(tx) == 0
        assert [row["wave_id"] for row in open_waves(tx)] == [first.wave_id, second and second.wave_id]


def test_a_large_job_is_never_split_and_the_number_of_jobs_is_bounded(ledger: Ledger, clock: FakeClock) -> None:
    listed = accepted_jobs(ledger, clock, 9, 1, 1)
    assert reserved(ledger, reserve(ledger, items_max=3)) == listed[:1]
    assert reserved(ledger, reserve(ledger, jobs_max=1)) == listed[1:2]


def test_dispatchers_at_once_never_reserve_a_job_twice(ledger: Ledger, clock: FakeClock) -> None:
    listed = accepted_jobs(ledger, clock, *[1] * 8)
    with ledger.transaction() as tx:
        register_worker(tx, worker_id="worker-a", release_ids=[builders.RELEASE.release_id])
    start = threading.Barrier(THREADS)
    made: list[Wave | None] = []

    def dispatch() -> None:
        start.wait()
        with ledger.transaction() as tx:
            made.append(reserve_wave(tx, items_max=3, jobs_max=3, worker_ttl_s=FOREVER_S))

    threads = [threading.Thread(target=dispatch) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [job_id for wave in made for job_id in reserved(ledger, wave)]
    assert len(taken) == len(set(taken))
    assert sum(wave.jobs_total for wave in made if wave) == len(taken)
    while (wave := reserve(ledger)) is not None:
        taken += reserved(ledger, wave)
    assert sorted(taken) == sorted(listed)


def test_a_reservation_is_no_claim(ledger: Ledger, clock: FakeClock) -> None:
    [job_id] = accepted_jobs(ledger, clock, 1)
    reserve(ledger)
    assert job_row(ledger, job_id)["lease_epoch"] == 0
    assert builders.claimed(ledger, job_id).token.lease_epoch == 1


def test_a_wave_whose_run_is_slow_to_start_keeps_its_jobs_until_it_is_given_up(
    ledger: Ledger, clock: FakeClock
) -> None:
    [job_id] = accepted_jobs(ledger, clock, 1)
    slow = reserve(ledger)
    assert slow is not None
    clock.advance(LIMITS.work.wave_start_s - 1)
    with ledger.transaction() as tx:
        assert close_silent_waves(tx, limits=LIMITS) == []
        assert renew_wave(tx, slow.wave_id, run_id="late, but in time")
        assert [row["job_id"] for row in wave_jobs(tx, slow.wave_id)] == [job_id]
    clock.advance(LIMITS.work.wave_ttl_s)
    with ledger.transaction() as tx:
        assert close_silent_waves(tx, limits=LIMITS) == [slow.wave_id], "once begun, the shorter bound holds"


def test_a_silent_wave_frees_its_jobs_and_a_beating_one_keeps_them(ledger: Ledger, clock: FakeClock) -> None:
    listed = accepted_jobs(ledger, clock, 1, 1)
    wave = reserve(ledger)
    assert wave is not None
    clock.advance(LIMITS.work.wave_ttl_s - 1)
    with ledger.transaction() as tx:
        assert renew_wave(tx, wave.wave_id, run_id="run-1")
    clock.advance(LIMITS.work.wave_ttl_s - 1)
    with ledger.transaction() as tx:
        assert close_silent_waves(tx, limits=LIMITS) == []
    clock.advance(1)
    with ledger.transaction() as tx:
        assert close_silent_waves(tx, limits=LIMITS) == [wave.wave_id]
        assert not renew_wave(tx, wave.wave_id, run_id="run-1"), "its run should end"
        assert close_silent_waves(tx, limits=LIMITS) == []
    again = reserve(ledger)
    assert reserved(ledger, again) == listed
    assert again is not None
    assert again.run_key != wave.run_key


def test_a_closed_wave_frees_what_was_not_claimed(ledger: Ledger, clock: FakeClock) -> None:
    done, waiting = accepted_jobs(ledger, clock, 1, 1)
    wave = reserve(ledger)
    assert wave is not None
    job = builders.claimed(ledger, done)
    builders.finish_items(ledger, job)
    builders.publish(ledger, job)
    with ledger.transaction() as tx:
        assert close_wave(tx, wave.wave_id) == 1
    assert reserved(ledger, reserve(ledger)) == [waiting]


WAYS_BACK = ["worker lost", "wave silent", "yielded", "failed", "overrun", "wave closed"]


@pytest.mark.parametrize("way", WAYS_BACK)
def test_a_claimed_job_of_a_wave_always_becomes_ready_again(ledger: Ledger, clock: FakeClock, way: str) -> None:
    limits = LimitsRequest(processing_timeout_s=1000)
    job_id = builders.an_accepted_job(ledger, items=2, limits=limits).job_id
    wave = reserve(ledger)
    assert wave is not None
    job = builders.claimed(ledger, job_id)
    assert job.job.wave_id == wave.wave_id
    assert reserve(ledger) is None, "a job in hand is not ready"
    with ledger.transaction() as tx:
        if way == "yielded":
            yield_job(tx, job.token)
        elif way == "failed":
            fail_attempt(tx, job.token, failure_class=FailureClass.TRANSIENT, reason=UPLOAD_UNKNOWN, limits=LIMITS)
        elif way == "worker lost":
            clock.advance(LIMITS.work.lease_ttl_s)
            assert lose_lease(tx, job_id=job_id, seen_epoch=1, limits=LIMITS)
        elif way == "overrun":
            clock.advance(1000)
            assert overrun_job(tx, job_id=job_id, seen_epoch=1, cause=CloseCause.TIMEOUT, grace_s=0)
        elif way == "wave closed":
            assert close_wave(tx, wave.wave_id) == 1
    if way in ("wave silent", "wave closed"):
        clock.advance(LIMITS.work.wave_start_s)
        with ledger.transaction() as tx:
            close_silent_waves(tx, limits=LIMITS)
    retry_at = job_row(ledger, job_id)["retry_at"]
    if retry_at is not None:
        assert reserve(ledger) is None, "not before its retry time"
        clock.set(retry_at)
    assert reserved(ledger, reserve(ledger)) == [job_id]


def test_held_and_closed_jobs_are_not_ready(ledger: Ledger, clock: FakeClock) -> None:
    builders.a_succeeded_job(ledger)
    held = builders.a_claimed_job(ledger, limits=LimitsRequest(max_attempts=1))
    builders.finish_items(ledger, held)
    with ledger.transaction() as tx:
        fail_attempt(tx, held.token, failure_class=FailureClass.AMBIGUOUS_UPLOAD, reason=UPLOAD_UNKNOWN, limits=LIMITS)
    clock.advance(LIMITS.work.retry_cap_s * 10)
    assert job_row(ledger, held.token.job_id)["phase"] == "reconciling"
    assert reserve(ledger) is None


def test_a_job_that_no_live_worker_carries_waits_by_name_and_returns(ledger: Ledger, clock: FakeClock) -> None:
    [job_id] = accepted_jobs(ledger, clock, 1)
    carries(ledger, "worker-a", digest_of("another release"))
    assert incapable(ledger) == [job_id]
    assert incapable(ledger) == []
    assert job_row(ledger, job_id)["phase"] == "no_capable_worker"
    with ledger.transaction() as tx:
        assert reserve_wave(tx, items_max=9, jobs_max=9, worker_ttl_s=LIMITS.work.worker_ttl_s) is None
    carries(ledger, "worker-b", builders.RELEASE.release_id)
    assert incapable(ledger) == []
    assert job_row(ledger, job_id)["phase"] == "queued"
    assert event_kinds(ledger, job_id) == ["accepted", "phase_changed", "phase_changed"]
    clock.advance(LIMITS.work.worker_ttl_s + 1)
    assert incapable(ledger) == [job_id], "a worker that fell silent carries nothing"
    assert builders.claimed(ledger, job_id).job.phase == "working"
    assert incapable(ledger) == []


def carries(ledger: Ledger, worker_id: str, *release_ids: str) -> None:
    with ledger.transaction() as tx:
        register_worker(tx, worker_id=worker_id, release_ids=release_ids)


def incapable(ledger: Ledger) -> list[str]:
    with ledger.transaction() as tx:
        return mark_incapable(tx, worker_ttl_s=LIMITS.work.worker_ttl_s)


def test_a_wave_takes_only_releases_that_a_live_worker_carries(ledger: Ledger, clock: FakeClock) -> None:
    [carried] = accepted_jobs(ledger, clock, 1)
    later = dataclasses.replace(builders.RELEASE, policy_revision=digest_of("next policy"))
    builders.approve(ledger, later, name="2026-12", alias="next")
    request = dataclasses.replace(builders.a_request(), release="next")
    builders.an_accepted_job(ledger, request)
    assert reserved(ledger, reserve(ledger)) == [carried]


def test_a_worker_is_one_row_with_its_newest_heartbeat(ledger: Ledger, clock: FakeClock) -> None:
    started = clock.now()
    carries(ledger, "worker-a", "sha256:one")
    clock.advance(5)
    carries(ledger, "worker-a", "sha256:one", "sha256:two")
    row: dict[str, Any]
    [row] = all_rows(ledger, workers)
    assert (row["started_at"], row["heartbeat_at"]) == (started, clock.now())
    assert row["release_ids"] == ["sha256:one", "sha256:two"]
