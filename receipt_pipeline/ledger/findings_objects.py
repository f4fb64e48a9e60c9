"""Finds what the last looks at the object store recorded against the ledger."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, exists, or_, select

from receipt_pipeline.core.job_lifecycle import JobState
from receipt_pipeline.ledger.effect_tables import object_checks, tombstones
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.findings import Finding, Query, find
from receipt_pipeline.ledger.object_records import ObjectOutcome
from receipt_pipeline.ledger.tables import jobs

Rows = list[dict[str, Any]]


def _checked_results(*conditions: ColumnElement[bool]) -> sa.Select[tuple[object, ...]]:
    """Join succeeded jobs whose result is to be there with what was last found under its key."""
    buried = exists(select(tombstones.c.object_key).where(tombstones.c.object_key == jobs.c.result_key))
    return (
        select(
            jobs.c.job_id,
            object_checks.c.outcome.label("fault"),
            jobs.c.result_key.label("object_key"),
            object_checks.c.expected_digest,
            object_checks.c.found_digest,
            object_checks.c.expected_size_bytes,
            object_checks.c.found_size_bytes,
            object_checks.c.pins_stated,
            object_checks.c.checked_at,
        )
        .join(object_checks, object_checks.c.object_key == jobs.c.result_key)
        .where(jobs.c.state == JobState.SUCCEEDED)
        .where(jobs.c.result_purged_at.is_(None))
        .where(~buried)
        .where(*conditions)
        .order_by(jobs.c.job_id)
    )


GONE = (ObjectOutcome.MISSING, ObjectOutcome.UNREADABLE)


@functools.cache
def _gone() -> Query:
    return _checked_results(object_checks.c.outcome.in_(GONE))


@functools.cache
def _altered() -> Query:
    return _checked_results(_is_altered())


@functools.cache
def _gone_or_altered() -> Query:
    return _checked_results(or_(object_checks.c.outcome.in_(GONE), _is_altered()))


def _is_altered() -> ColumnElement[bool]:
    other_digest = object_checks.c.found_digest != jobs.c.result_digest
    return or_(
        object_checks.c.outcome == ObjectOutcome.MISMATCH,
        and_(object_checks.c.outcome == ObjectOutcome.OK, other_digest),
    )


@functools.cache
def _without_pins() -> Query:
    there = object_checks.c.outcome.in_([ObjectOutcome.OK, ObjectOutcome.MISMATCH])
    return _checked_results(there, ~object_checks.c.pins_stated)


def success_without_object(tx: LedgerTransaction) -> Finding:
    """Find succeeded jobs whose object is missing, or cannot be read and so proves nothing (R081)."""
    return find(
        tx,
        name="success_without_object",
        meaning="every success that is not purged has its result object",
        query=_gone(),
    )


def object_mismatch(tx: LedgerTransaction) -> Finding:
    """Find succeeded jobs whose object has other bytes than the ledger's digest and size say."""
    return find(
        tx,
        name="object_mismatch",
        meaning="every result object has the digest and the size that the ledger recorded",
        query=_altered(),
    )


def gone_and_altered(tx: LedgerTransaction) -> tuple[Rows, Rows]:
    """Return the rows of `success_without_object` and of `object_mismatch`, in one pass over all results."""
    rows = tx.rows(_gone_or_altered())
    return [row for row in rows if row["fault"] in GONE], [row for row in rows if row["fault"] not in GONE]


def pins_not_stated(tx: LedgerTransaction) -> Finding:
    """Find results that are there but do not restate the identities their job was accepted under (R039)."""
    return find(
        tx,
        name="pins_not_stated",
        meaning="every result states the pins of its job",
        query=_without_pins(),
    )


def object_without_success(tx: LedgerTransaction) -> Finding:
    """Find stored results that nothing explains and that are older than the grace."""
    query = (
        select(
            object_checks.c.job_id,
            object_checks.c.outcome.label("fault"),
            object_checks.c.object_key,
            object_checks.c.found_size_bytes,
            object_checks.c.checked_at,
        )
        .where(object_checks.c.outcome == ObjectOutcome.ORPHAN)
        .order_by(object_checks.c.object_key)
    )
    return find(
        tx,
        name="object_without_success",
        meaning="every stored result is named by a success, intent, quarantine, question or hold",
        query=query,
    )
