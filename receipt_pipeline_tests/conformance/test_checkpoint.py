"""Item boundaries on every ledger: outcome, begun mark and lease in one transaction, once."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, record_attempt_facts, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import ClaimedJob
from receipt_pipeline.ledger.jobs.failures import yield_job
from receipt_pipeline.ledger.jobs.publication import close_own_overdue_items
from receipt_pipeline.ledger.schema.jobs import attempts, events, items
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, event_kinds, item_classes, job_row, snapshot
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS


class Stopped(Exception):
    """Stands for the end of a process inside a transaction."""


def finished(ordinal: int, **given: Any) -> FinishedItem:
    return FinishedItem(ordinal=ordinal, outcome=builders.an_outcome(**given), invocations=1)


def cut_off_after_boundary(ledger: Ledger, job: ClaimedJob) -> None:
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=finished(0), next_ordinal=1, limits=LIMITS)
        raise Stopped


def test_a_boundary_writes_outcome_checkpoint_begun_mark_and_lease_together(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    with ledger.transaction() as tx:
        assert write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS).begun
    clock.advance(12)
    outcome = builders.an_outcome(Decision.REVIEW)
    with ledger.transaction() as tx:
        boundary = write_checkpoint(
            tx,
            job.token,
            finished=FinishedItem(ordinal=0, outcome=outcome, invocations=1),
            next_ordinal=1,
            limits=LIMITS,
        )
    assert (boundary.begun, boundary.limit_reached, boundary.held) == (True, None, False)
    first, second = all_rows(ledger, items, job.token.job_id)
    assert (first["item_class"], first["decision"], first["risk_ppm"]) == ("classified", "review", 40_000)
    assert (first["outcome_digest"], first["written_epoch"]) == (outcome.outcome_digest, 1)
    assert (first["finished_at"], first["invocations"]) == (clock.now(), 1)
    assert (second["item_class"], second["begun_epoch"], second["begun_at"]) == (None, 1, clock.now())
    row = job_row(ledger, job.token.job_id)
    assert (row["checkpoint"], row["checkpoint_at"]) == (1, clock.now())
    assert row["lease_expires_at"] == clock.now() + dt.timedelta(seconds=LIMITS.work.lease_ttl_s)
    [attempt] = all_rows(ledger, attempts, job.token.job_id)
    assert attempt["invocations"] == 1
    assert event_kinds(ledger, job.token.job_id)[-1] == "item_finished"


@pytest.mark.requirement("R089")
def test_a_transaction_that_is_cut_off_leaves_nothing_of_the_boundary(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    before, journal = snapshot(ledger, job.token.job_id), all_rows(ledger, events)
    clock.advance(5)
    with pytest.raises(Stopped):
        cut_off_after_boundary(ledger, job)
    assert snapshot(ledger, job.token.job_id) == before
    assert all_rows(ledger, events) == journal


@pytest.mark.requirement("R110")
def test_a_boundary_that_is_passed_twice_changes_nothing_more(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    for _ in range(2):
        with ledger.transaction() as tx:
            write_checkpoint(tx, job.token, finished=finished(0), next_ordinal=1, limits=LIMITS)
    assert event_kinds(ledger, job.token.job_id).count("item_finished") == 1
    first, _ = all_rows(ledger, items, job.token.job_id)
    assert first["invocations"] == 1


def test_a_second_and_other_outcome_under_one_token_is_a_broken_promise(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    builders.finish_items(ledger, job)
    before = snapshot(ledger, job.token.job_id)
    with pytest.raises(AssertionError), ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=finished(0, total_minor=1), next_ordinal=None, limits=LIMITS)
    assert snapshot(ledger, job.token.job_id) == before


def test_a_rejected_item_is_finished_with_its_reason_and_spends_no_budget(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    builders.finish_items(ledger, job, builders.a_rejection(), builders.an_outcome())
    first, _ = all_rows(ledger, items, job.token.job_id)
    assert (first["item_class"], first["reason_code"]) == ("rejected", builders.a_rejection().reason_code)
    assert job_row(ledger, job.token.job_id)["attempts_spent"] == 0


def test_an_unchanged_item_keeps_the_earlier_decision_id(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    kept = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=0, kept_decision_id="earlier")
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=kept, next_ordinal=None, limits=LIMITS)
    [item] = all_rows(ledger, items, job.token.job_id)
    assert (item["decision_id"], item["invocations"]) == ("earlier", 0)


def test_past_the_processing_deadline_no_further_item_begins(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_claimed_job(ledger, items=3, limits=LimitsRequest(processing_timeout_s=10))
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS)
    clock.advance(10)
    with ledger.transaction() as tx:
        boundary = write_checkpoint(tx, job.token, finished=finished(0), next_ordinal=1, limits=LIMITS)
    assert (boundary.begun, boundary.limit_reached) == (False, "timeout")
    with ledger.transaction() as tx:
        assert boundary.limit_reached is not None
        close_own_overdue_items(tx, job.token, cause=boundary.limit_reached)
    assert item_classes(ledger, job.token.job_id) == ["classified", "expired", "expired"]
    row = job_row(ledger, job.token.job_id)
    assert (row["close_cause"], row["phase"], row["lease_epoch"]) == ("timeout", "closing", 1)


def test_facts_of_the_machine_stay_on_the_attempt(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger)
    with ledger.transaction() as tx:
        record_attempt_facts(tx, job.token, {"threads": 1, "cpu": "x86_64"})
        yield_job(tx, job.token)
    [attempt] = all_rows(ledger, attempts, job.token.job_id)
    assert attempt["facts"] == {"threads": 1, "cpu": "x86_64"}
