"""Invariants over objects and divergent outputs."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, cast, exists, func, literal, or_, select

from receipt_pipeline.core.effects import EffectKind
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.reasons import OBJECT_UNEXPLAINED, RESULT_MISMATCH, RESULT_MISSING
from receipt_pipeline.ledger.changes import LedgerReader
from receipt_pipeline.ledger.effects.objects import ObjectOutcome
from receipt_pipeline.ledger.invariants.invariant import (
    RESULT_OBJECTS,
    REVIEW_TASKS,
    Invariant,
    Investigate,
    Observe,
    Query,
    always,
)
from receipt_pipeline.ledger.investigations import OPEN as INVESTIGATION_OPEN
from receipt_pipeline.ledger.investigations import InvestigationKind
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
    """Join succeeded jobs that should have a result with what was last found under its key."""
    has_tombstone = exists(select(tombstones.c.object_key).where(tombstones.c.object_key == jobs.c.result_key))
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
        .where(~has_tombstone)
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


SUCCESS_HAS_OBJECT = Invariant(
    name="every_success_has_its_object",
    finding="success_without_object",
    asset=RESULT_OBJECTS,
    meaning="Each succeeded job that is not purged has a stored result object that can be read.",
    violations=lambda reader, bounds: _gone(),
    observe=Observe.OBJECT_PRESENCE,
    investigation=Investigate(
        InvestigationKind.MISSING_OBJECT,
        reason=RESULT_MISSING,
        subject="{object_key}",
        suspected_effect="the result cannot be served; its review tasks rely on the record alone",
        resolved_when="the object is present again with the recorded digest",
        evidence=("object_key", "fault", "expected_digest"),
    ),
    repair="Restore {object_key} from a backup, then run: `receipts reconcile`."
    " Without a backup: `receipts investigations resolve INVESTIGATION --withdraw`",
)

OBJECTS_MATCH = Invariant(
    name="objects_match_the_ledger",
    finding="object_mismatch",
    asset=RESULT_OBJECTS,
    meaning="Each result object has the digest and the size that the ledger recorded.",
    violations=lambda reader, bounds: _altered(),
    observe=Observe.OBJECT_CONTENT,
    investigation=Investigate(
        InvestigationKind.ALTERED_OBJECT,
        reason=RESULT_MISMATCH,
        subject="{object_key}",
        suspected_effect="the stored bytes are not those that were verified; they are not served",
        resolved_when="the object has the recorded bytes again",
        evidence=("object_key", "fault", "expected_digest", "found_digest", "found_size_bytes"),
    ),
    repair="Move {object_key} away, restore it from a backup, then run: `receipts reconcile`."
    " Without a backup: `receipts investigations resolve INVESTIGATION --withdraw`",
)

RESULTS_STATE_PINS = Invariant(
    name="results_state_their_pins",
    finding="pins_not_stated",
    asset=RESULT_OBJECTS,
    meaning="Each result object states the pins that its job was accepted under.",
    violations=lambda reader, bounds: _without_pins(),
    observe=Observe.OBJECT_CONTENT,
    investigation=Investigate(
        InvestigationKind.ALTERED_OBJECT,
        reason=RESULT_MISMATCH,
        subject="{object_key}:pins",
        suspected_effect="the result does not say which identities it was made with",
        resolved_when="the object has the recorded bytes again",
        evidence=("object_key", "fault", "expected_digest", "found_digest", "found_size_bytes"),
    ),
    repair="Compare the header of {object_key} with the pins of its job:"
    " `receipts status {job_id} --audience engineering`. If they cannot be proven, submit the scans again.",
)


def gone_and_altered(reader: LedgerReader) -> tuple[Rows, Rows]:
    """Return the violations of SUCCESS_HAS_OBJECT and of OBJECTS_MATCH, in one pass over all results."""
    rows = reader.rows(_gone_or_altered())
    return [row for row in rows if row["fault"] in GONE], [row for row in rows if row["fault"] not in GONE]


@functools.cache
def _object_without_success() -> Query:
    return (
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


NO_OBJECT_WITHOUT_SUCCESS = Invariant(
    name="no_object_without_success",
    finding="object_without_success",
    asset=RESULT_OBJECTS,
    meaning="Each stored result is named by a success, an intent, a quarantine, an investigation or a hold.",
    violations=lambda reader, bounds: _object_without_success(),
    observe=Observe.STORED_KEYS,
    investigation=Investigate(
        InvestigationKind.ORPHAN_OBJECT,
        reason=OBJECT_UNEXPLAINED,
        subject="{object_key}",
        suspected_effect="a result was stored that no job in the ledger names; it is not served",
        resolved_when="the object is gone or explained",
        evidence=("object_key", "fault", "found_size_bytes"),
        a_note_resolves=always,
    ),
    repair="Find out who wrote {object_key}. Delete it, or keep it:"
    " `receipts investigations resolve INVESTIGATION --note TEXT`",
)


RESULT = "result"
SUBJECT_COLUMNS = ("job_id", "subject", "known_digest", "other_digest", "source", "lease_epoch")


@functools.cache
def _unheld_divergence() -> Query:
    seen = _unheld()
    return select(seen).order_by(seen.c.job_id, seen.c.subject, seen.c.lease_epoch)


DIVERGENCE_IS_HELD = Invariant(
    name="divergent_outputs_are_quarantined",
    finding="unheld_divergence",
    meaning="Two different outputs of one decision are both listed in a quarantine.",
    violations=lambda reader, bounds: _unheld_divergence(),
    repair="`receipts reconcile`. It puts {subject} of job {job_id} into quarantine.",
)


@functools.cache
def _held_divergence() -> Query:
    return (
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


NO_OPEN_QUARANTINE = Invariant(
    name="no_quarantine_waits_for_a_decision",
    finding="held_divergence",
    meaning="No divergent outputs wait for a decision.",
    violations=lambda reader, bounds: _held_divergence(),
    repair="`receipts investigations resolve {investigation_id} --keep DIGEST`, or --withdraw",
)


def _divergent_and_served() -> Query:
    """Find divergence that may still be served: unheld, or held while its tasks are not disputed or its
    investigation is closed.
    """
    seen = _unheld()
    undisputed = exists(
        select(review_tasks.c.decision_id)
        .where(review_tasks.c.job_id == quarantine.c.job_id)
        .where(~review_tasks.c.disputed)
    )
    is_investigated = exists(
        select(investigations.c.investigation_id)
        .where(investigations.c.investigation_id == quarantine.c.investigation_id)
        .where(investigations.c.state == INVESTIGATION_OPEN)
    )
    loose = select(
        quarantine.c.job_id,
        sa.case((undisputed, "tasks_not_disputed"), else_="question_closed").label("fault"),
        quarantine.c.subject,
    ).where(quarantine.c.state == OPEN, or_(undisputed, ~is_investigated))
    unheld = select(seen.c.job_id, literal("not_held").label("fault"), seen.c.subject)
    both = sa.union(unheld, loose).subquery("served")
    return select(both).order_by(both.c.job_id, both.c.subject)


NO_DIVERGENCE_SERVED = Invariant(
    name="no_divergent_result_served",
    finding="divergent_and_served",
    asset=REVIEW_TASKS,
    meaning="Divergent outputs are in quarantine, with disputed tasks and an open investigation.",
    violations=lambda reader, bounds: _divergent_and_served(),
    repair="`receipts reconcile`. Then decide about {subject} of {job_id}: `receipts investigations list`",
)


@functools.cache
def _unheld() -> sa.Subquery:
    """Find subjects (`item:<ordinal>`, `result`) with two digests that no quarantine lists both.

    Rejected late writes, intents of all attempts and deliveries are compared with the committed digest. A
    resolved quarantine decided about the digests that it lists; another one is new evidence.
    """
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
        .join(items, and_(items.c.job_id == refused_writes.c.job_id, items.c.ordinal == refused_writes.c.ordinal))
        .where(items.c.outcome_digest != refused_writes.c.digest)
    )


def _refused_results() -> sa.Select[Any]:
    """A rejected publication against the committed result, or against another attempt's intent."""
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
    """A delivery with another digest than the committed result."""
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
