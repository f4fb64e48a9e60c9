"""Dispatch waits a moment for accepted work to stop growing, and never when no slot is free."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.waves import register_worker, reserve_wave
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.worker.dispatch import await_ready
from receipt_pipeline_tests.builders import a_request, an_accepted_job

WAIT_S = 4.0
LIMITS = Limits()


class Naps:
    """A monotonic clock that only naps move; each nap may do something."""

    def __init__(self, *during: Callable[[], object]) -> None:
        self.now = 0.0
        self.taken = 0
        self._during = list(during)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.taken += 1
        if self._during:
            self._during.pop(0)()


@pytest.fixture
def accept(ledger: Ledger) -> Callable[[str], JobRow]:
    return lambda key: an_accepted_job(ledger, a_request(items=1, content=key, key=key))


def waited(ledger: Ledger, naps: Naps, limits: Limits = LIMITS) -> int:
    return await_ready(ledger, wait_s=WAIT_S, limits=limits, monotonic=naps.monotonic, sleep=naps.sleep)


def test_work_that_still_grows_is_waited_for_until_it_stands_still(
    ledger: Ledger, accept: Callable[[str], object]
) -> None:
    accept("first")
    naps = Naps(lambda: accept("second"), lambda: accept("third"))

    assert waited(ledger, naps) == 3
    assert naps.taken == 3


def test_where_nothing_comes_the_wait_ends_by_its_bound(ledger: Ledger) -> None:
    naps = Naps()

    assert waited(ledger, naps) == 0
    assert WAIT_S <= naps.now < WAIT_S + 1


def test_work_that_never_stops_growing_is_taken_at_the_bound(ledger: Ledger, accept: Callable[[str], object]) -> None:
    accept("0")
    naps = Naps(*(lambda key=str(number): accept(key) for number in range(1, 20)))

    assert waited(ledger, naps) > 1
    assert WAIT_S <= naps.now < WAIT_S + 1


def test_nobody_waits_when_every_slot_is_taken(ledger: Ledger, accept: Callable[[str], JobRow]) -> None:
    job = accept("first")
    with ledger.transaction() as tx:
        register_worker(tx, worker_id="w", release_ids=[job.release_id])
        assert reserve_wave(tx, items_max=1, jobs_max=1, worker_ttl_s=60) is not None
    accept("second")
    naps = Naps()

    assert waited(ledger, naps, Limits().replace(wave_slots=1)) == 0
    assert naps.taken == 0
