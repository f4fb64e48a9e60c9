"""Invariants over objects and divergent outputs."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, cast, exists, func, literal, or_, select

from receipt_pipeline.core.effects import EffectKind
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.ledger.effects.objects import ObjectOutcome
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.records import Finding, Query, find
from receipt_pipeline.ledger.investigations import OPEN as QUESTION_OPEN
from receipt_pipeline.ledger.jobs.quarantine import OPEN
from receipt_pipeline.ledger.schema.effects import (
    consumed,
    effects,
    investigations,
    object_checks,
    quarantine,
    review_tasks,
    tombstones,
)
from receipt_pipeline.ledger.schema.jobs import items, jobs, refused_writes

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


RESULT = "result"
SUBJECT_COLUMNS = ("job_id", "subject", "known_digest", "other_digest", "source", "lease_epoch")


def unheld_divergence(tx: LedgerTransaction) -> Finding:
    """Find subjects (`item:<ordinal>`, `result`) with two digests that no quarantine lists both.

    Compared are refused late writes, intents of all attempts and deliveries with the committed line. A
    resolved quarantine settles the digests that it lists; another one is new evidence.
    """
    return find(
        tx,
        name="unheld_divergence",
        meaning="two outputs of one decision differ and nothing holds them",
        query=_unheld_in_order(),
    )


@functools.cache
def _unheld_in_order() -> sa.Select[Any]:
    """Return the query whole, made once: it is asked at every pass, and making it costs more than asking."""
    seen = _unheld()
    return select(seen).order_by(seen.c.job_id, seen.c.subject, seen.c.lease_epoch)


def divergent_and_served(tx: LedgerTransaction) -> Finding:
    """Find divergence that may still be served: unheld, or held while its tasks or question are not.

    A quarantine with disputed tasks and an open question serves nothing, so it is not listed.
    """
    seen = _unheld()
    undisputed = exists(
        select(review_tasks.c.decision_id)
        .where(review_tasks.c.job_id == quarantine.c.job_id)
        .where(~review_tasks.c.disputed)
    )
    asked = exists(
        select(investigations.c.investigation_id)
        .where(investigations.c.investigation_id == quarantine.c.investigation_id)
        .where(investigations.c.state == QUESTION_OPEN)
    )
    loose = select(
        quarantine.c.job_id,
        sa.case((undisputed, "tasks_not_disputed"), else_="question_closed").label("fault"),
        quarantine.c.subject,
    ).where(quarantine.c.state == OPEN, or_(undisputed, ~asked))
    unheld = select(seen.c.job_id, literal("not_held").label("fault"), seen.c.subject)
    both = sa.union(unheld, loose).subquery("served")
    return find(
        tx,
        name="divergent_and_served",
        meaning="divergent outputs are held, their tasks disputed, their question open",
        query=select(both).order_by(both.c.job_id, both.c.subject),
    )


def held_divergence(tx: LedgerTransaction) -> Finding:
    """Find open quarantines: which digests compete, and since when."""
    query = (
        select(
            quarantine.c.job_id,
            quarantine.c.subject,
            quarantine.c.before_terminal,
            quarantine.c.opened_at,
            quarantine.c.investigation_id,
        )
        .where(quarantine.c.state == OPEN)
        .order_by(quarantine.c.job_id, quarantine.c.subject)
    )
    return find(
        tx, name="held_divergence", meaning="divergent outputs wait for a recorded decision", query=query
    )


@functools.cache
def _unheld() -> sa.Subquery:
    candidates = sa.union_all(_refused_items(), _refused_results(), _intents(), _conflicts()).subquery("seen")
    listed = cast(quarantine.c.digests, sa.String)

    def lists(digest: ColumnElement[Any]) -> ColumnElement[bool]:
        # Both databases know replace; it changes the text only where the digest is in it.
        return func.replace(listed, digest, "") != listed

    known = exists(
        select(quarantine.c.quarantine_id)
        .where(quarantine.c.job_id == candidates.c.job_id)
        .where(quarantine.c.subject == candidates.c.subject)
        .where(lists(candidates.c.other_digest))
        .where(lists(candidates.c.known_digest))
    )
    return select(candidates).where(~known).subquery("unheld")


def _subject(
    query_from: Any, *, subject: ColumnElement[Any], known: Any, other: Any, source: Any, epoch: Any
) -> sa.Select[Any]:
    chosen = zip(SUBJECT_COLUMNS, (query_from.c.job_id, subject, known, other, source, epoch), strict=True)
    return select(*(column.label(name) for name, column in chosen))


def _refused_items() -> sa.Select[Any]:
    return (
        _subject(
            refused_writes,
            subject=literal("item:") + cast(refused_writes.c.ordinal, sa.String),
            known=items.c.outcome_digest,
            other=refused_writes.c.digest,
            source=literal("refused ") + refused_writes.c.write_kind,
            epoch=refused_writes.c.lease_epoch,
        )
        .join(
            items,
            and_(items.c.job_id == refused_writes.c.job_id, items.c.ordinal == refused_writes.c.ordinal),
        )
        .where(items.c.outcome_digest != refused_writes.c.digest)
    )


def _refused_results() -> sa.Select[Any]:
    """A refused publication against the committed result, or against another attempt's intent."""
    published = func.coalesce(jobs.c.result_digest, effects.c.expected_digest)
    intended = and_(effects.c.job_id == refused_writes.c.job_id, effects.c.kind == EffectKind.RESULT_OBJECT)
    return (
        _subject(
            refused_writes,
            subject=literal(RESULT),
            known=published,
            other=refused_writes.c.digest,
            source=literal("refused ") + refused_writes.c.write_kind,
            epoch=refused_writes.c.lease_epoch,
        )
        .join(jobs, jobs.c.job_id == refused_writes.c.job_id)
        .join(effects, intended, isouter=True)
        .where(refused_writes.c.ordinal.is_(None))
        .where(refused_writes.c.digest != published)
        .where(or_(jobs.c.result_digest.is_not(None), jobs.c.close_cause.is_(None)))
        .distinct()
    )


def _intents() -> sa.Select[Any]:
    """An upload of a lost attempt against the committed result, or against a later attempt's intent.

    A closing attempt publishes what the checkpoints hold by then, and a decision about an item changes
    the result: there, a result that differs from an earlier intent is what was decided.
    """
    later = effects.alias("later")
    published = func.coalesce(jobs.c.result_digest, later.c.expected_digest)
    decided = exists(
        select(quarantine.c.quarantine_id)
        .where(quarantine.c.job_id == effects.c.job_id)
        .where(quarantine.c.before_terminal)
        .where(quarantine.c.state != OPEN)
    )
    follows = and_(
        later.c.job_id == effects.c.job_id,
        later.c.kind == EffectKind.RESULT_OBJECT,
        later.c.lease_epoch > effects.c.lease_epoch,
    )
    return (
        _subject(
            effects,
            subject=literal(RESULT),
            known=published,
            other=effects.c.expected_digest,
            source=literal("intent"),
            epoch=effects.c.lease_epoch,
        )
        .join(jobs, jobs.c.job_id == effects.c.job_id)
        .join(later, follows, isouter=True)
        .where(effects.c.kind == EffectKind.RESULT_OBJECT)
        .where(effects.c.expected_digest != published)
        .where(jobs.c.close_cause.is_(None))
        .where(~decided)
        .distinct()
    )


def _conflicts() -> sa.Select[Any]:
    """A delivery that carried another digest than the committed result (R085)."""
    return (
        _subject(
            consumed,
            subject=literal(RESULT),
            known=jobs.c.result_digest,
            other=consumed.c.result_digest,
            source=literal("delivery"),
            epoch=jobs.c.lease_epoch,
        )
        .join(jobs, jobs.c.job_id == consumed.c.job_id)
        .where(consumed.c.outcome == "conflict")
        .where(consumed.c.result_digest != jobs.c.result_digest)
        .distinct()
    )
