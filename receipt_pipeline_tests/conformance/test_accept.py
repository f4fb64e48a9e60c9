"""Acceptance on every ledger: one row per key, frozen pins and deadlines, evidence of repetition."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading

import pytest
from sqlalchemy.exc import IntegrityError

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import InputRefused, KeyConflict
from receipt_pipeline.core.request import JobRequest, LimitsRequest, resolve_limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.accept import Lineage, NewJob, find_replay, insert_job, record_replay
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.finalize import close_without_result
from receipt_pipeline.ledger.releases import move_alias, retire_release
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.jobs import items, jobs
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, event_kinds, job_row
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

THREADS = 6


def accept_once_more(ledger: Ledger, request: JobRequest, *, tenant: str = builders.TENANT) -> JobRow:
    with ledger.transaction() as tx:
        known = find_replay(tx, tenant=tenant, request=request)
        if known is not None:
            record_replay(tx, known, door="test")
            return known
    try:
        return builders.an_accepted_job(ledger, request, tenant=tenant)
    except IntegrityError:
        with ledger.transaction() as tx:
            won = find_replay(tx, tenant=tenant, request=request)
        assert won is not None
        return won


@pytest.mark.requirement("R018")
def test_the_same_request_joins_its_job(ledger: Ledger) -> None:
    request = builders.a_request()
    first = builders.an_accepted_job(ledger, request)
    again = accept_once_more(ledger, request)
    assert again.job_id == first.job_id
    assert len(all_rows(ledger, jobs)) == 1
    assert event_kinds(ledger, first.job_id) == ["accepted", "replayed"]


@pytest.mark.requirement("R019")
def test_another_request_under_the_key_is_a_conflict_that_names_fields_and_no_values(ledger: Ledger) -> None:
    request = builders.a_request(key="expenses")
    first = builders.an_accepted_job(ledger, request)
    other = dataclasses.replace(request, release="secret-release", limits=LimitsRequest(max_attempts=1))
    with pytest.raises(KeyConflict) as caught, ledger.transaction() as tx:
        find_replay(tx, tenant=builders.TENANT, request=other)
    assert caught.value.reason.code == "KEY.CONFLICT.v1"
    assert caught.value.facts["differing"] == ["limits.max_attempts", "release"]
    assert "secret-release" not in str(caught.value)
    assert [row["job_id"] for row in all_rows(ledger, jobs)] == [first.job_id]


def test_two_tenants_may_use_one_key(ledger: Ledger) -> None:
    request = builders.a_request(key="expenses")
    first = builders.an_accepted_job(ledger, request, tenant="acme")
    second = builders.an_accepted_job(ledger, request, tenant="umbrella")
    assert first.job_id != second.job_id
    with ledger.reading() as tx:
        assert find_replay(tx, tenant="wayne", request=request) is None


@pytest.mark.requirement("R028")
def test_identical_requests_at_once_make_one_row(ledger: Ledger) -> None:
    builders.approve(ledger)
    request = builders.a_request(items=2)
    start = threading.Barrier(THREADS)
    answers: list[str] = []

    def deliver() -> None:
        start.wait()
        answers.append(accept_once_more(ledger, request).job_id)

    threads = [threading.Thread(target=deliver) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == THREADS
    assert len(set(answers)) == 1
    assert [row["fingerprint"] for row in all_rows(ledger, jobs)] == [request.fingerprint]
    assert len(all_rows(ledger, items)) == 2


def test_jobs_of_one_tenant_that_come_at_once_see_each_others_bytes(ledger: Ledger) -> None:
    builders.approve(ledger)
    start = threading.Barrier(THREADS)

    def deliver(number: int) -> None:
        start.wait()
        builders.an_accepted_job(ledger, key=f"key-{number}", content="same")

    threads = [threading.Thread(target=deliver, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    without = [row for row in all_rows(ledger, items) if row["earlier_job_id"] is None]
    assert len(without) == 1


@pytest.mark.requirement("R007")
def test_an_accepted_job_has_no_decision_and_no_score(ledger: Ledger) -> None:
    job = builders.an_accepted_job(ledger, items=2)
    assert (job.state, job.result_digest, job.terminal_class) == ("accepted", None, None)
    for item in all_rows(ledger, items, job.job_id):
        assert (item["item_class"], item["decision"], item["risk_ppm"]) == (None, None, None)


@pytest.mark.requirement("R002", "R003", "R004", "R005")
def test_pins_are_frozen_at_acceptance(ledger: Ledger) -> None:
    job = builders.an_accepted_job(ledger)
    pins = builders.RELEASE.pins()
    assert job.pins == pins
    later = dataclasses.replace(builders.RELEASE, policy_revision=digest_of("next policy"))
    moved_to = builders.approve(ledger, later, name="2026-12")
    assert job_row(ledger, job.job_id) == job.as_mapping()
    with ledger.transaction() as tx:
        newer = insert_job(
            tx,
            NewJob(
                tenant=builders.TENANT,
                caller=builders.CALLER,
                request=builders.a_request(),
                limits=resolve_limits(LimitsRequest(), items=1, cutoff_margin_s=0),
                stored=builders.stored(builders.a_request()),
            ),
        )
    assert newer.release_id == moved_to != job.release_id


@pytest.mark.requirement("R014")
def test_a_release_that_nobody_approved_or_that_is_retired_is_refused(ledger: Ledger) -> None:
    release_id = builders.approve(ledger)
    for written, code in ((digest_of("unapproved"), "RELEASE.UNAPPROVED.v1"), ("staging", "RELEASE.UNKNOWN.v1")):
        with pytest.raises(InputRefused) as caught:
            builders.an_accepted_job(ledger, dataclasses.replace(builders.a_request(), release=written))
        assert caught.value.reason.code == code
    with ledger.transaction() as tx:
        retire_release(tx, release_id=release_id, retired_by="kim")
        with pytest.raises(InputRefused):
            move_alias(tx, alias="production", release_id=release_id, moved_by="kim")
    with pytest.raises(InputRefused) as caught:
        builders.an_accepted_job(ledger)
    assert caught.value.reason.code == "RELEASE.RETIRED.v1"
    with pytest.raises(InputRefused) as caught:
        builders.approve(ledger)
    assert caught.value.reason.code == "RELEASE.RETIRED.v1"
    assert all_rows(ledger, jobs) == []


@pytest.mark.requirement("R006")
def test_the_queue_deadline_comes_from_the_cutoff_and_may_not_lie_in_the_past(ledger: Ledger, clock: FakeClock) -> None:
    now = clock.now()
    job = builders.an_accepted_job(ledger, cutoff=now + dt.timedelta(hours=1))
    assert job.queue_deadline == now + dt.timedelta(seconds=3600 - 900)
    for cutoff in (now - dt.timedelta(seconds=1), now + dt.timedelta(seconds=900)):
        with pytest.raises(InputRefused) as caught:
            builders.an_accepted_job(ledger, cutoff=cutoff)
        assert caught.value.reason.code == "CUTOFF.PASSED.v1"
    assert len(all_rows(ledger, jobs)) == 1


@pytest.mark.requirement("R045")
@pytest.mark.parametrize(
    ("limit", "moves"),
    [
        ("max_queue_age_s", "queue_deadline"),
        ("processing_timeout_s", "processing_deadline"),
        ("result_retention_s", "retention"),
    ],
)
def test_each_clock_moves_its_own_deadline_only(ledger: Ledger, limit: str, moves: str) -> None:
    found = []
    for given in (LimitsRequest(), LimitsRequest(**{limit: 4711})):
        claimed = builders.a_claimed_job(ledger, limits=given)
        builders.finish_items(ledger, claimed)
        builders.publish(ledger, claimed)
        job = job_row(ledger, claimed.token.job_id)
        found.append(
            {
                "queue_deadline": job["queue_deadline"] - job["submitted_at"],
                "processing_deadline": job["processing_deadline"] - job["claimed_at"],
                "retention": dt.timedelta(seconds=job["result_retention_s"]),
            }
        )
    changed = {name for name in found[0] if found[0][name] != found[1][name]}
    assert changed == {moves}
    assert found[1][moves] == dt.timedelta(seconds=4711)


@pytest.mark.requirement("R056")
def test_one_value_for_all_three_clocks_is_warned_of(ledger: Ledger) -> None:
    alike = LimitsRequest(max_queue_age_s=3600, processing_timeout_s=3600, result_retention_s=3600)
    assert builders.an_accepted_job(ledger, limits=alike).warnings == ["LIMIT.ALL_EQUAL.v1"]
    apart = dataclasses.replace(alike, result_retention_s=7200)
    assert builders.an_accepted_job(ledger, limits=apart).warnings == []


def test_a_timeout_that_cannot_be_met_is_accepted_with_a_warning(ledger: Ledger) -> None:
    job = builders.an_accepted_job(ledger, items=5, limits=LimitsRequest(processing_timeout_s=9))
    assert job.warnings == ["LIMIT.TOO_SHORT.v1"]


@pytest.mark.requirement("R029")
def test_a_label_is_no_identity(ledger: Ledger) -> None:
    first = builders.an_accepted_job(ledger, key="one")
    second = builders.an_accepted_job(ledger, key="two")
    [one], [two] = all_rows(ledger, items, first.job_id), all_rows(ledger, items, second.job_id)
    assert one["label"] == two["label"]
    assert one["sha256"] != two["sha256"]
    assert two["earlier_job_id"] is None


def test_the_earlier_item_with_the_same_bytes_is_frozen_while_its_job_is_open(ledger: Ledger) -> None:
    first = builders.an_accepted_job(ledger, content="lunch")
    second = builders.an_accepted_job(ledger, content="lunch")
    [item] = all_rows(ledger, items, second.job_id)
    assert (item["earlier_job_id"], item["earlier_ordinal"]) == (first.job_id, 0)
    assert item["earlier_alike"]
    with ledger.transaction() as tx:
        cancel_job(tx, job_id=first.job_id, limits=builders.LIMITS)
    assert all_rows(ledger, items, second.job_id) == [item]
    [third] = all_rows(ledger, items, builders.an_accepted_job(ledger, content="lunch").job_id)
    assert third["earlier_job_id"] == second.job_id, "a canceled item without outcome is no evidence"


def test_another_caller_item_id_or_release_is_evidence_but_not_alike(ledger: Ledger) -> None:
    first = builders.a_succeeded_job(ledger, content="lunch")
    renamed = builders.a_request(content="lunch")
    [item] = renamed.items
    renamed = dataclasses.replace(renamed, items=(dataclasses.replace(item, item_id="other"),))
    derived = builders.a_request(content="lunch")
    derived = dataclasses.replace(derived, items=(dataclasses.replace(item, id_explicit=False),))
    jobs_unlike = [
        builders.an_accepted_job(ledger, renamed),
        builders.an_accepted_job(ledger, derived),
        builders.an_accepted_job(ledger, builders.a_request(content="lunch"), caller="robin"),
    ]
    later = dataclasses.replace(builders.RELEASE, policy_revision=digest_of("next policy"))
    builders.approve(ledger, later, name="2026-12", alias="next")
    jobs_unlike.append(
        builders.an_accepted_job(ledger, dataclasses.replace(builders.a_request(content="lunch"), release="next"))
    )
    for job in jobs_unlike:
        [row] = all_rows(ledger, items, job.job_id)
        assert (row["earlier_job_id"], row["earlier_alike"]) == (first.token.job_id, False)
    alike = builders.an_accepted_job(ledger, content="lunch")
    [row] = all_rows(ledger, items, alike.job_id)
    assert (row["earlier_job_id"], row["earlier_alike"]) == (first.token.job_id, True)


def test_bytes_of_another_tenant_or_of_a_rejected_item_are_no_evidence(ledger: Ledger) -> None:
    builders.an_accepted_job(ledger, content="lunch", tenant="umbrella")
    rejected = builders.a_claimed_job(ledger, content="lunch")
    builders.finish_items(ledger, rejected, builders.a_rejection())
    with ledger.transaction() as tx:
        close_without_result(tx, rejected.token, limits=builders.LIMITS)
    [row] = all_rows(ledger, items, builders.an_accepted_job(ledger, content="lunch").job_id)
    assert row["earlier_job_id"] is None


def test_a_child_is_no_repetition_of_its_own_lineage(ledger: Ledger) -> None:
    parent = builders.an_accepted_job(ledger, content="lunch")
    request = builders.a_request(content="lunch")
    family = Lineage(parent_job_id=parent.job_id, lineage=parent.lineage)
    with ledger.transaction() as tx:
        child = insert_job(
            tx,
            NewJob(
                tenant=builders.TENANT,
                caller=builders.CALLER,
                request=request,
                limits=resolve_limits(request.limits, items=1, cutoff_margin_s=0),
                stored=builders.stored(request),
                family=family,
            ),
        )
    assert (child.parent_job_id, child.lineage) == (parent.job_id, parent.lineage)
    [row] = all_rows(ledger, items, child.job_id)
    assert row["earlier_job_id"] is None
