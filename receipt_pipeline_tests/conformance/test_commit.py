"""Closing a job on every ledger: once, on a verified object, with its effects in the same transaction."""

from __future__ import annotations

import datetime as dt

import pytest

from receipt_pipeline.core.attempts import FailureClass, FencingToken
from receipt_pipeline.core.effects import EffectDemand, EffectState
from receipt_pipeline.core.errors import LeaseLost
from receipt_pipeline.core.reasons import UPLOAD_FAILED, UPLOAD_UNKNOWN
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.claim import ClaimedJob
from receipt_pipeline.ledger.jobs.expire import expire_job
from receipt_pipeline.ledger.jobs.failures import fail_attempt
from receipt_pipeline.ledger.jobs.finalize import close_without_result, commit_result
from receipt_pipeline.ledger.jobs.publication import record_intent, record_upload_state, uploads_of
from receipt_pipeline.ledger.schema.effects import effects, outbox, quarantine
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import (
    all_rows,
    assert_invariants,
    attempt_outcomes,
    event_kinds,
    item_classes,
    job_row,
    snapshot,
)
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS


class Stopped(Exception):
    """Stands for the end of a process inside a transaction."""


def intend(ledger: Ledger, job: ClaimedJob, content: str = "result") -> bool:
    result = builders.a_result(job, content=content)
    with ledger.transaction() as tx:
        return record_intent(tx, job.token, result, limits=LIMITS)


def test_a_success_names_its_object_and_carries_its_effects(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_succeeded_job(ledger, builders.an_outcome(), builders.an_outcome())
    row = job_row(ledger, job.token.job_id)
    result = builders.a_result(job)
    assert (row["state"], row["terminal_class"], row["phase"], row["reason_code"]) == (
        "succeeded",
        "complete",
        "closed",
        "",
    )
    assert (row["result_key"], row["result_digest"], row["result_size_bytes"]) == (
        result.key,
        result.digest,
        result.size_bytes,
    )
    assert (row["terminal_at"], row["settled_at"], row["lease_owner"]) == (clock.now(), None, None)
    by_kind = {effect["kind"]: effect for effect in all_rows(ledger, effects, job.token.job_id)}
    assert {kind: effect["state"] for kind, effect in by_kind.items()} == {
        "result_object": "committed",
        "review_tasks": "intended",
        "notification": "intended",
    }
    deadline = clock.now() + dt.timedelta(seconds=LIMITS.delivery.effect_deadline_s)
    assert by_kind["review_tasks"]["deadline_at"] == deadline
    [message] = all_rows(ledger, outbox, job.token.job_id)
    assert message["state"] == "due"
    assert message["payload"]["result_digest"] == result.digest
    kinds = event_kinds(ledger, job.token.job_id)
    assert kinds == [
        "accepted",
        "claimed",
        "item_finished",
        "item_finished",
        "result_intended",
        "terminal",
        "message_created",
        "attempt_closed",
    ]
    assert_invariants(ledger, LIMITS)


def test_committing_the_same_result_again_changes_nothing(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_succeeded_job(ledger)
    before, journal = snapshot(ledger, job.token.job_id), all_rows(ledger, events)
    clock.advance(60)
    with ledger.transaction() as tx:
        commit_result(tx, job.token, builders.a_result(job), limits=LIMITS)
    assert snapshot(ledger, job.token.job_id) == before
    assert all_rows(ledger, events) == journal


def test_another_result_under_the_committed_token_is_refused(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(ledger)
    before = snapshot(ledger, job.token.job_id)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        commit_result(tx, job.token, builders.a_result(job, content="other"), limits=LIMITS)
    assert snapshot(ledger, job.token.job_id) == before


@pytest.mark.requirement("R089")
def test_a_commit_that_is_cut_off_leaves_neither_record_nor_message(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    builders.finish_items(ledger, job)
    assert intend(ledger, job)
    before, journal = snapshot(ledger, job.token.job_id), all_rows(ledger, events)

    def cut_off() -> None:
        with ledger.transaction() as tx:
            commit_result(tx, job.token, builders.a_result(job), limits=LIMITS)
            raise Stopped

    with pytest.raises(Stopped):
        cut_off()
    assert snapshot(ledger, job.token.job_id) == before
    assert all_rows(ledger, events) == journal


@pytest.mark.requirement("R120")
def test_a_job_with_an_item_that_has_no_class_does_not_close(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    with ledger.transaction() as tx:
        result = builders.a_result(job)
        record_intent(tx, job.token, result, limits=LIMITS)
    before = snapshot(ledger, job.token.job_id)
    with pytest.raises(AssertionError), ledger.transaction() as tx:
        commit_result(tx, job.token, builders.a_result(job), limits=LIMITS)
    with pytest.raises(AssertionError), ledger.transaction() as tx:
        close_without_result(tx, job.token, limits=LIMITS)
    assert snapshot(ledger, job.token.job_id) == before


def test_a_result_without_its_intent_is_a_broken_promise(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    builders.finish_items(ledger, job)
    with pytest.raises(AssertionError), ledger.transaction() as tx:
        commit_result(tx, job.token, builders.a_result(job), limits=LIMITS)
    assert job_row(ledger, job.token.job_id)["state"] == "running"


def test_an_intent_is_recorded_once_per_key(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    builders.finish_items(ledger, job)
    assert intend(ledger, job)
    assert intend(ledger, job)
    with ledger.reading() as tx:
        [upload] = uploads_of(tx, job.token.job_id)
    assert (upload.state, upload.expected_digest) == ("intended", builders.a_result(job).digest)
    assert event_kinds(ledger, job.token.job_id).count("result_intended") == 1


def test_what_is_known_of_an_upload_never_goes_back_from_committed(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    builders.finish_items(ledger, job)
    assert intend(ledger, job)
    key = builders.a_result(job).key
    with ledger.transaction() as tx:
        record_upload_state(tx, key=key, state=EffectState.UNKNOWN, reason=UPLOAD_UNKNOWN)
        record_upload_state(tx, key=key, state=EffectState.UNKNOWN, reason=UPLOAD_UNKNOWN)
    builders.publish(ledger, job)
    with ledger.transaction() as tx:
        record_upload_state(tx, key=key, state=EffectState.FAILED, reason=UPLOAD_FAILED)
        [upload] = uploads_of(tx, job.token.job_id)
    assert upload.state == "committed"
    assert event_kinds(ledger, job.token.job_id).count("effect_changed") == 1


def test_a_worker_that_wakes_late_does_not_move_an_upload_that_was_given_up(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    builders.finish_items(ledger, job)
    assert intend(ledger, job)
    key = builders.a_result(job).key
    with ledger.transaction() as tx:
        record_upload_state(tx, key=key, state=EffectState.ABANDONED)
        for late in (EffectState.UNKNOWN, EffectState.FAILED):
            record_upload_state(tx, key=key, state=late, reason=UPLOAD_FAILED)
        [upload] = uploads_of(tx, job.token.job_id)
    assert (upload.state, upload.reason_code) == ("abandoned", "")
    assert event_kinds(ledger, job.token.job_id).count("effect_changed") == 1


def test_an_upload_that_failed_before_does_not_keep_a_success_from_settling(ledger: Ledger, clock: FakeClock) -> None:
    first = builders.a_claimed_job(ledger, review_tasks=EffectDemand.NONE, notification=EffectDemand.NONE)
    builders.finish_items(ledger, first)
    assert intend(ledger, first)
    with ledger.transaction() as tx:
        record_upload_state(tx, key=builders.a_result(first).key, state=EffectState.FAILED)
        fail_attempt(tx, first.token, failure_class=FailureClass.TRANSIENT, reason=UPLOAD_FAILED, limits=LIMITS)
    clock.advance(LIMITS.work.retry_cap_s)
    builders.publish(ledger, builders.claimed(ledger, first.token.job_id))
    row = job_row(ledger, first.token.job_id)
    assert (row["state"], row["settled_at"]) == ("succeeded", clock.now())


def test_an_intent_for_other_bytes_holds_the_job_as_divergent(ledger: Ledger, clock: FakeClock) -> None:
    first = builders.a_claimed_job(ledger)
    builders.finish_items(ledger, first)
    assert intend(ledger, first)
    with ledger.transaction() as tx:
        fail_attempt(tx, first.token, failure_class=FailureClass.TRANSIENT, reason=UPLOAD_FAILED, limits=LIMITS)
    clock.advance(LIMITS.work.retry_cap_s)
    second = builders.claimed(ledger, first.token.job_id)
    assert not intend(ledger, second, content="other bytes")
    row = job_row(ledger, first.token.job_id)
    assert (row["state"], row["phase"], row["lease_owner"]) == ("running", "quarantined", None)
    [held] = all_rows(ledger, quarantine, first.token.job_id)
    assert {entry["digest"] for entry in held["digests"]} == {
        builders.a_result(first).digest,
        builders.a_result(second, content="other bytes").digest,
    }
    assert attempt_outcomes(ledger, first.token.job_id) == ["failed", "quarantined"]


@pytest.mark.requirement("R103")
def test_a_job_whose_items_are_all_rejected_fails_without_an_object(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    builders.finish_items(ledger, job, builders.a_rejection(), builders.a_rejection())
    with ledger.transaction() as tx:
        close_without_result(tx, job.token, limits=LIMITS)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == ("failed", "rejected", "ITEMS.ALL_REJECTED.v1")
    assert (row["result_key"], row["settled_at"]) == (None, row["terminal_at"])
    assert row["lease_epoch"] == job.token.lease_epoch + 1
    assert attempt_outcomes(ledger, job.token.job_id) == ["committed"]
    assert {effect["kind"] for effect in all_rows(ledger, effects, job.token.job_id)} == {"notification"}
    assert_invariants(ledger, LIMITS)


def test_a_success_with_rejected_items_is_partial(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(ledger, builders.an_outcome(), builders.a_rejection())
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == ("succeeded", "partial", "")
    assert item_classes(ledger, job.token.job_id) == ["classified", "rejected"]


@pytest.mark.parametrize(
    ("notification", "review_tasks", "settled_at_once"),
    [
        (EffectDemand.BEST_EFFORT, EffectDemand.REQUIRED, False),
        (EffectDemand.REQUIRED, EffectDemand.NONE, False),
        (EffectDemand.BEST_EFFORT, EffectDemand.BEST_EFFORT, True),
        (EffectDemand.NONE, EffectDemand.NONE, True),
    ],
)
def test_a_success_is_settled_at_once_only_when_nothing_required_follows(
    ledger: Ledger, notification: EffectDemand, review_tasks: EffectDemand, settled_at_once: bool
) -> None:
    job = builders.a_succeeded_job(ledger, notification=notification, review_tasks=review_tasks)
    row = job_row(ledger, job.token.job_id)
    assert (row["settled_at"] is not None) is settled_at_once
    wanted = {"notification": notification, "review_tasks": review_tasks}
    found = {
        effect["kind"]: effect["required"]
        for effect in all_rows(ledger, effects, job.token.job_id)
        if effect["kind"] != "result_object"
    }
    assert found == {
        kind: demand is EffectDemand.REQUIRED for kind, demand in wanted.items() if demand is not EffectDemand.NONE
    }
    assert len(all_rows(ledger, outbox, job.token.job_id)) == int(notification is not EffectDemand.NONE)


@pytest.mark.requirement("R011")
def test_after_the_terminal_record_nothing_is_written_over_it(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_succeeded_job(ledger)
    before = snapshot(ledger, job.token.job_id)
    clock.advance(10 * 86_400)
    with ledger.transaction() as tx:
        assert cancel_job(tx, job_id=job.token.job_id, limits=LIMITS) is None
        assert not expire_job(tx, job_id=job.token.job_id, limits=LIMITS)
    later = FencingToken(job.token.job_id, job.token.lease_epoch + 1)
    for token in (job.token, later):
        with pytest.raises(LeaseLost), ledger.transaction() as tx:
            close_without_result(tx, token, limits=LIMITS)
    assert snapshot(ledger, job.token.job_id) == before
