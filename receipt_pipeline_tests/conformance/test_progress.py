"""Progress on every ledger is bounded evidence: denominator, durable checkpoint, age, and corrections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.errors import NotFound
from receipt_pipeline.core.lifecycle import CloseCause
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.core.status_document import discovered_progress
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, renew_lease
from receipt_pipeline.ledger.jobs.expire import overrun_job, overrunning_jobs
from receipt_pipeline.ledger.jobs.failures import lose_lease
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline.ledger.submissions import (
    NewSubmission,
    RowOutcome,
    RowRecord,
    SubmissionState,
    finish_submission,
    open_submission,
    record_row,
    submission_status,
)
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench

LIMITS = builders.LIMITS
TIMEOUT_S = 100
FIXED_KEYS = {
    "scope",
    "denominator",
    "checkpoint",
    "finished",
    "adjustments",
    "observed_at",
    "checkpoint_at",
    "checkpoint_age_s",
    "delayed",
    "delayed_for_s",
}


def a_half_done_job(ledger: Ledger) -> ClaimedJob:
    job = builders.a_claimed_job(ledger, items=3, limits=LimitsRequest(processing_timeout_s=TIMEOUT_S))
    done = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS)
        write_checkpoint(tx, job.token, finished=done, next_ordinal=1, limits=LIMITS)
    return job


def status(ledger: Ledger, job_id: str) -> dict[str, Any]:
    with ledger.reading() as tx:
        return read_status(tx, job_id)


def classed(document: dict[str, Any]) -> int:
    return sum(count for name, count in document["items"].items() if name != "requested")


@pytest.mark.requirement("R116")
def test_progress_names_denominator_checkpoint_counters_and_freshness_and_promises_nothing(
    ledger: Ledger, clock: FakeClock
) -> None:
    job = a_half_done_job(ledger)
    clock.advance(7)
    progress = status(ledger, job.token.job_id)["progress"]
    assert set(progress) == FIXED_KEYS
    assert (progress["scope"], progress["denominator"], progress["checkpoint"]) == ("fixed", 3, 1)
    assert (progress["finished"], progress["adjustments"]) == (1, [])
    assert (progress["observed_at"], progress["checkpoint_age_s"]) == (clock.now().isoformat(), 7.0)


@pytest.mark.requirement("R057")
def test_a_worker_that_falls_silent_is_shown_as_delayed_with_its_age(ledger: Ledger, clock: FakeClock) -> None:
    job = a_half_done_job(ledger)
    clock.advance(LIMITS.work.lease_ttl_s - 1)
    with ledger.transaction() as tx:
        assert renew_lease(tx, job.token, lease_ttl_s=LIMITS.work.lease_ttl_s)
    clock.advance(LIMITS.work.lease_ttl_s)
    assert status(ledger, job.token.job_id)["phase"] == "working"
    clock.advance(40)
    silent = status(ledger, job.token.job_id)
    assert (silent["state"], silent["phase"], silent["next_action"]) == ("running", "delayed", "wait")
    assert (silent["progress"]["delayed"], silent["progress"]["delayed_for_s"]) == (True, 40.0)
    assert silent["progress"]["checkpoint"] == 1
    with ledger.transaction() as tx:
        assert renew_lease(tx, job.token, lease_ttl_s=LIMITS.work.lease_ttl_s)
    assert status(ledger, job.token.job_id)["phase"] == "working"


@pytest.mark.requirement("R118")
def test_after_a_restart_progress_stands_at_the_last_durable_checkpoint(
    ledger: Ledger, ledger_url: str, clock: FakeClock
) -> None:
    job = a_half_done_job(ledger)
    before = status(ledger, job.token.job_id)
    ledger.close()
    opened = open_ledger(ledger_url, clock=clock)
    after = status(opened, job.token.job_id)
    assert after == before
    clock.advance(LIMITS.work.lease_ttl_s + LIMITS.work.retry_cap_s)
    with opened.transaction() as tx:
        assert lose_lease(tx, job_id=job.token.job_id, seen_epoch=1, limits=LIMITS)
    clock.advance(LIMITS.work.retry_cap_s)
    builders.claimed(opened, job.token.job_id)
    assert status(opened, job.token.job_id)["progress"]["checkpoint"] == 1
    opened.close()


@pytest.mark.requirement("R119")
def test_counters_that_move_without_a_checkpoint_are_explained_by_their_reason(
    ledger: Ledger, clock: FakeClock
) -> None:
    job = a_half_done_job(ledger)
    clock.advance(TIMEOUT_S + LIMITS.work.overrun_grace_s)
    with ledger.transaction() as tx:
        [seen] = overrunning_jobs(tx, grace_s=LIMITS.work.overrun_grace_s, limit=1)
        assert overrun_job(
            tx,
            job_id=seen["job_id"],
            seen_epoch=seen["lease_epoch"],
            cause=CloseCause.TIMEOUT,
            grace_s=LIMITS.work.overrun_grace_s,
        )
    closing = builders.claimed(ledger, job.token.job_id, owner="worker-b")
    builders.publish(ledger, closing)
    document = status(ledger, job.token.job_id)
    progress = document["progress"]
    assert [(entry["class"], entry["count"], entry["reason"]) for entry in progress["adjustments"]] == [
        ("expired", 1, "ITEM.OVERTAKEN.v1"),
        ("unresolved", 1, "ITEM.OVERTAKEN.v1"),
    ]
    assert all(entry["meaning"] for entry in progress["adjustments"])
    # What workers finished and what was adjusted make up the accepted scope.
    adjusted = sum(entry["count"] for entry in progress["adjustments"])
    assert progress["finished"] + adjusted == classed(document) == document["items"]["requested"] == 3


@pytest.mark.requirement("R119")
def test_an_item_that_was_isolated_is_an_adjustment_too(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> None:
    house = ReconcileBench.build(ledger, clock, tmp_path)
    job_id = house.bench.accept(items=2)
    house.lose_item(job_id, times=house.limits.work.item_losses_max)
    house.bench.work_until_closed(job_id)
    progress = status(ledger, job_id)["progress"]
    assert [(entry["class"], entry["reason"]) for entry in progress["adjustments"]] == [
        ("unresolved", "WORKER.LOST.v1")
    ]
    assert (progress["finished"], progress["checkpoint"]) == (1, 2)


@pytest.mark.requirement("R117")
def test_discovered_scope_shows_a_count_and_a_phase_and_no_denominator(clock: FakeClock) -> None:
    found = discovered_progress(decided=4_000, phase="waiting", total=None, read_at=clock.now())
    assert found == {
        "scope": "discovered",
        "phase": "waiting",
        "decided": 4_000,
        "observed_at": clock.now().isoformat(),
    }
    assert discovered_progress(decided=9, phase="accepted", total=9, read_at=clock.now())["denominator"] == 9


@pytest.mark.requirement("R117")
def test_a_delivery_has_no_denominator_until_all_its_rows_are_known(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        submission_id = open_submission(
            tx,
            NewSubmission(
                tenant=builders.TENANT,
                caller=builders.CALLER,
                door="inbox",
                label="many.csv",
                document_digest="sha256:00",
            ),
        )
        for number in (1, 2):
            record_row(
                tx, submission_id, RowRecord(row_no=number, outcome=RowOutcome.REFUSED, idempotency_key="", job_id=None)
            )
        reading = submission_status(tx, submission_id, tenant=builders.TENANT)
        finish_submission(tx, submission_id, state=SubmissionState.REFUSED, rows_total=2)
        settled = submission_status(tx, submission_id, tenant=builders.TENANT)
        with pytest.raises(NotFound):
            submission_status(tx, submission_id, tenant="globex")
    assert set(reading["progress"]) == {"scope", "phase", "decided", "observed_at"}
    assert (reading["progress"]["scope"], reading["progress"]["decided"]) == ("discovered", 2)
    assert (settled["progress"]["denominator"], settled["rows"]["refused"]) == (2, 2)
