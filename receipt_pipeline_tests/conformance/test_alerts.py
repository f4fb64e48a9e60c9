"""Every condition raises one alert on every ledger, says it once, and is resolved when it is mended."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from receipt_pipeline.core.alerts import DEFAULT_PHASE_S, MEANINGS, AlertKind, AlertThresholds
from receipt_pipeline.ledger.effects.alerts import list_alerts, open_alerts
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.invariants import work as findings_capacity
from receipt_pipeline.ledger.jobs.waves import register_worker
from receipt_pipeline.ledger.schema.jobs import items
from receipt_pipeline.reconciliation.checks import AlertSummary, review_alerts
from receipt_pipeline.reconciliation.repair import reconcile_ledger
from receipt_pipeline_tests.builders import claimed
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench

# Long waits are for the tests that are about them.
CALM = AlertThresholds(daemon_silent_s=1e9, queue_age_s=1e9, phase_s=dict.fromkeys(DEFAULT_PHASE_S, 1e9))


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> ReconcileBench:
    house = ReconcileBench.build(ledger, clock, tmp_path)
    house.finished(key="healthy")
    return house


def look(house: ReconcileBench, thresholds: AlertThresholds = CALM) -> AlertSummary:
    return review_alerts(house.services, thresholds, whole=True)


def standing(house: ReconcileBench) -> list[tuple[str, str]]:
    with house.ledger.reading() as tx:
        return [(row["kind"], row["subject"]) for row in open_alerts(tx)]


Condition = Callable[[ReconcileBench], tuple[str, Callable[[], object], AlertThresholds]]


def _phase_age(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = house.bench.accept(key="waiting")
    house.clock.advance(101)
    thresholds = dataclasses.replace(CALM, phase_s={"queued": 100.0})
    return job_id, lambda: house.bench.work(job_id), thresholds


def _lease_expired(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = house.bench.accept(key="left")
    claimed(house.ledger, job_id)
    house.clock.advance(house.limits.work.lease_ttl_s + CALM.lease_expired_s + 1)
    return job_id, lambda: reconcile_ledger(house.services), CALM


def _owner_changes(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = house.bench.accept(key="deadly")
    for number in range(2):
        claimed(house.ledger, job_id, owner=f"worker-{number}")
        house.clock.advance(house.limits.work.lease_ttl_s + 1)
        reconcile_ledger(house.services)
        house.clock.advance(house.limits.work.retry_cap_s)
    thresholds = dataclasses.replace(CALM, owner_changes=2)
    return job_id, lambda: house.bench.work_until_closed(job_id), thresholds


def _checkpoint_stale(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = house.bench.accept(key="busy")
    claimed(house.ledger, job_id)
    house.clock.advance(house.limits.work.lease_ttl_s / 2)
    thresholds = dataclasses.replace(CALM, checkpoint_stale_s=house.limits.work.lease_ttl_s / 4)

    def mend() -> None:
        house.clock.advance(house.limits.work.lease_ttl_s)
        reconcile_ledger(house.services)

    return job_id, mend, thresholds


def _budget_exhausted(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = house.bench.accept(key="tried")
    house.edit("UPDATE jobs SET attempts_spent = max_attempts WHERE job_id = :job", job=job_id)
    undo = "UPDATE jobs SET attempts_spent = 0 WHERE job_id = :job"
    return job_id, lambda: house.edit(undo, job=job_id), CALM


def _effect_gap(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = str(house.succeeded(key="unconsumed")["job_id"])
    house.clock.advance(house.limits.delivery.effect_deadline_s + 1)
    return job_id, house.finish_effects, CALM


def _unbalanced(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = str(house.finished(key="other")["job_id"])
    house.edit("UPDATE jobs SET items_requested = items_requested + 1 WHERE job_id = :job", job=job_id)
    undo = "UPDATE jobs SET items_requested = items_requested - 1 WHERE job_id = :job"
    return job_id, lambda: house.edit(undo, job=job_id), CALM


def _queue_age(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = house.bench.accept(key="old")
    house.clock.advance(61)
    return "queue", lambda: house.bench.work(job_id), dataclasses.replace(CALM, queue_age_s=60.0)


def _capacity(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    job_id = house.bench.accept(key="many")
    house.edit("UPDATE items SET begun_at = finished_at - 864000000000 WHERE finished_at IS NOT NULL")
    return "capacity", lambda: house.bench.work(job_id), CALM


def _daemon_silent(house: ReconcileBench) -> tuple[str, Callable[[], object], AlertThresholds]:
    house.bench.accept(key="unseen")
    house.clock.advance(121)

    def mend() -> None:
        with house.ledger.transaction() as tx:
            register_worker(tx, worker_id="code-location", release_ids=[])

    return "code_location", mend, dataclasses.replace(CALM, daemon_silent_s=120.0)


CONDITIONS: dict[AlertKind, Condition] = {
    AlertKind.PHASE_AGE: _phase_age,
    AlertKind.LEASE_EXPIRED: _lease_expired,
    AlertKind.OWNER_CHANGES: _owner_changes,
    AlertKind.CHECKPOINT_STALE: _checkpoint_stale,
    AlertKind.BUDGET_EXHAUSTED: _budget_exhausted,
    AlertKind.EFFECT_GAP: _effect_gap,
    AlertKind.UNBALANCED_TOTALS: _unbalanced,
    AlertKind.QUEUE_AGE: _queue_age,
    AlertKind.CAPACITY: _capacity,
    AlertKind.DAEMON_SILENT: _daemon_silent,
}


def test_every_kind_has_its_condition_here_and_its_meaning() -> None:
    assert set(CONDITIONS) == set(AlertKind) - {AlertKind.TEST}
    assert set(MEANINGS) == set(AlertKind)


@pytest.mark.requirement("R145")
@pytest.mark.parametrize("kind", sorted(CONDITIONS))
def test_a_condition_raises_one_alert_once_and_mending_resolves_it(house: ReconcileBench, kind: AlertKind) -> None:
    assert look(house) == AlertSummary()
    subject, mend, thresholds = CONDITIONS[kind](house)

    raised = look(house, thresholds)
    assert standing(house) == [(kind.value, subject)]
    assert (len(raised.raised), raised.resolved) == (1, ())

    before = house.snapshot()
    assert look(house, thresholds) == AlertSummary()
    assert house.snapshot() == before

    mend()
    resolved = look(house, thresholds)
    assert (resolved.raised, resolved.resolved) == ((), raised.raised)
    assert standing(house) == []


@pytest.mark.requirement("R145")
def test_a_healthy_home_is_silent_under_the_thresholds_that_ship(house: ReconcileBench) -> None:
    house.bench.accept(key="just accepted")
    assert look(house, AlertThresholds()) == AlertSummary()
    with house.ledger.reading() as tx:
        assert list_alerts(tx, limit=10) == []


@pytest.mark.parametrize("kind", [AlertKind.EFFECT_GAP, AlertKind.UNBALANCED_TOTALS])
def test_a_quick_look_neither_raises_nor_resolves_what_only_the_whole_ledger_shows(
    house: ReconcileBench, kind: AlertKind
) -> None:
    subject, mend, _ = CONDITIONS[kind](house)
    assert review_alerts(house.services, CALM, whole=False) == AlertSummary()
    look(house)
    mend()
    assert review_alerts(house.services, CALM, whole=False) == AlertSummary()
    assert standing(house) == [(kind.value, subject)]
    assert len(look(house).resolved) == 1


def test_a_condition_that_comes_back_raises_another_alert(house: ReconcileBench) -> None:
    job_id, mend, _ = _budget_exhausted(house)
    first = look(house).raised
    mend()
    look(house)
    house.edit("UPDATE jobs SET attempts_spent = max_attempts WHERE job_id = :job", job=job_id)
    second = look(house).raised
    assert (len(first), len(second)) == (1, 1)
    assert first != second


def test_the_rate_is_that_of_the_items_finished_last(house: ReconcileBench, monkeypatch: pytest.MonkeyPatch) -> None:
    house.finished(key="later", items=3)
    # The first item of all took a minute; those after it one, two, three and four seconds.
    with house.ledger.transaction() as tx:
        now = tx.now()
        worked = tx.rows(select(items).order_by(items.c.finished_at, items.c.ordinal))
        for number, row in enumerate(sorted(worked, key=lambda row: row["job_id"] != worked[0]["job_id"])):
            finished = now + dt.timedelta(hours=number)
            took = dt.timedelta(seconds=number or 60)
            mine = (items.c.job_id == row["job_id"]) & (items.c.ordinal == row["ordinal"])
            tx.execute(items.update().where(mine).values(finished_at=finished, begun_at=finished - took))
    for bound, mean_s in ((1, 4.0), (2, 3.5), (4, 2.5), (5, 14.0)):
        monkeypatch.setattr(findings_capacity, "RECENT_ITEMS", bound)
        with house.ledger.reading() as tx:
            assert findings_capacity.item_seconds(tx, assumed_s=9.0) == pytest.approx(mean_s)
