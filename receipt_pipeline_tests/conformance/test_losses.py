"""What a failure costs on every ledger: an item's loss, the job's budget, or nothing; and that it ends."""

from __future__ import annotations

import datetime as dt

import pytest

from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.reasons import (
    ENGINE_OCR_UNAVAILABLE,
    IDENTITY_MISMATCH,
    UPLOAD_FAILED,
    UPLOAD_UNKNOWN,
    WORKER_LOST,
    Reason,
)
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.investigations import resolve_investigation
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import AttemptKind, ClaimedJob, ClaimRefused, claim_job
from receipt_pipeline.ledger.jobs.failures import fail_attempt, yield_job
from receipt_pipeline.ledger.jobs.finalize import close_without_result
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import attempts, items
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import (
    all_rows,
    assert_invariants,
    attempt_outcomes,
    event_kinds,
    item_classes,
    job_row,
    open_questions,
)
from receipt_pipeline_tests.conformance.test_failure_table import lose
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS
TRANSIENT = ENGINE_OCR_UNAVAILABLE


def begin(ledger: Ledger, job: ClaimedJob, ordinal: int) -> None:
    with ledger.transaction() as tx:
        assert write_checkpoint(tx, job.token, finished=None, next_ordinal=ordinal, limits=LIMITS).begun


def finish(ledger: Ledger, job: ClaimedJob, ordinal: int, following: int | None) -> None:
    done = FinishedItem(ordinal=ordinal, outcome=builders.an_outcome(), invocations=1)
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=done, next_ordinal=following, limits=LIMITS)


def fail(
    ledger: Ledger, job: ClaimedJob, failure_class: FailureClass = FailureClass.TRANSIENT, reason: Reason = TRANSIENT
) -> None:
    with ledger.transaction() as tx:
        fail_attempt(tx, job.token, failure_class=failure_class, reason=reason, limits=LIMITS)


def after_pause(ledger: Ledger, clock: FakeClock, job: ClaimedJob) -> ClaimedJob:
    due = job_row(ledger, job.token.job_id)["retry_at"]
    if due is not None and due > clock.now():
        clock.set(due)
    return builders.claimed(ledger, job.token.job_id, owner="worker-b")


@pytest.mark.requirement("R109")
def test_takeover_goes_on_after_the_last_committed_item(ledger: Ledger, clock: FakeClock) -> None:
    first = builders.a_claimed_job(ledger, items=3)
    begin(ledger, first, 0)
    finish(ledger, first, 0, 1)
    kept = all_rows(ledger, items, first.token.job_id)[0]
    lose(ledger, clock, first)
    second = after_pause(ledger, clock, first)
    assert [item.ordinal for item in second.items if item.item_class is None] == [1, 2]
    assert second.job.checkpoint == 1
    assert second.items[0].as_mapping() == kept
    assert (second.items[1].losses, second.items[1].begun_epoch) == (1, None)
    assert job_row(ledger, first.token.job_id)["attempts_spent"] == 0


def test_an_item_that_ends_its_worker_is_isolated_and_its_siblings_go_on(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=3)
    begin(ledger, job, 0)
    finish(ledger, job, 0, 1)
    pauses = []
    for _ in range(LIMITS.work.item_losses_max):
        lose(ledger, clock, job)
        row = job_row(ledger, job.token.job_id)
        pauses.append((row["retry_at"] - clock.now()).total_seconds())
        job = after_pause(ledger, clock, job)
        if item_classes(ledger, job.token.job_id)[1] is None:
            begin(ledger, job, 1)
    assert pauses == sorted(pauses)
    assert pauses[0] >= LIMITS.work.retry_base_s
    assert item_classes(ledger, job.token.job_id) == ["classified", "unresolved", None]
    poison = all_rows(ledger, items, job.token.job_id)[1]
    assert (poison["reason_code"], poison["losses"]) == ("WORKER.LOST.v1", LIMITS.work.item_losses_max)
    [question] = open_questions(ledger, job.token.job_id)
    assert question["evidence"]["item_ids"] == ["r-002"]
    begin(ledger, job, 2)
    finish(ledger, job, 2, None)
    builders.publish(ledger, job)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"], row["attempts_spent"]) == ("succeeded", "partial", 0)
    assert attempt_outcomes(ledger, job.token.job_id) == ["lost", "lost", "lost", "committed"]
    assert_invariants(ledger, LIMITS)


def test_a_repeatable_failure_counts_against_the_begun_item_with_its_own_code(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    for turn in range(LIMITS.work.item_losses_max):
        begin(ledger, job, 0)
        fail(ledger, job)
        if turn + 1 < LIMITS.work.item_losses_max:
            job = after_pause(ledger, clock, job)
    first, second = all_rows(ledger, items, job.token.job_id)
    assert (first["item_class"], first["reason_code"]) == ("unresolved", "ENGINE.OCR_UNAVAILABLE.v1")
    assert (second["item_class"], second["losses"]) == (None, 0)


@pytest.mark.requirement("R078", "R108")
def test_a_failure_between_items_spends_the_budget_to_its_end(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=2, limits=LimitsRequest(max_attempts=2))
    fail(ledger, job)
    assert job_row(ledger, job.token.job_id)["attempts_spent"] == 1
    job = after_pause(ledger, clock, job)
    fail(ledger, job)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"]) == ("failed", "attempts_exhausted")
    assert row["reason_code"] == "ENGINE.OCR_UNAVAILABLE.v1"
    assert item_classes(ledger, job.token.job_id) == ["unresolved", "unresolved"]
    [question] = open_questions(ledger, job.token.job_id)
    assert question["evidence"]["item_ids"] == ["r-001", "r-002"]
    assert_invariants(ledger, LIMITS)


def test_an_exhausted_job_names_why_when_all_its_items_say_the_same(ledger: Ledger, clock: FakeClock) -> None:
    codes = []
    for other in (WORKER_LOST, TRANSIENT):
        job = builders.a_claimed_job(ledger, items=2)
        for reason in (WORKER_LOST, other):
            for _ in range(LIMITS.work.item_losses_max):
                begin(ledger, job, 0 if reason is WORKER_LOST and job.items[0].item_class is None else 1)
                fail(ledger, job, FailureClass.WORKER_LOST, reason)
                job = after_pause(ledger, clock, job)
        with ledger.transaction() as tx:
            close_without_result(tx, job.token, limits=LIMITS)
        codes.append(job_row(ledger, job.token.job_id)["reason_code"])
    assert codes == ["WORKER.LOST.v1", "ATTEMPTS.EXHAUSTED.v1"]


def test_an_exhausted_job_that_kept_something_is_left_to_a_closing_attempt(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=2, limits=LimitsRequest(max_attempts=1))
    begin(ledger, job, 0)
    finish(ledger, job, 0, None)
    fail(ledger, job)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["phase"], row["close_cause"], row["retry_at"]) == (
        "running",
        "closing",
        "exhausted",
        None,
    )
    closing = after_pause(ledger, clock, job)
    assert closing.kind is AttemptKind.CLOSING
    builders.publish(ledger, closing)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"]) == ("succeeded", "partial")
    assert item_classes(ledger, job.token.job_id) == ["classified", "unresolved"]
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R108")
def test_yielding_and_wrong_identity_spend_no_budget(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    begin(ledger, job, 0)
    with ledger.transaction() as tx:
        yield_job(tx, job.token)
    row = job_row(ledger, job.token.job_id)
    assert (row["phase"], row["retry_at"], row["attempts_spent"]) == ("queued", None, 0)
    assert [item["begun_epoch"] for item in all_rows(ledger, items, job.token.job_id)] == [None, None]
    again = builders.claimed(ledger, job.token.job_id)
    fail(ledger, again, FailureClass.IDENTITY, IDENTITY_MISMATCH)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"]) == ("failed", "identity_failed")
    assert row["reason_code"] == IDENTITY_MISMATCH.code
    assert [a["spent_budget"] for a in all_rows(ledger, attempts, job.token.job_id)] == [False, False]
    assert attempt_outcomes(ledger, job.token.job_id) == ["yielded", "failed"]
    assert_invariants(ledger, LIMITS)


@pytest.mark.parametrize("failure_class", [FailureClass.VALIDATION, FailureClass.DIVERGENT, FailureClass.YIELDED])
def test_what_costs_nothing_is_never_reported_as_a_failure(ledger: Ledger, failure_class: FailureClass) -> None:
    job = builders.a_claimed_job(ledger)
    with pytest.raises(AssertionError):
        fail(ledger, job, failure_class)
    assert attempt_outcomes(ledger, job.token.job_id) == [None]


@pytest.mark.requirement("R103")
def test_an_upload_that_failed_for_certain_closes_the_job_as_dependency_failed(
    ledger: Ledger, clock: FakeClock
) -> None:
    job = builders.a_claimed_job(ledger, limits=LimitsRequest(max_attempts=2))
    builders.finish_items(ledger, job)
    fail(ledger, job, FailureClass.TRANSIENT, UPLOAD_FAILED)
    again = after_pause(ledger, clock, job)
    assert again.items[0].item_class == "classified", "the outcome is kept, the model is not asked again"
    fail(ledger, again, FailureClass.TRANSIENT, UPLOAD_FAILED)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"], row["reason_code"]) == (
        "failed",
        "dependency_failed",
        "UPLOAD.FAILED.v1",
    )
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R104", "R111")
def test_an_upload_that_stays_unknown_holds_the_job_with_an_owned_question(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, limits=LimitsRequest(max_attempts=1))
    builders.finish_items(ledger, job)
    fail(ledger, job, FailureClass.AMBIGUOUS_UPLOAD, UPLOAD_UNKNOWN)
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["phase"], row["lease_owner"]) == ("running", "reconciling", None)
    [question] = open_questions(ledger, job.token.job_id)
    assert (question["kind"], question["reason_code"]) == ("unknown_effect", "UPLOAD.UNKNOWN.v1")
    assert question["owner"] in LIMITS.staffing.principals
    assert question["deadline_at"] == clock.now() + dt.timedelta(seconds=LIMITS.staffing.investigation_deadline_s)
    assert question["last_safe_checkpoint"] == 1
    assert question["suspected_effect"]
    assert question["allowed_repair"]
    clock.advance(LIMITS.work.retry_cap_s * 10)
    with ledger.transaction() as tx:
        refused = claim_job(tx, job_id=job.token.job_id, owner="w", run_id="", limits=LIMITS)
    assert isinstance(refused, ClaimRefused)
    assert attempt_outcomes(ledger, job.token.job_id) == ["failed"]


@pytest.mark.requirement("R112")
def test_attempts_of_a_job_that_always_fails_stay_within_their_bound(ledger: Ledger, clock: FakeClock) -> None:
    max_attempts, count = 2, 2
    job = builders.a_claimed_job(ledger, items=count, limits=LimitsRequest(max_attempts=max_attempts))
    bound = max_attempts + LIMITS.work.item_losses_max * count + LIMITS.work.closing_attempts_max
    turns = 1
    # The worst order: every item spends all its losses before the budget is touched.
    while job_row(ledger, job.token.job_id)["state"] == "running":
        open_items = [i for i, name in enumerate(item_classes(ledger, job.token.job_id)) if name is None]
        if open_items:
            begin(ledger, job, open_items[0])
        lose(ledger, clock, job)
        if job_row(ledger, job.token.job_id)["state"] != "running":
            break
        job = after_pause(ledger, clock, job)
        turns += 1
        assert turns <= bound
    assert turns == max_attempts + LIMITS.work.item_losses_max * count
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["terminal_class"]) == ("failed", "attempts_exhausted")
    assert_invariants(ledger, LIMITS)


def test_an_isolated_item_is_owned_even_when_an_earlier_question_was_settled(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=3)
    for ordinal in (0, 1):
        for _ in range(LIMITS.work.item_losses_max):
            begin(ledger, job, ordinal)
            lose(ledger, clock, job)
            job = after_pause(ledger, clock, job)
        [question] = open_questions(ledger, job.token.job_id)
        assert question["evidence"]["item_ids"] == [f"r-00{ordinal + 1}"]
        with ledger.transaction() as tx:
            resolve_investigation(tx, question["investigation_id"], resolution="seen", actor="kim")
    begin(ledger, job, 2)
    finish(ledger, job, 2, None)
    builders.publish(ledger, job)
    assert len(all_rows(ledger, investigations, job.token.job_id)) == 2
    assert open_questions(ledger, job.token.job_id) == []
    assert_invariants(ledger, LIMITS)


def test_the_question_about_two_isolated_items_names_both(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=3)
    for ordinal in (0, 1):
        for _ in range(LIMITS.work.item_losses_max):
            begin(ledger, job, ordinal)
            lose(ledger, clock, job)
            job = after_pause(ledger, clock, job)
    [question] = open_questions(ledger, job.token.job_id)
    assert question["evidence"]["item_ids"] == ["r-001", "r-002"]
    assert event_kinds(ledger, job.token.job_id).count("investigation_opened") == 1


def test_a_lost_closing_attempt_spends_no_budget_and_counts_no_item(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=2, limits=LimitsRequest(max_attempts=1))
    begin(ledger, job, 0)
    finish(ledger, job, 0, None)
    fail(ledger, job)
    spent = job_row(ledger, job.token.job_id)["attempts_spent"]
    closing = after_pause(ledger, clock, job)
    lose(ledger, clock, closing)
    row = job_row(ledger, job.token.job_id)
    assert (row["attempts_spent"], row["phase"], row["closing_attempts"]) == (spent, "closing", 1)
    for _ in range(LIMITS.work.closing_attempts_max - 1):
        lose(ledger, clock, after_pause(ledger, clock, closing))
    clock.set(job_row(ledger, job.token.job_id)["retry_at"])
    with ledger.transaction() as tx:
        refused = claim_job(tx, job_id=job.token.job_id, owner="w", run_id="", limits=LIMITS)
    assert isinstance(refused, ClaimRefused)
    assert refused.reason.code == "ATTEMPTS.EXHAUSTED.v1"
    row = job_row(ledger, job.token.job_id)
    assert (row["state"], row["phase"]) == ("running", "reconciling")
    assert {question["kind"] for question in open_questions(ledger, job.token.job_id)} == {"unknown_effect"}
    assert_invariants(ledger, LIMITS)
