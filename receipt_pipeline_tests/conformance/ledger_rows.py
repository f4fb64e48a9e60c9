"""Reads the rows that the conformance suite asserts on, and the invariants that hold after any test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from receipt_pipeline.core.items import ItemClass, count_classes, is_balanced
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.effects import effects, investigations, outbox, quarantine
from receipt_pipeline.ledger.schema.jobs import attempts, events, items, jobs, refused_writes

TABLES_OF_A_JOB = (jobs, items, attempts, effects, outbox, quarantine, refused_writes)


def all_rows(ledger: Ledger, table: sa.Table, job_id: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table, of one job if it is named, in the order of their keys."""
    query = sa.select(table).order_by(*table.primary_key.columns)
    with ledger.reading() as tx:
        return tx.rows(query if job_id is None else query.where(table.c.job_id == job_id))


def job_row(ledger: Ledger, job_id: str) -> dict[str, Any]:
    """Return the job's row."""
    [row] = all_rows(ledger, jobs, job_id)
    return row


def event_kinds(ledger: Ledger, job_id: str) -> list[str]:
    """Return what the journal says of a job, oldest first."""
    return [row["kind"] for row in all_rows(ledger, events, job_id)]


def item_classes(ledger: Ledger, job_id: str) -> list[str | None]:
    """Return the class of each item, in order."""
    return [row["item_class"] for row in all_rows(ledger, items, job_id)]


def attempt_outcomes(ledger: Ledger, job_id: str) -> list[str | None]:
    """Return the outcome of each attempt, oldest first; None for one that is open."""
    return [row["outcome"] for row in all_rows(ledger, attempts, job_id)]


def open_questions(ledger: Ledger, job_id: str) -> list[dict[str, Any]]:
    """Return the open investigations about a job."""
    return [row for row in all_rows(ledger, investigations, job_id) if row["state"] == "open"]


def snapshot(ledger: Ledger, job_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return every row of a job but the journal's, to be compared byte for byte."""
    return {table.name: all_rows(ledger, table, job_id) for table in TABLES_OF_A_JOB}


def assert_invariants(ledger: Ledger, limits: Limits, *, yields: int = 0) -> None:
    """Assert what no order of events may break, for every job of the ledger."""
    for job in all_rows(ledger, jobs):
        assert_job_invariants(ledger, job["job_id"], limits, yields=yields)


def assert_job_invariants(ledger: Ledger, job_id: str, limits: Limits, *, yields: int = 0) -> None:
    """Assert what no order of events may break for one job: one ending, balance, bounds, owners."""
    job = job_row(ledger, job_id)
    listed = all_rows(ledger, items, job_id)
    assert len(listed) == job["items_requested"]
    journal = all_rows(ledger, events, job_id)
    assert job["latest_seq"] == journal[-1]["seq"]
    terminal = job["state"] in TERMINAL_STATES
    assert [row["kind"] for row in journal].count("terminal") == int(terminal)
    tried = all_rows(ledger, attempts, job_id)
    _assert_attempts(job, tried, limits, yields=yields)
    if job["phase"] in HELD_PHASES:
        assert open_questions(ledger, job_id)
    if terminal:
        counts = count_classes(item["item_class"] for item in listed)
        assert is_balanced(requested=job["items_requested"], counts=counts)
        assert all(attempt["closed_at"] is not None for attempt in tried)
        _assert_owned(ledger, job_id, listed)
    if job["state"] == JobState.SUCCEEDED:
        uploads = [row for row in all_rows(ledger, effects, job_id) if row["kind"] == "result_object"]
        [kept] = [row for row in uploads if row["state"] == "committed"]
        assert kept["idempotency_key"] == job["result_key"]
        assert kept["expected_digest"] == job["result_digest"]


def _assert_attempts(
    job: dict[str, Any], tried: list[dict[str, Any]], limits: Limits, *, yields: int
) -> None:
    epochs = [attempt["lease_epoch"] for attempt in tried]
    assert epochs == sorted(set(epochs))
    assert job["lease_epoch"] >= max(epochs, default=0)
    work = [attempt for attempt in tried if attempt["kind"] == "work"]
    bound = job["max_attempts"] + limits.work.item_losses_max * job["items_requested"] + yields
    assert len(work) <= bound
    assert len(tried) - len(work) <= limits.work.closing_attempts_max
    assert job["attempts_spent"] == sum(attempt["spent_budget"] for attempt in tried) <= job["max_attempts"]


def _assert_owned(ledger: Ledger, job_id: str, listed: Iterable[dict[str, Any]]) -> None:
    unresolved = {item["item_id"] for item in listed if item["item_class"] == ItemClass.UNRESOLVED}
    named: set[str] = set()
    for question in all_rows(ledger, investigations, job_id):
        if question["kind"] == "unresolved_items":
            named |= set(question["evidence"]["item_ids"])
    assert unresolved <= named
