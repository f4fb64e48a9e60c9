"""The sets of the release gate: every accepted job in one of them, and every contradiction visible."""

from __future__ import annotations

import datetime as dt

import pytest

from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.effects.objects import ObjectObservation, ObjectOutcome, record_object_check
from receipt_pipeline.ledger.invariants.account import AccountSets, account_sets
from receipt_pipeline.ledger.invariants.objects import gone_and_altered
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.reconciliation.repair import reconcile_ledger
from receipt_pipeline_tests.builders import claimed
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench

SHORT = LimitsRequest(max_queue_age_s=47, processing_timeout_s=100)


def sets_of(house: ReconcileBench, *, cutoff: dt.datetime | None = None) -> AccountSets:
    with house.ledger.reading() as tx:
        found = account_sets(tx, limits=house.limits, cutoff=cutoff)
    if not (found.orphan_terminal or found.overlapping):
        parts = [*found.terminal.values(), found.in_flight, frozenset(job for job, _ in found.unresolved)]
        assert sum(map(len, parts)) == len(found.accepted)
        assert frozenset().union(*parts) == found.accepted
    return found


def test_nothing_accepted_is_empty_sets(house: ReconcileBench) -> None:
    found = sets_of(house)
    assert (found.accepted, found.in_flight, found.unresolved) == (frozenset(), frozenset(), ())
    assert found.as_of == house.clock.now()


@pytest.mark.requirement("R138")
def test_every_accepted_job_is_in_one_set(house: ReconcileBench) -> None:
    succeeded = house.succeeded(key="succeeded")["job_id"]
    canceled, expired = house.bench.accept(key="canceled"), house.bench.accept(key="expired", limits=SHORT)
    with house.ledger.transaction() as tx:
        cancel_job(tx, job_id=canceled, limits=house.limits)
    house.clock.advance(48)
    reconcile_ledger(house.services)
    waiting, working = house.bench.accept(key="waiting"), house.bench.accept(key="working")
    claimed(house.ledger, working)

    found = sets_of(house)
    assert found.terminal == {
        JobState.SUCCEEDED: {succeeded},
        JobState.FAILED: frozenset(),
        JobState.EXPIRED: {expired},
        JobState.CANCELED: {canceled},
    }
    assert found.in_flight == {waiting, working}
    assert found.unresolved == ()


@pytest.mark.requirement("R138")
def test_a_held_job_is_never_in_flight(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="held")
    claimed(house.ledger, job_id)
    for phase in ("reconciling", "quarantined"):
        house.edit("UPDATE jobs SET phase = :phase WHERE job_id = :job", job=job_id, phase=phase)
        assert sets_of(house).unresolved == ((job_id, phase),)


@pytest.mark.requirement("R080", "R138")
def test_an_open_job_past_its_deadline_and_grace_is_unresolved_and_in_no_terminal_set(house: ReconcileBench) -> None:
    queued, running = (house.bench.accept(key=key, limits=SHORT) for key in ("queued", "running"))
    claimed(house.ledger, running)
    house.clock.advance(47 + house.limits.work.overrun_grace_s)
    assert sets_of(house).in_flight == {queued, running}
    house.clock.advance(1)
    assert sets_of(house).unresolved == ((queued, "queue_overdue"),)
    house.clock.advance(52)
    assert dict(sets_of(house).unresolved) == {queued: "queue_overdue", running: "processing_overdue"}


def test_a_job_in_closing_has_the_time_of_its_closing_attempts(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="closing", limits=SHORT)
    claimed(house.ledger, job_id)
    house.clock.advance(100 + house.limits.work.overrun_grace_s)
    reconcile_ledger(house.services)
    assert sets_of(house).in_flight == {job_id}
    house.clock.advance(house.limits.work.closing_attempts_max * house.limits.work.lease_ttl_s)
    assert sets_of(house).unresolved == ((job_id, "closing_overdue"),)


def test_at_a_cutoff_a_deadline_after_it_is_in_flight_and_one_before_it_has_no_grace(house: ReconcileBench) -> None:
    start = house.clock.now()
    early, late = house.bench.accept(key="early", limits=SHORT), house.bench.accept(key="late")
    house.clock.advance(10)
    after = house.bench.accept(key="after")
    found = sets_of(house, cutoff=start + dt.timedelta(seconds=9))
    assert found.accepted == found.in_flight == {early, late}
    found = sets_of(house, cutoff=start + dt.timedelta(seconds=48))
    assert found.unresolved == ((early, "queue_overdue"),)
    assert found.in_flight == {late, after}


@pytest.mark.requirement("R080")
def test_a_closed_job_without_terminal_record_is_unresolved(house: ReconcileBench) -> None:
    job_id = house.succeeded(key="withheld")["job_id"]
    house.edit("DELETE FROM events WHERE kind = 'terminal' AND job_id = :job", job=job_id)
    found = sets_of(house)
    assert found.unresolved == ((job_id, "terminal_without_record"),)
    assert found.terminal[JobState.SUCCEEDED] == frozenset()


def test_a_record_of_an_unaccepted_job_is_an_orphan_in_its_set(house: ReconcileBench) -> None:
    job_id = house.succeeded(key="one")["job_id"]
    copy = (
        "INSERT INTO events (job_id, tenant, kind, at, data)"
        " SELECT 'job_nobody', tenant, kind, at, data FROM events WHERE kind = 'terminal' AND job_id = :job"
    )
    house.edit(copy, job=job_id)
    found = sets_of(house)
    assert found.orphan_terminal == ("job_nobody",)
    assert found.terminal[JobState.SUCCEEDED] - found.accepted == {"job_nobody"}


def test_a_job_whose_row_and_record_disagree_is_in_both_sets(house: ReconcileBench) -> None:
    job_id = house.succeeded(key="one")["job_id"]
    house.edit("UPDATE jobs SET state = 'failed' WHERE job_id = :job", job=job_id)
    found = sets_of(house)
    assert found.overlapping == (job_id,)
    assert job_id in found.terminal[JobState.SUCCEEDED] & found.terminal[JobState.FAILED]


def test_unresolved_items_of_closed_jobs_are_counted(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="lossy", items=3)
    house.lose_item(job_id, times=3)
    assert sets_of(house).unresolved_items == {}
    house.bench.work_until_closed(job_id)
    assert sets_of(house).unresolved_items == {job_id: 1}


def test_objects_gone_and_altered_are_told_apart_in_one_pass(house: ReconcileBench) -> None:
    outcomes = {outcome: house.succeeded(key=outcome) for outcome in ("missing", "unreadable", "mismatch", "ok")}
    for outcome, job in outcomes.items():
        with house.ledger.transaction() as tx:
            record_object_check(
                tx,
                ObjectObservation(object_key=job["result_key"], job_id=job["job_id"], outcome=ObjectOutcome(outcome)),
            )
    with house.ledger.reading() as tx:
        gone, altered = gone_and_altered(tx)
    assert (gone, altered) == (house.find("success_without_object"), house.find("object_mismatch"))
    assert {row["fault"] for row in gone} == {"missing", "unreadable"}
    assert {row["fault"] for row in altered} == {"mismatch"}
