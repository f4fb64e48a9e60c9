"""Finds divergent outputs: digests of one decision that differ and that no quarantine holds yet."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, cast, exists, func, literal, or_, select

from receipt_pipeline.core.effect_lifecycle import EffectKind
from receipt_pipeline.ledger.effect_tables import (
    consumed,
    effects,
    investigations,
    quarantine,
    review_tasks,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.findings import Finding, find
from receipt_pipeline.ledger.investigations import OPEN as QUESTION_OPEN
from receipt_pipeline.ledger.quarantines import OPEN
from receipt_pipeline.ledger.tables import items, jobs, refused_writes

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
