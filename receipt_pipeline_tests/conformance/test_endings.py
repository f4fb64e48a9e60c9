"""Endings that need no worker, on every ledger: expiry, cancellation, overrun and the closing attempts."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest

from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.errors import LeaseLost, NotAllowed
from receipt_pipeline.core.lifecycle import CloseCause
from receipt_pipeline.core.reasons import IDENTITY_RETIRED, UPLOAD_UNKNOWN
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job, supersede_job
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import AttemptKind, ClaimedJob, ClaimRefused, claim_job
from receipt_pipeline.ledger.jobs.expire import expire_job, overrun_job, overrunning_jobs
from receipt_pipeline.ledger.jobs.failures import begin_closing, close_for_identity, fail_attempt, lose_lease
from receipt_pipeline.ledger.jobs.finalize import close_without_result, commit_result
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.effects import effects, outbox
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import (
    all_rows,
    assert_invariants,
    attempt_outcomes,
    event_kinds,
    item_classes,
    job_row,
    open_questions,
    snapshot,
)
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS
TIMEOUT_S = 100
THREADS = 4


def a_half_done_job(ledger: Ledger, **given: Any) -> ClaimedJob:
    job = builders.a_claimed_job(ledger, items=3, limits=LimitsRequest(processing_timeout_s=TIMEOUT_S), **given)
    done = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS)
        write_checkpoint(tx, job.token, finished=done, next_ordinal=1, limits=LIMITS)
    return job


def cancel(ledger: Ledger, job_id: str) -> JobRow | None:
    with ledger.transaction() as tx:
        return cancel_job(tx, job_id=job_id, limits=LIMITS)


@pytest.mark.requirement("R047", "R048")
def test_expiry_is_a_terminal_record_with_reason_counted_once(ledger: Ledger, clock: FakeClock) -> None:
    job_id = builders.an_accepted_job(ledger, items=2, limits=LimitsRequest(max_queue_age_s=47)).job_id
    clock.advance(48)
    with ledger.transaction() as tx:
        assert expire_job(tx, job_id=job_id, limits=LIMITS)
    with ledger.transaction() as tx:
        assert not expire_job(tx, job_id=job_id, limits=LIMITS)
    row = job_row(ledger, job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == ("expired", "expired", "QUEUE.AGE_REACHED.v1")
    assert (row["terminal_at"], row["settled_at"]) == (clock.now(), clock.now())
    assert (row["terminal_at"] - row["submitted_at"]).total_seconds() == 48
    assert item_classes(ledger, job_id) == ["expired", "expired"]
    assert event_kinds(ledger, job_id).count("terminal") == 1
    [message] = all_rows(ledger, outbox, job_id)
    assert message["payload"]["state"] == "expired"
    assert_invariants(ledger, LIMITS)


def test_expiries_at_once_make_one_record(ledger: Ledger, clock: FakeClock) -> None:
    job_id = builders.an_accepted_job(ledger, limits=LimitsRequest(max_queue_age_s=47)).job_id
    clock.advance(48)
    start = threading.Barrier(THREADS)
    answers: list[bool] = []

    def expire() -> None:
        start.wait()
        with ledger.transaction() as tx:
            answers.append(expire_job(tx, job_id=job_id, limits=LIMITS))

    threads = [threading.Thread(target=expire) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] * (THREADS - 1) + [True]
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R103")
def test_a_job_that_is_canceled_before_its_claim_never_runs(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger, items=2).job_id
    before = cancel(ledger, job_id)
    assert before is not None
    assert before.state == "accepted"
    assert cancel(ledger, job_id) is None
    row = job_row(ledger, job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == ("canceled", "canceled", "JOB.CANCELED.v1")
    assert item_classes(ledger, job_id) == ["cancelled", "cancelled"]
    with ledger.transaction() as tx:
        refused = claim_job(tx, job_id=job_id, owner="w", run_id="", limits=LIMITS)
    assert isinstance(refused, ClaimRefused)
    assert attempt_outcomes(ledger, job_id) == []
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R058", "R059")
def test_a_cancellation_between_items_keeps_what_was_finished_and_fences_the_worker(ledger: Ledger) -> None:
    job = a_half_done_job(ledger)
    assert cancel(ledger, job.token.job_id) is not None
    assert item_classes(ledger, job.token.job_id) == ["classified", "cancelled", "cancelled"]
    row = job_row(ledger, job.token.job_id)
    assert row["items_requested"] == 3
    assert row["lease_epoch"] == job.token.lease_epoch + 1
    assert attempt_outcomes(ledger, job.token.job_id) == ["canceled"]
    before = snapshot(ledger, job.token.job_id)
    done = FinishedItem(ordinal=1, outcome=builders.an_outcome(), invocations=1)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=done, next_ordinal=2, limits=LIMITS)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        commit_result(tx, job.token, builders.a_result(job), limits=LIMITS)
    assert snapshot(ledger, job.token.job_id) == before
    kinds = {effect["kind"] for effect in all_rows(ledger, effects, job.token.job_id)}
    assert kinds == {"notification"}, "a canceled job makes no review task"
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R060")
@pytest.mark.parametrize("first", ["claim", "cancel"])
def test_a_cancellation_and_a_claim_in_either_order_leave_one_truth(ledger: Ledger, first: str) -> None:
    job_id = builders.an_accepted_job(ledger).job_id
    if first == "claim":
        worker = builders.claimed(ledger, job_id)
        assert cancel(ledger, job_id) is not None
        with pytest.raises(LeaseLost), ledger.transaction() as tx:
            write_checkpoint(tx, worker.token, finished=None, next_ordinal=0, limits=LIMITS)
    else:
        assert cancel(ledger, job_id) is not None
        with ledger.transaction() as tx:
            assert isinstance(claim_job(tx, job_id=job_id, owner="w", run_id="", limits=LIMITS), ClaimRefused)
    assert job_row(ledger, job_id)["state"] == "canceled"
    assert attempt_outcomes(ledger, job_id) == (["canceled"] if first == "claim" else [])
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R060")
def test_a_cancellation_and_a_claim_at_once_leave_one_truth(ledger: Ledger) -> None:
    for _ in range(5):
        job_id = builders.an_accepted_job(ledger).job_id
        start = threading.Barrier(2)
        claims: list[ClaimedJob | ClaimRefused] = []

        def claim(job_id: str = job_id, start: threading.Barrier = start, claims: list[Any] = claims) -> None:
            start.wait()
            with ledger.transaction() as tx:
                claims.append(claim_job(tx, job_id=job_id, owner="w", run_id="", limits=LIMITS))

        thread = threading.Thread(target=claim)
        thread.start()
        start.wait()
        assert cancel(ledger, job_id) is not None
        thread.join()
        assert job_row(ledger, job_id)["state"] == "canceled"
        [answer] = claims
        if isinstance(answer, ClaimedJob):
            with pytest.raises(LeaseLost), ledger.transaction() as tx:
                write_checkpoint(tx, answer.token, finished=None, next_ordinal=0, limits=LIMITS)
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R103")
def test_a_superseded_job_names_the_one_that_replaces_it(ledger: Ledger) -> None:
    job = a_half_done_job(ledger)
    replacing = builders.an_accepted_job(ledger).job_id
    for expected in (True, False):
        with ledger.transaction() as tx:
            before = supersede_job(tx, job_id=job.token.job_id, superseded_by=replacing, limits=LIMITS)
        assert (before is not None) is expected
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == ("canceled", "superseded", "JOB.SUPERSEDED.v1")
    assert row["superseded_by"] == replacing
    assert item_classes(ledger, job.token.job_id) == ["classified", "superseded", "superseded"]
    assert attempt_outcomes(ledger, job.token.job_id) == ["superseded"]
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=1, limits=LIMITS)
    assert_invariants(ledger, LIMITS)


def test_a_held_job_is_not_canceled_over_its_question(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, limits=LimitsRequest(max_attempts=1))
    builders.finish_items(ledger, job)
    with ledger.transaction() as tx:
        fail_attempt(tx, job.token, failure_class=FailureClass.AMBIGUOUS_UPLOAD, reason=UPLOAD_UNKNOWN, limits=LIMITS)
    before = snapshot(ledger, job.token.job_id)
    with pytest.raises(NotAllowed) as caught:
        cancel(ledger, job.token.job_id)
    assert caught.value.reason.code == "STATE.REFUSES.v1"
    assert snapshot(ledger, job.token.job_id) == before


def test_an_overrun_takes_the_job_from_its_worker_and_a_closing_attempt_ends_it(
    ledger: Ledger, clock: FakeClock
) -> None:
    job = a_half_done_job(ledger)
    clock.advance(TIMEOUT_S + LIMITS.work.overrun_grace_s - 1)
    with ledger.transaction() as tx:
        assert overrunning_jobs(tx, grace_s=LIMITS.work.overrun_grace_s, limit=10) == []
    clock.advance(1)
    with ledger.transaction() as tx:
        [seen] = overrunning_jobs(tx, grace_s=LIMITS.work.overrun_grace_s, limit=10)
        for expected in (True, False):
            assert (
                overrun_job(
                    tx,
                    job_id=seen["job_id"],
                    seen_epoch=seen["lease_epoch"],
                    cause=CloseCause.TIMEOUT,
                    grace_s=LIMITS.work.overrun_grace_s,
                )
                is expected
            )
    # Begun but not committed is unresolved, never begun is expired (D4).
    assert item_classes(ledger, job.token.job_id) == ["classified", "unresolved", "expired"]
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=1, limits=LIMITS)
    closing = builders.claimed(ledger, job.token.job_id, owner="worker-b")
    assert closing.kind is AttemptKind.CLOSING
    assert closing.job.phase == "closing"
    builders.publish(ledger, closing)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == (
        "succeeded",
        "partial",
        "PROCESSING.TIMEOUT.v1",
    )
    assert (row["attempts_spent"], row["closing_attempts"]) == (0, 1)
    assert attempt_outcomes(ledger, job.token.job_id) == ["overrun", "committed"]
    [question] = open_questions(ledger, job.token.job_id)
    assert question["evidence"]["item_ids"] == ["r-002"]
    assert question["reason_code"] == "ITEM.OVERTAKEN.v1"
    assert event_kinds(ledger, job.token.job_id).count("closing") == 1
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R103")
def test_an_overtaken_job_that_kept_nothing_closes_as_timed_out(ledger: Ledger, clock: FakeClock) -> None:
    cutoff = clock.now() + dt.timedelta(seconds=2000)
    job = builders.a_claimed_job(ledger, items=2, cutoff=cutoff, limits=LimitsRequest(processing_timeout_s=9000))
    clock.set(cutoff + dt.timedelta(seconds=1))
    assert isinstance(claim_again(ledger, job), ClaimRefused), "the loss is charged first"
    clock.advance(LIMITS.work.retry_cap_s)
    closing = claim_again(ledger, job)
    assert isinstance(closing, ClaimedJob)
    assert closing.kind is AttemptKind.CLOSING
    with ledger.transaction() as tx:
        close_without_result(tx, closing.token, limits=LIMITS)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == ("failed", "timed_out", "CUTOFF.REACHED.v1")
    assert item_classes(ledger, job.token.job_id) == ["expired", "expired"]
    assert_invariants(ledger, LIMITS)


def claim_again(ledger: Ledger, job: ClaimedJob) -> ClaimedJob | ClaimRefused:
    with ledger.transaction() as tx:
        return claim_job(tx, job_id=job.token.job_id, owner="worker-b", run_id="", limits=LIMITS)


def test_an_item_that_was_lost_and_then_overtaken_is_unresolved_and_not_expired(
    ledger: Ledger, clock: FakeClock
) -> None:
    job = a_half_done_job(ledger)
    clock.advance(LIMITS.work.lease_ttl_s)
    with ledger.transaction() as tx:
        assert lose_lease(tx, job_id=job.token.job_id, seen_epoch=job.token.lease_epoch, limits=LIMITS)
    clock.advance(TIMEOUT_S)
    closing = claim_again(ledger, job)
    assert isinstance(closing, ClaimedJob)
    assert closing.kind is AttemptKind.CLOSING
    assert item_classes(ledger, job.token.job_id) == ["classified", "unresolved", "expired"]
    builders.publish(ledger, closing)
    assert_invariants(ledger, LIMITS)


def test_a_held_job_is_exempt_from_overrun(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, limits=LimitsRequest(max_attempts=1, processing_timeout_s=TIMEOUT_S))
    builders.finish_items(ledger, job)
    with ledger.transaction() as tx:
        fail_attempt(tx, job.token, failure_class=FailureClass.AMBIGUOUS_UPLOAD, reason=UPLOAD_UNKNOWN, limits=LIMITS)
    clock.advance(TIMEOUT_S * 10)
    with ledger.transaction() as tx:
        assert overrunning_jobs(tx, grace_s=0, limit=10) == []
        epoch = job_row(ledger, job.token.job_id)["lease_epoch"]
        assert not overrun_job(tx, job_id=job.token.job_id, seen_epoch=epoch, cause=CloseCause.TIMEOUT, grace_s=0)
    assert job_row(ledger, job.token.job_id)["phase"] == "reconciling"


def test_closing_begins_once_and_its_first_cause_stays(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    with ledger.transaction() as tx:
        begin_closing(tx, job.token.job_id, cause=CloseCause.TIMEOUT)
        begin_closing(tx, job.token.job_id, cause=CloseCause.CUTOFF)
    assert job_row(ledger, job.token.job_id)["close_cause"] == "timeout"
    assert event_kinds(ledger, job.token.job_id).count("closing") == 1


def test_a_retired_release_fails_jobs_that_nobody_holds(ledger: Ledger) -> None:
    waiting = builders.an_accepted_job(ledger, items=2).job_id
    held = builders.a_claimed_job(ledger)
    with ledger.transaction() as tx:
        assert close_for_identity(tx, waiting, reason=IDENTITY_RETIRED, limits=LIMITS)
        assert not close_for_identity(tx, waiting, reason=IDENTITY_RETIRED, limits=LIMITS)
        assert not close_for_identity(tx, held.token.job_id, reason=IDENTITY_RETIRED, limits=LIMITS)
    row = job_row(ledger, waiting)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == (
        "failed",
        "identity_failed",
        IDENTITY_RETIRED.code,
    )
    assert item_classes(ledger, waiting) == ["unresolved", "unresolved"]
    assert len(open_questions(ledger, waiting)) == 1
    assert job_row(ledger, held.token.job_id)["state"] == "running"
    assert_invariants(ledger, LIMITS)
