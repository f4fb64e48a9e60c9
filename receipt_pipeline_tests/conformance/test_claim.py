"""Claims on every ledger: the epoch is the authority, and between claim and expiry is no gap."""

from __future__ import annotations

import datetime as dt
import threading

import pytest

from receipt_pipeline.core.attempts import FailureClass, FencingToken
from receipt_pipeline.core.errors import LeaseLost
from receipt_pipeline.core.reasons import QUEUE_AGE_REACHED, WORKER_LOST
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, ClaimRefused, claim_job, renew_lease
from receipt_pipeline.ledger.jobs.expire import expire_job, overdue_job_ids
from receipt_pipeline.ledger.jobs.failures import expired_leases, fail_attempt, lose_lease, yield_job
from receipt_pipeline.ledger.jobs.finalize import close_without_result, commit_result
from receipt_pipeline.ledger.jobs.publication import record_intent
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs, refused_writes
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import (
    all_rows,
    attempt_outcomes,
    event_kinds,
    item_classes,
    job_row,
    snapshot,
)
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS
QUEUE_AGE_S = 47
THREADS = 5


def try_claim(ledger: Ledger, job_id: str, owner: str = "worker-b") -> ClaimedJob | ClaimRefused:
    with ledger.transaction() as tx:
        return claim_job(tx, job_id=job_id, owner=owner, run_id="", limits=LIMITS)


def an_aging_job(ledger: Ledger) -> str:
    job = builders.an_accepted_job(ledger, limits=LimitsRequest(max_queue_age_s=QUEUE_AGE_S))
    return str(job.job_id)


def taken_over(ledger: Ledger, clock: FakeClock, first: ClaimedJob) -> ClaimedJob:
    clock.advance(LIMITS.work.lease_ttl_s)
    with ledger.transaction() as tx:
        assert lose_lease(tx, job_id=first.token.job_id, seen_epoch=first.token.lease_epoch, limits=LIMITS)
    clock.advance(LIMITS.work.retry_cap_s * 2)
    return builders.claimed(ledger, first.token.job_id, owner="worker-b")


@pytest.mark.requirement("R062")
def test_a_claim_raises_the_epoch_and_opens_an_attempt(ledger: Ledger, clock: FakeClock) -> None:
    first = builders.a_claimed_job(ledger, items=2)
    job = job_row(ledger, first.token.job_id)
    assert (job["state"], job["phase"], job["lease_epoch"], job["lease_owner"]) == (
        "running",
        "working",
        1,
        builders.WORKER,
    )
    assert job["lease_expires_at"] == clock.now() + dt.timedelta(seconds=LIMITS.work.lease_ttl_s)
    assert job["processing_deadline"] == clock.now() + dt.timedelta(seconds=job["processing_timeout_s"])
    [attempt] = all_rows(ledger, attempts, job["job_id"])
    assert (attempt["lease_epoch"], attempt["kind"], attempt["attempt_no"]) == (1, "work", 1)
    assert [item.ordinal for item in first.items] == [0, 1]
    second = taken_over(ledger, clock, first)
    assert second.token.lease_epoch > first.token.lease_epoch
    assert [row["attempt_no"] for row in all_rows(ledger, attempts, job["job_id"])] == [1, 2]


@pytest.mark.requirement("R049")
@pytest.mark.parametrize(("age_s", "expired"), [(20, False), (46, False), (47, False), (48, True)])
def test_expiry_and_the_first_claim_are_exact_complements(
    ledger: Ledger, clock: FakeClock, age_s: int, expired: bool
) -> None:
    to_claim, to_expire = an_aging_job(ledger), an_aging_job(ledger)
    clock.advance(age_s)
    with ledger.transaction() as tx:
        assert sorted(overdue_job_ids(tx, limit=10)) == (sorted([to_claim, to_expire]) if expired else [])
        assert expire_job(tx, job_id=to_expire, limits=LIMITS) is expired
    claim = try_claim(ledger, to_claim)
    assert isinstance(claim, ClaimRefused) is expired
    expected = "expired" if expired else "accepted"
    assert job_row(ledger, to_expire)["state"] == expected
    assert item_classes(ledger, to_expire) == ["expired" if expired else None]
    assert job_row(ledger, to_claim)["state"] == ("expired" if expired else "running")


def test_the_boundary_is_exact_to_the_microsecond(ledger: Ledger, clock: FakeClock) -> None:
    in_time, too_late = an_aging_job(ledger), an_aging_job(ledger)
    clock.advance(QUEUE_AGE_S)
    assert isinstance(try_claim(ledger, in_time), ClaimedJob)
    clock.advance(1e-6)
    assert isinstance(try_claim(ledger, too_late), ClaimRefused)


@pytest.mark.requirement("R046", "R052")
def test_a_claim_past_the_deadline_expires_the_job_and_spends_nothing(ledger: Ledger, clock: FakeClock) -> None:
    job_id = an_aging_job(ledger)
    clock.advance(QUEUE_AGE_S + 1)
    refused = try_claim(ledger, job_id)
    assert isinstance(refused, ClaimRefused)
    assert refused.reason is QUEUE_AGE_REACHED
    job = job_row(ledger, job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == ("expired", "expired", "QUEUE.AGE_REACHED.v1")
    assert job["claimed_at"] is None
    assert all_rows(ledger, attempts, job_id) == []
    [item] = all_rows(ledger, items, job_id)
    assert (item["item_class"], item["invocations"]) == ("expired", 0)
    again = try_claim(ledger, job_id)
    assert isinstance(again, ClaimRefused)
    assert again.reason.code == "CLAIM.NOT_READY.v1"


def test_a_later_claim_never_expires_a_job(ledger: Ledger, clock: FakeClock) -> None:
    first = builders.claimed(ledger, an_aging_job(ledger))
    clock.advance(QUEUE_AGE_S + 1)
    with ledger.transaction() as tx:
        yield_job(tx, first.token)
        assert not expire_job(tx, job_id=first.token.job_id, limits=LIMITS)
    assert isinstance(try_claim(ledger, first.token.job_id), ClaimedJob)


def test_a_job_in_hand_an_unknown_and_a_closed_one_are_not_claimable(ledger: Ledger) -> None:
    held = builders.a_claimed_job(ledger)
    closed = builders.a_succeeded_job(ledger)
    for job_id in (held.token.job_id, closed.token.job_id, "job_unknown"):
        refused = try_claim(ledger, job_id)
        assert isinstance(refused, ClaimRefused)
        assert refused.reason.code == "CLAIM.NOT_READY.v1"
    assert job_row(ledger, held.token.job_id)["lease_epoch"] == 1


def test_of_workers_that_claim_at_once_one_gets_the_job(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger).job_id
    start = threading.Barrier(THREADS)
    answers: list[ClaimedJob | ClaimRefused] = []

    def claim(number: int) -> None:
        start.wait()
        answers.append(try_claim(ledger, job_id, owner=f"worker-{number}"))

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([answer for answer in answers if isinstance(answer, ClaimedJob)]) == 1
    assert job_row(ledger, job_id)["lease_epoch"] == 1
    assert len(all_rows(ledger, attempts, job_id)) == 1


@pytest.mark.requirement("R068")
def test_a_slow_worker_that_renews_keeps_its_lease_beyond_the_nominal_time(ledger: Ledger, clock: FakeClock) -> None:
    slow = builders.a_claimed_job(ledger)
    for _ in range(6):
        clock.advance(LIMITS.work.lease_ttl_s - 1)
        with ledger.transaction() as tx:
            assert renew_lease(tx, slow.token, lease_ttl_s=LIMITS.work.lease_ttl_s)
            assert expired_leases(tx, limit=10) == []
            assert not lose_lease(tx, job_id=slow.token.job_id, seen_epoch=1, limits=LIMITS)
    assert job_row(ledger, slow.token.job_id)["lease_epoch"] == 1
    assert isinstance(try_claim(ledger, slow.token.job_id), ClaimRefused)


def test_a_renewal_that_comes_between_seeing_and_taking_wins(ledger: Ledger, clock: FakeClock) -> None:
    slow = builders.a_claimed_job(ledger)
    clock.advance(LIMITS.work.lease_ttl_s)
    with ledger.transaction() as tx:
        [seen] = expired_leases(tx, limit=10)
    with ledger.transaction() as tx:
        assert renew_lease(tx, slow.token, lease_ttl_s=LIMITS.work.lease_ttl_s)
    with ledger.transaction() as tx:
        assert not lose_lease(tx, job_id=seen["job_id"], seen_epoch=seen["lease_epoch"], limits=LIMITS)
    assert attempt_outcomes(ledger, slow.token.job_id) == [None]


@pytest.mark.requirement("R063", "R064", "R065", "R066", "R067")
def test_every_write_of_a_stale_worker_is_refused_and_changes_nothing(ledger: Ledger, clock: FakeClock) -> None:
    stale = builders.a_claimed_job(ledger, items=2)
    taken_over(ledger, clock, stale)
    before = snapshot(ledger, stale.token.job_id)
    finished = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
    result = builders.a_result(stale)
    with ledger.transaction() as tx:
        assert not renew_lease(tx, stale.token, lease_ttl_s=LIMITS.work.lease_ttl_s)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, stale.token, finished=finished, next_ordinal=1, limits=LIMITS)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        record_intent(tx, stale.token, result, limits=LIMITS)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        commit_result(tx, stale.token, result, limits=LIMITS)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        close_without_result(tx, stale.token, limits=LIMITS)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        yield_job(tx, stale.token)
    with pytest.raises(LeaseLost) as caught, ledger.transaction() as tx:
        fail_attempt(tx, stale.token, failure_class=FailureClass.TRANSIENT, reason=WORKER_LOST, limits=LIMITS)
    assert caught.value.reason.code == "LEASE.STALE_EPOCH.v1"
    assert snapshot(ledger, stale.token.job_id) == before


def test_a_refused_write_is_kept_with_the_digest_that_it_carried(ledger: Ledger, clock: FakeClock) -> None:
    stale = builders.a_claimed_job(ledger)
    owner = taken_over(ledger, clock, stale)
    digest = builders.an_outcome(total_minor=99).outcome_digest
    with ledger.transaction() as tx:
        record_rejected_write(tx, stale.token, write_kind="checkpoint", ordinal=0, digest=digest)
    [row] = all_rows(ledger, refused_writes, stale.token.job_id)
    assert (row["lease_epoch"], row["current_epoch"]) == (1, owner.token.lease_epoch)
    assert (row["write_kind"], row["ordinal"], row["digest"]) == ("checkpoint", 0, digest)
    assert event_kinds(ledger, stale.token.job_id)[-1] == "write_refused"


def test_a_claim_of_an_expired_lease_charges_the_loss_and_waits_for_the_pause(ledger: Ledger, clock: FakeClock) -> None:
    first = builders.a_claimed_job(ledger)
    clock.advance(LIMITS.work.lease_ttl_s)
    assert isinstance(try_claim(ledger, first.token.job_id), ClaimRefused)
    job = job_row(ledger, first.token.job_id)
    assert (job["lease_epoch"], job["lease_owner"], job["attempts_spent"]) == (2, None, 1)
    assert job["retry_at"] > clock.now()
    assert attempt_outcomes(ledger, first.token.job_id) == ["lost"]
    assert isinstance(try_claim(ledger, first.token.job_id), ClaimRefused)
    clock.set(job["retry_at"])
    second = try_claim(ledger, first.token.job_id)
    assert isinstance(second, ClaimedJob)
    assert second.token.lease_epoch == 3
    assert second.job.retry_at is None


def test_a_token_of_the_future_has_no_authority_either(ledger: Ledger) -> None:
    claimed = builders.a_claimed_job(ledger)
    forged = FencingToken(claimed.token.job_id, claimed.token.lease_epoch + 1)
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, forged, finished=None, next_ordinal=0, limits=LIMITS)
    with ledger.transaction() as tx:
        assert not renew_lease(tx, forged, lease_ttl_s=30)


def test_a_first_claim_at_the_very_cutoff_begins_no_item(ledger: Ledger, clock: FakeClock) -> None:
    cutoff = clock.now() + dt.timedelta(seconds=10_000)
    no_margin = LIMITS.replace(cutoff_margin_s=0)
    job = builders.an_accepted_job(ledger, cutoff=cutoff)
    clock.set(job.queue_deadline)
    claimed = builders.claimed(ledger, job.job_id, limits=no_margin)
    clock.set(cutoff)
    with ledger.transaction() as tx:
        boundary = write_checkpoint(tx, claimed.token, finished=None, next_ordinal=0, limits=no_margin)
    assert (boundary.begun, boundary.limit_reached) == (False, "cutoff")
    [row] = all_rows(ledger, jobs, job.job_id)
    assert row["close_cause"] is None
