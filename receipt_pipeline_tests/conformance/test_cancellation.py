"""The answer to a cancellation, whenever it comes: what stopped, what stands, and what remains."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from receipt_pipeline.core.errors import LeaseLost
from receipt_pipeline.core.receipt_text import cancellation_document, compensation
from receipt_pipeline.ledger.effects.consumption import make_review_tasks
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import ClaimRefused, claim_job
from receipt_pipeline.ledger.jobs.finalize import commit_result
from receipt_pipeline.ledger.jobs.publication import record_intent
from receipt_pipeline.ledger.rows import JobRow, read_items
from receipt_pipeline.ledger.schema.effects import effects
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, assert_invariants, job_row, snapshot

LIMITS = builders.LIMITS


def cancel(ledger: Ledger, job_id: str) -> dict[str, Any]:
    with ledger.transaction() as tx:
        assert cancel_job(tx, job_id=job_id, limits=LIMITS) is not None
        return explained(
            tx.rows(select(effects).where(effects.c.job_id == job_id)),
            [item.as_mapping() for item in read_items(tx, job_id)],
        )


def explained(followed: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, Any]:
    answer = cancellation_document(rows, followed)
    named = [*answer["stopped"], *answer["stands"], *answer["unresolved"]]
    assert sorted(named) == sorted(row["item_id"] for row in rows)
    assert answer["requested"] == len(named)
    return answer


@pytest.mark.requirement("R058", "R059")
def test_before_the_claim_everything_stops_and_nothing_stands(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger, items=2).job_id
    answer = cancel(ledger, job_id)
    assert (answer["stopped"], answer["stands"], answer["unresolved"]) == (["r-001", "r-002"], [], [])
    assert [(entry["effect"], entry["state"]) for entry in answer["remains"]] == [("notification", "intended")]
    assert answer["compensating_action"] == {
        "exists": False,
        "what": "None is needed: only the notification about closing was sent.",
    }
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R058", "R059")
def test_between_chunks_what_was_finished_stands_and_the_begun_item_stops(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=3)
    done = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS)
        write_checkpoint(tx, job.token, finished=done, next_ordinal=1, limits=LIMITS)
    answer = cancel(ledger, job.token.job_id)
    assert (answer["stands"], answer["stopped"]) == (["r-001"], ["r-002", "r-003"])
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=done, next_ordinal=2, limits=LIMITS)
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R058", "R060")
def test_between_intent_and_commit_the_upload_remains_to_be_looked_up_and_is_served_to_nobody(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=1)
    builders.finish_items(ledger, job)
    result = builders.a_result(job)
    with ledger.transaction() as tx:
        record_intent(tx, job.token, result, limits=LIMITS)
    answer = cancel(ledger, job.token.job_id)
    assert (answer["stands"], answer["stopped"]) == (["r-001"], [])
    assert ("result_object", "intended") in [(row["effect"], row["state"]) for row in answer["remains"]]
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        commit_result(tx, job.token, result, limits=LIMITS)
    assert job_row(ledger, job.token.job_id)["result_key"] is None


@pytest.mark.requirement("R060")
@pytest.mark.parametrize("first", ["claim", "cancel"])
def test_racing_a_claim_no_canceled_job_goes_on_to_produce_effects(ledger: Ledger, first: str) -> None:
    job_id = builders.an_accepted_job(ledger).job_id
    worker = builders.claimed(ledger, job_id) if first == "claim" else None
    answer = cancel(ledger, job_id)
    assert answer["stopped"] == ["r-001"]
    with ledger.transaction() as tx:
        assert isinstance(claim_job(tx, job_id=job_id, owner="w", run_id="", limits=LIMITS), ClaimRefused)
    if worker is not None:
        with pytest.raises(LeaseLost), ledger.transaction() as tx:
            write_checkpoint(tx, worker.token, finished=None, next_ordinal=0, limits=LIMITS)
    assert {row["kind"] for row in all_rows(ledger, effects, job_id)} == {"notification"}


@pytest.mark.requirement("R058")
def test_after_the_commit_nothing_stops_and_no_action_pretends_to_undo_what_was_sent_on(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(ledger)
    job_id = job.token.job_id
    with ledger.transaction() as tx:
        make_review_tasks(tx, JobRow.from_row(job_row(ledger, job_id)))
    before = snapshot(ledger, job_id)
    with ledger.transaction() as tx:
        assert cancel_job(tx, job_id=job_id, limits=LIMITS) is None
    assert snapshot(ledger, job_id) == before
    undone = compensation(all_rows(ledger, effects, job_id))
    assert undone == {"exists": False, "what": "Nothing undoes review tasks that already exist: reviewers close them."}
