"""Reads the rows that the conformance suite asserts on."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.effects import effects, investigations, outbox, quarantine
from receipt_pipeline.ledger.schema.jobs import attempts, events, items, jobs, refused_writes
from receipt_pipeline_tests.chaos.oracle.evidence import find_violations, read_ledger
from receipt_pipeline_tests.chaos.oracle.invariants import ALWAYS

TABLES_OF_A_JOB = (jobs, items, attempts, effects, outbox, quarantine, refused_writes)


def all_rows(ledger: Ledger, table: sa.Table, job_id: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table, of one job if it is named, in the order of their keys."""
    query = sa.select(table).order_by(*table.primary_key.columns)
    with ledger.reading() as tx:
        return tx.rows(query if job_id is None else query.where(table.c.job_id == job_id))


def job_row(ledger: Ledger, job_id: str) -> dict[str, Any]:
    [row] = all_rows(ledger, jobs, job_id)
    return row


def event_kinds(ledger: Ledger, job_id: str) -> list[str]:
    return [row["kind"] for row in all_rows(ledger, events, job_id)]


def item_classes(ledger: Ledger, job_id: str) -> list[str | None]:
    return [row["item_class"] for row in all_rows(ledger, items, job_id)]


def attempt_outcomes(ledger: Ledger, job_id: str) -> list[str | None]:
    """Return the outcome of each attempt, oldest first; None for one that is open."""
    return [row["outcome"] for row in all_rows(ledger, attempts, job_id)]


def open_questions(ledger: Ledger, job_id: str) -> list[dict[str, Any]]:
    return [row for row in all_rows(ledger, investigations, job_id) if row["state"] == "open"]


def snapshot(ledger: Ledger, job_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return every row of a job but the journal's, to be compared byte for byte."""
    return {table.name: all_rows(ledger, table, job_id) for table in TABLES_OF_A_JOB}


def assert_invariants(ledger: Ledger, limits: Limits, *, job_id: str | None = None) -> None:
    found = read_ledger(ledger, limits, job_id=job_id)
    broken = [str(violation) for violation in find_violations(found, ALWAYS)]
    assert not broken, "\n".join(broken)
