"""The table of failure classes is what happens: repeat, look up, stop or review, and what it costs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from receipt_pipeline.core.attempts import FAILURE_RULES, Answer, AtBound, FailureClass
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.reasons import IDENTITY_MISMATCH, UPLOAD_FAILED, UPLOAD_UNKNOWN, WORKER_LOST, Reason
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.claim import ClaimedJob
from receipt_pipeline.ledger.jobs.failures import fail_attempt, lose_lease, yield_job
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent
from receipt_pipeline.ledger.schema.jobs import attempts
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, item_classes, job_row, open_questions
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench

LIMITS = builders.LIMITS


def failing(failure_class: FailureClass, reason: Reason) -> Callable[[Ledger, FakeClock, ClaimedJob], None]:
    def fail(ledger: Ledger, clock: FakeClock, job: ClaimedJob) -> None:
        with ledger.transaction() as tx:
            fail_attempt(tx, job.token, failure_class=failure_class, reason=reason, limits=LIMITS)

    return fail


def lose(ledger: Ledger, clock: FakeClock, job: ClaimedJob) -> None:
    clock.advance(LIMITS.work.lease_ttl_s)
    with ledger.transaction() as tx:
        assert lose_lease(tx, job_id=job.token.job_id, seen_epoch=job.token.lease_epoch, limits=LIMITS)


def reject(ledger: Ledger, clock: FakeClock, job: ClaimedJob) -> None:
    builders.finish_items(ledger, job, builders.a_rejection())


def diverge(ledger: Ledger, clock: FakeClock, job: ClaimedJob) -> None:
    digests = [{"digest": digest_of(n), "source": "test", "lease_epoch": n} for n in (1, 2)]
    with ledger.transaction() as tx:
        hold_divergent(tx, job_id=job.token.job_id, subject="result", limits=LIMITS, further=digests)


def give_back(ledger: Ledger, clock: FakeClock, job: ClaimedJob) -> None:
    with ledger.transaction() as tx:
        yield_job(tx, job.token)


MADE: dict[FailureClass, Callable[[Ledger, FakeClock, ClaimedJob], None]] = {
    FailureClass.TRANSIENT: failing(FailureClass.TRANSIENT, UPLOAD_FAILED),
    FailureClass.WORKER_LOST: lose,
    FailureClass.AMBIGUOUS_UPLOAD: failing(FailureClass.AMBIGUOUS_UPLOAD, UPLOAD_UNKNOWN),
    FailureClass.VALIDATION: reject,
    FailureClass.IDENTITY: failing(FailureClass.IDENTITY, IDENTITY_MISMATCH),
    FailureClass.DIVERGENT: diverge,
    FailureClass.YIELDED: give_back,
}


@pytest.mark.requirement("R108")
@pytest.mark.parametrize("failure_class", list(FailureClass))
def test_a_class_costs_and_leads_to_what_its_line_says(
    ledger: Ledger, clock: FakeClock, failure_class: FailureClass
) -> None:
    rule = FAILURE_RULES[failure_class]
    job = builders.a_claimed_job(ledger)
    MADE[failure_class](ledger, clock, job)
    row = job_row(ledger, job.token.job_id)
    assert row["attempts_spent"] == int(rule.spends_budget)
    assert [tried["spent_budget"] for tried in all_rows(ledger, attempts, job.token.job_id)] == [rule.spends_budget]
    if failure_class is FailureClass.VALIDATION:
        assert item_classes(ledger, job.token.job_id) == ["rejected"]
    elif rule.answer is Answer.STOP:
        assert (row["state"], row["terminal_class"]) == ("failed", "identity_failed")
    elif rule.answer is Answer.REVIEW:
        assert (row["state"], row["phase"]) == ("running", "quarantined")
        [question] = open_questions(ledger, job.token.job_id)
        assert question["owner"] in LIMITS.staffing.principals
    else:
        assert row["state"] == "running"
        assert row["lease_owner"] is None
        assert (row["retry_at"] is not None) == rule.spends_budget
    if row["retry_at"] is not None:
        pause = row["retry_at"] - clock.now()
        assert dt.timedelta(seconds=LIMITS.work.retry_base_s) <= pause
        assert pause <= dt.timedelta(seconds=LIMITS.work.retry_base_s * 1.25)


@pytest.mark.requirement("R108", "R111")
@pytest.mark.parametrize(
    "failure_class", [name for name, rule in FAILURE_RULES.items() if rule.at_bound is not AtBound.NONE]
)
def test_at_its_bound_a_class_ends_as_its_line_says(
    ledger: Ledger, clock: FakeClock, failure_class: FailureClass
) -> None:
    job = builders.a_claimed_job(ledger, limits=LimitsRequest(max_attempts=1))
    builders.finish_items(ledger, job)
    MADE[failure_class](ledger, clock, job)
    row = job_row(ledger, job.token.job_id)
    assert row["attempts_spent"] == 1 == row["max_attempts"]
    if FAILURE_RULES[failure_class].at_bound is AtBound.CLOSE:
        assert row["close_cause"] is not None or row["terminal_class"] == "dependency_failed"
        return
    assert (row["state"], row["phase"]) == ("running", "reconciling")
    [question] = open_questions(ledger, job.token.job_id)
    told = ("suspected_effect", "allowed_repair", "owner", "deadline_at", "last_safe_checkpoint")
    assert all(question[name] for name in told)


@pytest.mark.requirement("R111")
def test_a_job_tried_beyond_its_bounds_is_an_owned_question_until_it_is_answered(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    house = ReconcileBench.build(ledger, clock, tmp_path)
    job_id = str(house.finished(key="one")["job_id"])
    house.edit("UPDATE jobs SET attempts_spent = 9 WHERE job_id = :job", job=job_id)
    assert not house.check("attempts_within_budget").passed
    reconcile(house.services)
    reconcile(house.services)
    [question] = house.investigations()
    assert (question["kind"], question["job_id"]) == ("attempts_beyond_budget", job_id)
    assert question["reason_code"] == "ATTEMPTS.BEYOND_BUDGET.v1"
    assert question["owner"] in house.limits.staffing.principals
    assert question["evidence"]["attempts_spent"] == 9
    house.edit("UPDATE jobs SET attempts_spent = 0 WHERE job_id = :job", job=job_id)
    reconcile(house.services)
    assert house.investigations() == []


@pytest.mark.requirement("R108")
def test_an_item_that_kills_its_workers_is_isolated_after_its_bound_and_its_siblings_finish(
    ledger: Ledger, clock: FakeClock, tmp_path: Path
) -> None:
    house = ReconcileBench.build(ledger, clock, tmp_path)
    job_id = house.bench.accept(key="poison", items=3)
    house.lose_item(job_id, times=house.limits.work.item_losses_max)
    house.bench.work_until_closed(job_id)
    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["attempts_spent"]) == ("succeeded", "partial", 0)
    assert [item["item_class"] for item in house.bench.items(job_id)] == ["unresolved", "classified", "classified"]
    assert house.bench.items(job_id)[0]["reason_code"] == WORKER_LOST.code
    [question] = house.bench.investigations(job_id)
    assert question["evidence"]["losses"] == {"r-001": house.limits.work.item_losses_max}
