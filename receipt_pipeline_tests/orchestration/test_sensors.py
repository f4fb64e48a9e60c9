"""Sensors: each tick does its bounded part, keeps its cursor in the ledger, and may be repeated or lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from receipt_pipeline.app import maintenance, reviewer, submitter
from receipt_pipeline.app.context import Chains
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import remove_plan
from receipt_pipeline.core.reasons import DRILL_FAILED_HERE
from receipt_pipeline.defs.sensors import deliveries, dispatch, reconcile, run_failures, submissions
from receipt_pipeline.defs.waves import WAVE_TAG
from receipt_pipeline.drill.failure_plan import Fault, PlannedFault, install_from, plan_text
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.ledger.schema import jobs as tables
from receipt_pipeline_tests.builders import RELEASE, TENANT, approve, claimed
from receipt_pipeline_tests.intake_home import as_bytes, job_document
from receipt_pipeline_tests.orchestration.conftest import OpenHome
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome


@pytest.fixture(autouse=True)
def _no_plan_stays() -> Iterator[None]:
    yield
    remove_plan()


def requests_of(home: OpenedHome) -> list[tuple[str | None, str]]:
    asked = home.tick(dispatch).run_requests or []
    return [(request.run_key, request.tags[WAVE_TAG]) for request in asked]


def drop_manifest(home: OpenedHome, key: str, **fields: Any) -> None:
    place = home.app.settings.inbox / TENANT
    document = job_document(place, key=key, **fields)
    (place / f"{key}.json").write_bytes(as_bytes(document))


def install(*faults: PlannedFault) -> None:
    install_from(plan_text(*faults), enabled=True, silence=lambda: None)


def worked(home: OpenedHome, key: str, **given: Any) -> str:
    job_id = home.submit(key, **given)
    for wave_id in home.dispatch():
        assert home.run_wave(wave_id).success
    return job_id


def test_a_dropped_manifest_is_accepted_by_the_next_tick_and_only_once(opened: OpenedHome) -> None:
    drop_manifest(opened, "dropped", count=2)
    first = opened.tick(submissions)
    assert first.run_requests == []
    assert first.skip_message == "inbox: 1 accepted"
    (job,) = submitter.list_jobs(opened.app, opened.principal)
    assert (job["idempotency_key"], job["state"], job["items_requested"]) == ("dropped", "accepted", 2)
    assert opened.tick(submissions).skip_message == "inbox: nothing to do"
    assert len(submitter.list_jobs(opened.app, opened.principal)) == 1


def test_a_ready_job_becomes_one_request_by_whose_tags_the_ui_finds_the_run(opened: OpenedHome) -> None:
    job_id = opened.submit("job")
    (request,) = opened.tick(dispatch).run_requests
    wave_id = request.tags[WAVE_TAG]
    assert request.run_key == f"{wave_id}:1"
    assert {WAVE_TAG: wave_id, f"receipt.job/{job_id}": wave_id}.items() <= request.tags.items()
    assert opened.job(job_id)["wave_id"] == wave_id
    assert [row["wave_id"] for row in opened.waves()] == [wave_id]
    assert opened.job(job_id)["state"] == "accepted"


@pytest.mark.requirement("R159")
def test_acceptance_can_lack_delivery_and_a_repeated_tick_asks_for_the_same_run(opened: OpenedHome) -> None:
    opened.submit("job")
    asked = requests_of(opened)
    for _ in range(3):  # The daemon may die before the launch: nothing but the ledger remembers.
        assert requests_of(opened) == asked
    assert len(opened.waves()) == 1


def test_a_wave_that_runs_is_not_asked_for_again(opened: OpenedHome) -> None:
    opened.submit("job")
    ((_, wave_id),) = requests_of(opened)
    maintenance.begin_wave(opened.app, wave_id, run_id="run-1", items_per_group=8)
    tick = opened.tick(dispatch)
    assert (tick.run_requests, tick.skip_message) == ([], "0 jobs (0 items) waiting, 1 wave running")


def test_ready_jobs_are_shared_among_the_slots_and_each_is_in_one_wave(opened: OpenedHome) -> None:
    job_ids = [opened.submit(f"job-{number}") for number in range(5)]
    asked = requests_of(opened)
    assert len(asked) == len(set(asked)) == opened.app.settings.limits.work.wave_slots
    reserved = [opened.job(job_id)["wave_id"] for job_id in job_ids]
    assert {wave_id for _, wave_id in asked} == set(reserved)
    assert sum(row["jobs_total"] for row in opened.waves()) == len(job_ids)


def test_evaluating_dispatch_without_launching_harms_nothing(opened: OpenedHome) -> None:
    job_id = opened.submit("job")
    ((_, shown),) = requests_of(opened)
    opened.clock.advance(opened.app.settings.limits.work.wave_start_s + 1)
    ((_, wave_id),) = requests_of(opened)
    assert wave_id != shown
    assert opened.bench.bench.attempts(job_id) == []
    assert opened.run_wave(shown).success  # Should the first be launched after all, it has nothing left.
    assert opened.job(job_id)["state"] == "accepted"
    assert opened.run_wave(wave_id).success
    assert opened.job(job_id)["state"] == "succeeded"


@pytest.mark.requirement("R020")
@pytest.mark.parametrize("place", ["accept.after", "reserve.before", "reserve.after"])
def test_a_crash_between_acceptance_and_launch_leaves_a_record_that_is_enqueued_once(
    opened: OpenedHome, place: str
) -> None:
    install(PlannedFault(place, Fault.ERROR))

    def until_the_crash() -> None:
        opened.submit("job", items=2)
        opened.tick(dispatch)

    with pytest.raises(PipelineError, match=DRILL_FAILED_HERE.code):
        until_the_crash()
    remove_plan()
    (listed,) = submitter.list_jobs(opened.app, opened.principal)
    job = opened.job(listed["job_id"])
    assert (job["tenant"], job["caller"]) == (TENANT, "kim")
    assert job["fingerprint"].startswith("sha256:")
    assert job["result_retention_s"] > 0
    assert submitter.read_status(opened.app, opened.principal, job["job_id"])["state"] == "accepted"
    asked = requests_of(opened)
    assert requests_of(opened) == asked
    assert [wave_id for _, wave_id in asked] == [row["wave_id"] for row in opened.waves()]
    assert len(asked) == 1


def test_a_job_whose_release_no_worker_supports_waits_and_the_tick_says_so(opened: OpenedHome) -> None:
    approve(opened.app.ledger, RELEASE, name="elsewhere", alias="elsewhere")
    job_id = opened.submit("job", items=2, release="elsewhere")
    assert opened.tick(dispatch).skip_message == (
        "1 job (2 items) waiting, 0 waves running, next deadline 29 Nov 2026, 08:00 UTC;"
        " no worker supports the release of 1 job"
    )
    assert opened.job(job_id)["phase"] == "no_capable_worker"
    assert opened.waves() == []


def test_deliveries_writes_the_status_document_the_notification_and_the_tasks(opened: OpenedHome) -> None:
    job_id = worked(opened, "job", items=2)
    opened.tick(deliveries)
    outbox = opened.app.settings.outbox / TENANT
    document = json.loads((outbox / f"{job_id}.status.json").read_bytes())
    assert (document["job_id"], document["state"]) == (job_id, "succeeded")
    assert len(reviewer.list_tasks(opened.app, opened.principal, only_open=False, job_id=job_id)) == 2
    assert [row["state"] for row in opened.bench.bench.messages(job_id)] == ["sent"]
    assert maintenance.jobs_with_unfinished_effects(opened.app, [job_id]) == []

    rows = opened.bench.snapshot()
    assert opened.tick(deliveries).skip_message == "effects: nothing to do"
    assert opened.bench.snapshot() == rows


@pytest.mark.requirement("R079")
def test_the_consumer_waits_for_no_notification(opened: OpenedHome) -> None:
    job_id = worked(opened, "job", items=2)
    install(PlannedFault("outbox_send.drop", Fault.ALTER, times=1_000))
    opened.tick(deliveries)
    with opened.app.ledger.reading() as tx:
        sent = tx.rows(effect_tables.deliveries.select().where(effect_tables.deliveries.c.job_id == job_id))
    assert {row["outcome"] for row in sent} == {"dropped"}
    assert len(reviewer.list_tasks(opened.app, opened.principal, only_open=False, job_id=job_id)) == 2


def test_deleting_a_status_document_loses_nothing(opened: OpenedHome) -> None:
    job_id = opened.submit("job")
    path = opened.app.settings.outbox / TENANT / f"{job_id}.status.json"
    assert json.loads(path.read_bytes())["state"] == "accepted"
    path.unlink()
    maintenance.reconcile_everything(opened.app)
    assert json.loads(path.read_bytes())["state"] == "accepted"


@pytest.mark.requirement("R046", "R047", "R048")
def test_reconcile_expires_an_overdue_job_once_and_counts_it_once(opened: OpenedHome) -> None:
    job_id = opened.submit("late", limits={"max_queue_age_s": 47})
    opened.clock.advance(47)
    opened.tick(reconcile)
    assert opened.job(job_id)["state"] == "accepted"
    opened.clock.advance(1)
    opened.tick(reconcile)
    status = submitter.read_status(opened.app, opened.principal, job_id)
    assert (status["state"], status["terminal_class"]) == ("expired", "expired")
    assert status["reason"]["code"] == "QUEUE.AGE_REACHED.v1"
    assert opened.chain.asked == []
    assert opened.bench.bench.attempts(job_id) == []
    assert requests_of(opened) == []
    for _ in range(2):
        opened.tick(reconcile)
        assert maintenance.count_records(opened.app)["job_ledger"]["expired"] == 1


@pytest.mark.requirement("R158", "R159")
def test_reconcile_is_repeatable_and_moves_nothing_without_new_evidence(open_named: OpenHome) -> None:
    home = open_named(wave_slots=1)
    settled = worked(home, "settled", items=2)
    home.tick(deliveries)
    home.submit("late", limits={"max_queue_age_s": 47})
    home.clock.advance(48)
    home.tick(reconcile)
    rows = home.bench.snapshot()
    for _ in range(2):
        assert home.tick(reconcile).skip_message == "reconciled: nothing to do"
        assert home.bench.snapshot() == rows
    assert home.job(settled)["state"] == "succeeded"


@pytest.mark.requirement("R051")
def test_reconcile_takes_an_expired_lease_away_and_dispatch_hands_the_job_out_again(opened: OpenedHome) -> None:
    job_id = opened.submit("job", items=2)
    ((_, lost_wave),) = requests_of(opened)
    pins = opened.job(job_id)["release_id"]
    maintenance.begin_wave(opened.app, lost_wave, run_id="lost", items_per_group=8)
    token = claimed(opened.app.ledger, job_id).token
    opened.clock.advance(opened.app.settings.limits.work.wave_ttl_s + 1)
    opened.tick(reconcile)
    assert opened.job(job_id)["lease_epoch"] > token.lease_epoch
    opened.clock.advance(opened.app.settings.limits.work.retry_cap_s)
    ((_, wave_id),) = requests_of(opened)
    assert wave_id != lost_wave
    assert opened.run_wave(wave_id).success
    job = opened.job(job_id)
    assert (job["state"], job["release_id"]) == ("succeeded", pins)
    assert [row["outcome"] for row in opened.bench.bench.attempts(job_id)] == ["lost", "committed"]


def test_a_failed_run_closes_its_wave_and_its_unclaimed_jobs_are_ready_again(
    open_named: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_read(_chains: Chains) -> None:
        raise OSError("the reader's models cannot be read")

    home = open_named(wave_slots=1)
    job_ids = [home.submit(f"job-{number}") for number in range(2)]
    ((_, wave_id),) = requests_of(home)
    monkeypatch.setattr(Chains, "warm_up", cannot_read)
    with dg.DagsterInstance.ephemeral() as instance:
        result = home.run_wave(wave_id, instance=instance)
        assert not result.success
        assert [row["state"] for row in home.waves()] == ["open"]
        assert requests_of(home) == []
        context = dg.build_run_status_sensor_context(
            sensor_name=run_failures.name,
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=result.get_run_failure_event(),
        )
        run_failures(context.for_run_failure())
    assert [row["state"] for row in home.waves()] == ["closed"]
    assert {home.job(job_id)["wave_id"] for job_id in job_ids} == {None}
    ((_, again),) = requests_of(home)
    assert again != wave_id


def test_no_sensor_keeps_a_cursor_outside_the_ledger(opened: OpenedHome) -> None:
    drop_manifest(opened, "dropped")
    ticks = [opened.tick(sensor) for sensor in (submissions, dispatch, deliveries, reconcile)]
    assert {tick.cursor for tick in ticks} == {None}
    with opened.app.ledger.reading() as tx:
        assert len(tx.rows(tables.jobs.select())) == 1
