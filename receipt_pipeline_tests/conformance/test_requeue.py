"""A requeue by hand fences the worker that held the job, keeps what was finished, and says what it did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.errors import LeaseLost, NotAllowed
from receipt_pipeline.core.lifecycle import Phase
from receipt_pipeline.core.reasons import UPLOAD_UNKNOWN
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.invariants.invariant import Bounds, find
from receipt_pipeline.ledger.invariants.work import ATTEMPTS_WITHIN_BUDGET
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import Requeued, renew_lease, requeue_job
from receipt_pipeline.ledger.jobs.failures import fail_attempt
from receipt_pipeline.ledger.jobs.finalize import commit_result
from receipt_pipeline.ledger.jobs.publication import record_intent
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import (
    assert_invariants,
    attempt_outcomes,
    event_kinds,
    item_classes,
    job_row,
    snapshot,
)

LIMITS = builders.LIMITS
OPERATOR = "operations"


def requeue(ledger: Ledger, job_id: str) -> Requeued:
    with ledger.transaction() as tx:
        return requeue_job(tx, job_id=job_id, actor=OPERATOR)


@pytest.mark.requirement("R070")
def test_a_requeued_job_cannot_be_written_by_the_worker_that_held_it(ledger: Ledger) -> None:
    old = builders.a_claimed_job(ledger, items=2)
    job_id = old.token.job_id
    done = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
    with ledger.transaction() as tx:
        write_checkpoint(tx, old.token, finished=None, next_ordinal=0, limits=LIMITS)
        write_checkpoint(tx, old.token, finished=done, next_ordinal=1, limits=LIMITS)

    did = requeue(ledger, job_id)

    assert did == Requeued(job_id, True, builders.WORKER, 1, 2, Phase.QUEUED)
    before = snapshot(ledger, job_id)
    late = FinishedItem(ordinal=1, outcome=builders.an_outcome(), invocations=1)
    result = builders.a_result(old)
    with ledger.transaction() as tx:
        assert not renew_lease(tx, old.token, lease_ttl_s=LIMITS.work.lease_ttl_s)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, old.token, finished=late, next_ordinal=None, limits=LIMITS)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        record_intent(tx, old.token, result, limits=LIMITS)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        commit_result(tx, old.token, result, limits=LIMITS)
    assert snapshot(ledger, job_id) == before
    # It is ready at once; the finished item is not worked again.
    new = builders.claimed(ledger, job_id, owner="worker-b")
    assert new.token.lease_epoch > old.token.lease_epoch
    assert [item.item_class for item in new.items] == ["classified", None]
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, old.token, finished=late, next_ordinal=None, limits=LIMITS)
    with ledger.transaction() as tx:
        write_checkpoint(tx, new.token, finished=None, next_ordinal=1, limits=LIMITS)
        write_checkpoint(tx, new.token, finished=late, next_ordinal=None, limits=LIMITS)
    builders.publish(ledger, new)
    assert attempt_outcomes(ledger, job_id) == ["requeued", "committed"]
    assert event_kinds(ledger, job_id).count("requeued") == 1
    assert job_row(ledger, job_id)["attempts_spent"] == 0
    assert_invariants(ledger, LIMITS)


def test_a_waiting_job_is_ready_at_once_after_a_requeue(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    with ledger.transaction() as tx:
        fail_attempt(tx, job.token, failure_class=FailureClass.TRANSIENT, reason=UPLOAD_UNKNOWN, limits=LIMITS)
    assert job_row(ledger, job.token.job_id)["retry_at"] is not None
    did = requeue(ledger, job.token.job_id)
    assert (did.changed, did.fenced) == (True, None)
    assert builders.claimed(ledger, job.token.job_id).token.lease_epoch > did.epoch


def test_a_job_that_nobody_ever_held_is_left_as_it_is(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger).job_id
    before = snapshot(ledger, job_id)
    assert requeue(ledger, job_id) == Requeued(job_id, False, None, 0, 0, Phase.QUEUED)
    assert snapshot(ledger, job_id) == before


def test_requeues_beyond_the_attempt_budget_are_the_operators_own(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger, limits=LimitsRequest(max_attempts=1)).job_id
    for _ in range(6):
        builders.claimed(ledger, job_id)
        requeue(ledger, job_id)
    with ledger.reading() as tx:
        assert find(tx, ATTEMPTS_WITHIN_BUDGET, Bounds(LIMITS)).rows == []


def a_closed_job(ledger: Ledger) -> str:
    return builders.a_succeeded_job(ledger).token.job_id


def a_canceled_job(ledger: Ledger) -> str:
    job_id = str(builders.an_accepted_job(ledger).job_id)
    with ledger.transaction() as tx:
        cancel_job(tx, job_id=job_id, limits=LIMITS)
    return job_id


def a_job_with_an_unknown_upload(ledger: Ledger) -> str:
    job = builders.a_claimed_job(ledger, limits=LimitsRequest(max_attempts=1))
    builders.finish_items(ledger, job)
    with ledger.transaction() as tx:
        fail_attempt(tx, job.token, failure_class=FailureClass.AMBIGUOUS_UPLOAD, reason=UPLOAD_UNKNOWN, limits=LIMITS)
    return job.token.job_id


def a_quarantined_job(ledger: Ledger) -> str:
    job = builders.a_claimed_job(ledger)
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS)
        record_rejected_write(tx, job.token, write_kind="checkpoint", ordinal=0, digest="sha256:other")
        done = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
        assert write_checkpoint(tx, job.token, finished=done, next_ordinal=None, limits=LIMITS).held
    return job.token.job_id


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (a_closed_job, "STATE.REFUSES.v1"),
        (a_canceled_job, "STATE.REFUSES.v1"),
        (a_job_with_an_unknown_upload, "UPLOAD.UNKNOWN.v1"),
        (a_quarantined_job, "RESULT.QUARANTINED.v1"),
    ],
)
def test_a_requeue_is_refused_by_name_where_it_is_not_safe(
    ledger: Ledger, make: Callable[[Ledger], str], code: str
) -> None:
    job_id = make(ledger)
    before = (snapshot(ledger, job_id), item_classes(ledger, job_id))
    with pytest.raises(NotAllowed) as refused:
        requeue(ledger, job_id)
    assert refused.value.reason.code == code
    assert (snapshot(ledger, job_id), item_classes(ledger, job_id)) == before
