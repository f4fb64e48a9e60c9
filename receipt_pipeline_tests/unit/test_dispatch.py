"""From ready jobs to waves: fair shares, bounded reservations, and a pass that may be repeated or lost."""

from __future__ import annotations

import pytest

from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction
from receipt_pipeline.ledger.jobs.waves import close_wave, open_waves, renew_wave, wave_jobs
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.worker.dispatch import Dispatched, dispatch_waves, plan_groups
from receipt_pipeline_tests.builders import LIMITS, RELEASE, an_accepted_job, claimed
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

CARRIED = (RELEASE.release_id,)


def dispatch(ledger: Ledger, *, carried: tuple[str, ...] = CARRIED, **limits: int) -> Dispatched:
    bounds = LIMITS.replace(**limits)
    return dispatch_waves(ledger, worker_id="host:1", release_ids=carried, limits=bounds)


def accept(ledger: Ledger, *sizes: int) -> list[str]:
    return [str(an_accepted_job(ledger, items=size).job_id) for size in sizes]


def sizes(dispatched: Dispatched) -> list[tuple[int, int]]:
    return [(wave.jobs_total, wave.items_total) for wave in dispatched.to_launch]


def start(ledger: Ledger, dispatched: Dispatched) -> None:
    for wave in dispatched.to_launch:
        with ledger.transaction() as tx:
            assert renew_wave(tx, wave.wave_id, run_id="run")


def test_nothing_ready_makes_no_wave(ledger: Ledger) -> None:
    assert dispatch(ledger) == Dispatched((), (), ())


def test_what_is_ready_is_shared_among_the_free_slots(ledger: Ledger) -> None:
    accept(ledger, *[1] * 6)
    assert sizes(dispatch(ledger, wave_slots=3)) == [(2, 2), (2, 2), (2, 2)]


def test_a_large_job_is_never_split_and_leaves_the_other_slot_to_the_small_ones(ledger: Ledger) -> None:
    accept(ledger, 10, 1, 1)
    assert sizes(dispatch(ledger, wave_slots=2)) == [(1, 10), (2, 2)]


def test_waves_are_bounded_by_items_and_by_jobs(ledger: Ledger) -> None:
    accept(ledger, *[2] * 6)
    assert sizes(dispatch(ledger, wave_slots=1, wave_items_max=5)) == [(2, 4)]
    start(ledger, dispatch(ledger, wave_slots=1))
    assert sizes(dispatch(ledger, wave_slots=2, wave_jobs_max=1)) == [(1, 2)]


def test_the_oldest_job_goes_first(ledger: Ledger, clock: FakeClock) -> None:
    (first,) = accept(ledger, 1)
    clock.advance(1)
    accept(ledger, 1)
    (wave, *_) = dispatch(ledger, wave_slots=2).to_launch
    with ledger.reading() as tx:
        assert [row["job_id"] for row in wave_jobs(tx, wave.wave_id)] == [first]


def test_a_repeated_pass_hands_the_same_waves_out_until_they_begin(ledger: Ledger) -> None:
    accept(ledger, 1, 1)
    first = dispatch(ledger)
    assert dispatch(ledger) == first
    assert {wave.run_key for wave in first.to_launch} == {f"{w.wave_id}:1" for w in first.to_launch}
    start(ledger, first)
    assert dispatch(ledger).to_launch == ()


def test_a_full_house_reserves_nothing_more(ledger: Ledger) -> None:
    accept(ledger, 1)
    start(ledger, dispatch(ledger, wave_slots=1))
    accept(ledger, 1)
    assert dispatch(ledger, wave_slots=1).to_launch == ()
    assert len(dispatch(ledger, wave_slots=2).to_launch) == 1


def test_a_silent_wave_is_closed_and_its_jobs_are_in_a_new_one(ledger: Ledger, clock: FakeClock) -> None:
    (job_id,) = accept(ledger, 1)
    (silent,) = dispatch(ledger).to_launch
    clock.advance(LIMITS.work.wave_start_s + 1)
    again = dispatch(ledger)
    assert again.closed == (silent.wave_id,)
    (wave,) = again.to_launch
    assert wave.wave_id != silent.wave_id
    with ledger.reading() as tx:
        job = read_job(tx, job_id)
        assert [row["wave_id"] for row in open_waves(tx)] == [wave.wave_id]
    assert job is not None
    assert job.wave_id == wave.wave_id


def test_a_claimed_job_is_not_ready_while_its_lease_lives(ledger: Ledger, clock: FakeClock) -> None:
    (job_id,) = accept(ledger, 1)
    claimed(ledger, job_id)
    assert dispatch(ledger).to_launch == ()
    clock.advance(LIMITS.work.lease_ttl_s + 1)
    assert len(dispatch(ledger).to_launch) == 1


def test_a_closed_wave_frees_its_jobs_and_those_in_work_wait_for_their_leases(ledger: Ledger) -> None:
    in_work, left = accept(ledger, 1, 1)
    (wave,) = dispatch(ledger, wave_slots=1).to_launch
    claimed(ledger, in_work)
    with ledger.transaction() as tx:
        assert close_wave(tx, wave.wave_id) == 2
    (again,) = dispatch(ledger, wave_slots=1).to_launch
    with ledger.reading() as tx:
        assert [row["job_id"] for row in wave_jobs(tx, again.wave_id)] == [left]


def phase_of(tx: LedgerTransaction, job_id: str) -> str:
    job = read_job(tx, job_id)
    assert job is not None
    return job.phase


def test_jobs_that_nobody_carries_wait_visibly_until_somebody_does(ledger: Ledger) -> None:
    (job_id,) = accept(ledger, 1)
    stranded = dispatch(ledger, carried=())
    assert (stranded.to_launch, stranded.stranded) == ((), (job_id,))
    with ledger.reading() as tx:
        assert phase_of(tx, job_id) == "no_capable_worker"
    found = dispatch(ledger)
    assert (len(found.to_launch), found.stranded) == (1, ())
    with ledger.reading() as tx:
        assert phase_of(tx, job_id) == "queued"


@pytest.mark.parametrize(
    ("wave", "groups"),
    [
        ([], []),
        ([("a", 1)], [["a"]]),
        ([("a", 4), ("b", 4)], [["a", "b"]]),
        ([("a", 4), ("b", 5)], [["a"], ["b"]]),
        ([("a", 1), ("b", 20), ("c", 1), ("d", 1)], [["a"], ["b"], ["c", "d"]]),
        ([("a", 8), ("b", 8)], [["a"], ["b"]]),
    ],
)
def test_small_jobs_share_a_group_and_a_large_one_is_alone(
    wave: list[tuple[str, int]], groups: list[list[str]]
) -> None:
    assert plan_groups(wave, items_per_group=8) == groups
