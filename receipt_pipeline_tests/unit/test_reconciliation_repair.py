"""Reconciliation repairs what time and lost workers left, asks about the rest, and may be repeated."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.lifecycle import Phase
from receipt_pipeline.core.limits import Staffing
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import renew_lease
from receipt_pipeline.ledger.jobs.waves import register_worker, reserve_wave
from receipt_pipeline.ledger.releases import retire_release
from receipt_pipeline.reconciliation.compare import compare
from receipt_pipeline.reconciliation.repair import reconcile, reconcile_ledger
from receipt_pipeline_tests.builders import RELEASE, an_outcome, claimed
from receipt_pipeline_tests.fakes.failing_objects import PutFault
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_nothing_left, job_of
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan

SHORT = LimitsRequest(max_queue_age_s=47, processing_timeout_s=100)


@pytest.mark.requirement("R046", "R052")
def test_a_job_past_its_queue_deadline_expires_and_is_never_claimed(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="late", limits=SHORT)
    house.clock.advance(47)
    assert reconcile_ledger(house.services).expired == ()
    house.clock.advance(1)
    assert reconcile_ledger(house.services).expired == (job_id,)

    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == ("expired", "expired", "QUEUE.AGE_REACHED.v1")
    house.bench.work(job_id)
    assert (house.bench.attempts(job_id), house.bench.chain.asked) == ([], [])
    assert_nothing_left(house)


def test_a_claim_between_finding_and_expiring_wins(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="late", limits=SHORT)
    house.clock.advance(48)

    def claim_at_the_deadline() -> None:
        house.clock.advance(-1)
        claimed(house.ledger, job_id)

    with ActingPlan({"expire.before": claim_at_the_deadline}):
        assert reconcile_ledger(house.services).expired == ()
    assert house.bench.job(job_id)["state"] == "running"


def test_an_expired_lease_is_charged_once_and_a_renewal_in_between_wins(house: ReconcileBench) -> None:
    lost, renewed = (house.bench.accept(key=key) for key in ("lost", "renewed"))
    tokens = {job_id: claimed(house.ledger, job_id).token for job_id in (lost, renewed)}
    house.clock.advance(house.limits.work.lease_ttl_s)

    def renew() -> None:
        with house.ledger.transaction() as tx:
            write_checkpoint(tx, tokens[renewed], finished=None, next_ordinal=0, limits=house.limits)

    with ActingPlan({"takeover.before": renew}):
        assert reconcile_ledger(house.services).taken_over == (lost,)
    job = house.bench.job(lost)
    assert (job["lease_epoch"], job["lease_owner"], job["attempts_spent"]) == (2, None, 1)
    assert house.bench.attempts(lost)[0]["outcome"] == "lost"
    assert house.bench.job(renewed)["lease_epoch"] == 1
    assert_nothing_left(house)


def test_an_overrun_job_is_taken_away_and_closed_with_what_was_finished(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="slow", items=3, limits=SHORT)
    job = claimed(house.ledger, job_id)
    with house.ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=house.limits)
    finished = FinishedItem(ordinal=0, outcome=an_outcome(), invocations=1)
    with house.ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=finished, next_ordinal=1, limits=house.limits)
    house.clock.advance(100 + house.limits.work.overrun_grace_s)
    with house.ledger.transaction() as tx:
        assert renew_lease(tx, job.token, lease_ttl_s=house.limits.work.lease_ttl_s)
    assert reconcile(house.services).overrun == (job_id,)
    assert_nothing_left(house)

    house.bench.work(job_id)
    closed = house.bench.job(job_id)
    assert (closed["state"], closed["terminal_class"]) == ("succeeded", "partial")
    assert [item["item_class"] for item in house.bench.items(job_id)] == ["classified", "unresolved", "expired"]
    assert house.bench.chain.asked == []


def test_a_retired_release_closes_what_nobody_carries(house: ReconcileBench) -> None:
    carried = house.bench.accept(key="carried")
    with house.ledger.transaction() as tx:
        register_worker(tx, worker_id="w", release_ids=[RELEASE.release_id])
        retire_release(tx, release_id=RELEASE.release_id, retired_by="kim")
    assert reconcile_ledger(house.services).retired == ()

    house.clock.advance(house.limits.work.worker_ttl_s + 1)
    assert reconcile_ledger(house.services).retired == (carried,)
    job = house.bench.job(carried)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == (
        "failed",
        "identity_failed",
        "IDENTITY.RETIRED.v1",
    )
    assert_nothing_left(house)


def test_a_silent_wave_gives_its_jobs_back(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="reserved")
    with house.ledger.transaction() as tx:
        register_worker(tx, worker_id="w", release_ids=[RELEASE.release_id])
        wave = reserve_wave(tx, items_max=10, jobs_max=10, worker_ttl_s=house.limits.work.worker_ttl_s)
    assert wave is not None
    house.clock.advance(house.limits.work.wave_start_s)
    assert reconcile_ledger(house.services).waves_closed == (wave.wave_id,)
    assert house.bench.job(job_id)["wave_id"] is None
    assert_nothing_left(house)


def hold_for_an_unknown_upload(house: ReconcileBench, *, faults: list[PutFault]) -> str:
    job_id = house.bench.accept(key="unknown", limits=LimitsRequest(max_attempts=1))
    house.bench.objects.put_faults.extend(faults)
    house.bench.objects.blind_lookups = 1
    house.bench.work(job_id)
    assert house.bench.job(job_id)["phase"] == Phase.RECONCILING
    assert ("unknown_effect", job_id) in house.open_subjects()
    return job_id


@pytest.mark.requirement("R092", "R104")
def test_an_upload_that_did_happen_is_found_and_published_without_another_put(house: ReconcileBench) -> None:
    job_id = hold_for_an_unknown_upload(house, faults=[PutFault.ANSWER_LOST])
    puts = list(house.bench.objects.puts)
    house.bench.work(job_id)
    assert house.bench.job(job_id)["phase"] == Phase.RECONCILING

    assert reconcile(house.services).released == (job_id,)
    assert_nothing_left(house)
    house.bench.work(job_id)
    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == ("succeeded", "complete", "")
    assert house.bench.objects.puts == puts
    assert len(house.bench.chain.asked) == 1

    assert reconcile(house.services).questions_healed == 1
    assert house.open_subjects() == set()
    assert_nothing_left(house)


@pytest.mark.requirement("R104")
def test_an_upload_that_never_happened_is_abandoned_and_made_anew_from_the_checkpoints(house: ReconcileBench) -> None:
    job_id = hold_for_an_unknown_upload(house, faults=[PutFault.REFUSED])
    summary = reconcile_ledger(house.services)
    assert (len(summary.uploads_decided), summary.released) == (1, (job_id,))
    house.bench.work(job_id)
    assert house.bench.job(job_id)["state"] == "succeeded"
    assert [row["state"] for row in house.bench.effects(job_id)] == ["abandoned", "committed"]
    assert len(house.bench.chain.asked) == 1


def test_without_an_answer_from_the_store_the_job_stays_held_and_owned(house: ReconcileBench) -> None:
    job_id = hold_for_an_unknown_upload(house, faults=[PutFault.ANSWER_LOST])
    house.bench.objects.blind_lookups = 1
    summary = reconcile_ledger(house.services)
    assert (len(summary.uploads_unanswered), summary.released) == (1, ())
    assert not summary.changed
    assert house.check("every_accepted_job_is_terminal_or_owned").passed
    assert house.bench.job(job_id)["phase"] == Phase.RECONCILING


def test_a_spent_closing_bound_is_renewed_only_by_a_person(house: ReconcileBench) -> None:
    job_id = hold_for_an_unknown_upload(house, faults=[PutFault.REFUSED])
    reconcile_ledger(house.services)
    house.bench.objects.put_faults.append(PutFault.REFUSED)
    house.bench.objects.blind_lookups = 100
    for _ in range(house.limits.work.closing_attempts_max + 1):
        house.bench.work(job_id)
        house.clock.advance(PAST_RETRY_S)
    assert house.bench.job(job_id)["phase"] == Phase.RECONCILING
    assert ("unknown_effect", f"{job_id}:closing") in house.open_subjects()

    house.bench.objects.blind_lookups = 0
    assert reconcile_ledger(house.services).released == ()
    assert reconcile_ledger(house.services, granted=True).released == (job_id,)
    house.bench.work(job_id)
    assert house.bench.job(job_id)["state"] == "succeeded"
    reconcile(house.services)
    assert house.open_subjects() == set()
    assert house.check("attempts_within_budget").passed


def test_an_intent_of_a_job_that_closed_without_it_is_decided(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="canceled")

    def cancel() -> None:
        with house.ledger.transaction() as tx:
            cancel_job(tx, job_id=job_id, limits=house.limits)

    with ActingPlan({"upload.after": cancel}):
        house.bench.work(job_id)
    assert (house.bench.job(job_id)["state"], len(house.bench.stored_results(job_id))) == ("canceled", 1)
    assert len(reconcile_ledger(house.services).uploads_decided) == 1
    assert [row["state"] for row in house.bench.effects(job_id)] == ["abandoned"]
    house.finish_effects()
    house.clock.set(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=house.limits.retention.orphan_grace_s))
    assert house.check("no_object_without_success").passed
    assert_nothing_left(house)


@pytest.mark.requirement("R080", "R139")
def test_a_job_that_nobody_closes_gets_an_owned_question_that_ends_with_it(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="stuck", limits=SHORT)
    claimed(house.ledger, job_id)
    house.clock.advance(100 + house.limits.work.overrun_grace_s)
    assert reconcile_ledger(house.services).overrun == (job_id,)
    assert house.investigations() == []

    house.clock.advance(house.limits.work.closing_attempts_max * house.limits.work.lease_ttl_s)
    reconcile_ledger(house.services)
    (question,) = house.investigations()
    assert (question["kind"], question["job_id"], question["reason_code"]) == (
        "missing_terminal",
        job_id,
        "TERMINAL.MISSING.v1",
    )
    assert (question["owner"], question["last_safe_checkpoint"]) == ("operations", 0)
    assert question["deadline_at"] == house.clock.now() + dt.timedelta(
        seconds=house.limits.staffing.investigation_deadline_s
    )
    assert question["allowed_repair"]
    assert_nothing_left(house)

    house.bench.work(job_id)
    assert house.bench.job(job_id)["terminal_class"] == "timed_out"
    reconcile(house.services)
    assert ("missing_terminal", job_id) not in house.open_subjects()


def test_an_overdue_question_goes_to_the_escalation_once(house: ReconcileBench) -> None:
    hold_for_an_unknown_upload(house, faults=[PutFault.ANSWER_LOST])
    house.bench.objects.blind_lookups = 100
    house.clock.advance(house.limits.staffing.investigation_deadline_s + 1)
    with pytest.raises(ObjectFault, match=r"OBJECT\.UNREADABLE\.v1"):
        house.bench.objects.digest("results/x/1-y")
    reconcile_ledger(house.services)
    assert {row["owner"] for row in house.investigations() if row["kind"] == "unknown_effect"} == {"operations-lead"}
    before = house.snapshot()
    reconcile_ledger(house.services)
    assert house.snapshot() == before


@pytest.mark.requirement("R156", "R158")
def test_a_house_full_of_trouble_is_settled_by_one_pass(house: ReconcileBench) -> None:
    house.finished(key="fine")
    missing = house.finished(key="missing")
    house.path(missing["result_key"]).unlink()
    house.bench.accept(key="expires", limits=SHORT)
    claimed(house.ledger, house.bench.accept(key="lost"))
    hold_for_an_unknown_upload(house, faults=[PutFault.ANSWER_LOST])
    house.store_at("results/job_nobody/1-aa", b"strange", age_s=house.limits.retention.orphan_grace_s)
    house.clock.advance(house.limits.work.lease_ttl_s + 48)
    assert not compare(house.services).agrees

    summary = reconcile(house.services)
    assert (len(summary.expired), len(summary.taken_over), len(summary.released)) == (1, 1, 1)
    assert_nothing_left(house)
    for question in house.investigations():
        assert question["owner"] == "operations"
        assert question["deadline_at"] > house.clock.now()
        assert question["allowed_repair"]
    for name in ("items_balance_to_accepted", "every_accepted_job_is_terminal_or_owned"):
        assert house.check(name).passed


def test_finding_repairs_nothing(house: ReconcileBench) -> None:
    missing = house.finished(key="missing")
    house.path(missing["result_key"]).unlink()
    house.bench.accept(key="expires", limits=SHORT)
    house.clock.advance(house.limits.work.overrun_grace_s + 48)
    before = house.snapshot()
    found = compare(house.services)
    assert house.snapshot() == before
    assert [fault.job_id for fault in found.faults] == [missing["job_id"]]
    assert [row["job_id"] for row in found.findings["missing_terminal"].rows] == [job_of(house, "expires")["job_id"]]


def test_a_bound_of_no_escalation_leaves_the_owner(house: ReconcileBench) -> None:
    hold_for_an_unknown_upload(house, faults=[PutFault.ANSWER_LOST])
    house.bench.objects.blind_lookups = 100
    house.limits = replace(house.limits, staffing=Staffing(escalation="gone"))
    house.clock.advance(house.limits.staffing.investigation_deadline_s + 1)
    reconcile_ledger(house.services)
    assert {row["owner"] for row in house.investigations()} == {"operations"}
