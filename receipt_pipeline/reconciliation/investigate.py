"""Asks an owned question about every fault that only a person can settle, and answers what has healed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.reasons import (
    ATTEMPTS_BEYOND_BUDGET,
    EFFECT_GAP,
    ITEMS_UNBALANCED,
    OBJECT_UNEXPLAINED,
    RESULT_MISMATCH,
    RESULT_MISSING,
    TERMINAL_CONFLICT,
    TERMINAL_MISSING,
)
from receipt_pipeline.ledger.effects.outbox import unknown_subjects
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.effects import (
    GIVEN_UP,
    effect_gaps,
    task_faults,
    unexplained_notifications,
)
from receipt_pipeline.ledger.invariants.objects import (
    object_mismatch,
    object_without_success,
    pins_not_stated,
    success_without_object,
)
from receipt_pipeline.ledger.invariants.records import (
    Finding,
    is_terminal,
    missing_terminal,
    terminal_record_conflicts,
    unbalanced_items,
)
from receipt_pipeline.ledger.invariants.work import attempts_beyond_budget
from receipt_pipeline.ledger.investigations import OPEN, InvestigationKind
from receipt_pipeline.ledger.jobs.retry import resolve_by_children
from receipt_pipeline.ledger.open_questions import Question, answer_gone, ask, escalate_overdue
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.ledger.standing_facts import (
    gap_subject,
    record_subject,
    task_subject,
    undelivered_subject,
)
from receipt_pipeline.reconciliation.context import Reconciler

Kind = InvestigationKind
_ASKED_ABOUT = (
    select(investigations.c.job_id)
    .where(investigations.c.kind == Kind.MISSING_TERMINAL)
    .where(investigations.c.state == OPEN)
)
_HELD_SUBJECTS = (
    select(investigations.c.subject)
    .join(jobs, jobs.c.job_id == investigations.c.job_id)
    .where(investigations.c.kind == Kind.UNKNOWN_EFFECT)
    .where(investigations.c.state == OPEN)
    .where(~is_terminal())
)


@dataclass(frozen=True, slots=True)
class Asked:
    """How many questions were opened and how many healed by themselves."""

    opened: int = 0
    healed: int = 0


def ask_about_open_jobs(services: Reconciler) -> Asked:
    """Ask about jobs that are past their deadlines or held without an owned question; cheap.

    Questions about unknown effects end with their job, overdue questions go to the escalation.
    """
    with services.ledger.reading() as tx:
        questions = _about_missing_terminals(tx, services)
    asked = _settle(
        services, {Kind.MISSING_TERMINAL: questions}, heals={Kind.MISSING_TERMINAL: "the job is closed"}
    )
    with services.ledger.transaction() as tx:
        healed = answer_gone(
            tx,
            Kind.UNKNOWN_EFFECT,
            still=_held_subjects(tx) | unknown_subjects(tx),
            resolution="the end of the effect is known",
        )
        escalate_overdue(tx, limits=services.limits)
    return Asked(asked.opened, asked.healed + len(healed))


def _held_subjects(tx: LedgerTransaction) -> set[str]:
    return {str(subject).partition("#")[0] for subject in tx.execute(_HELD_SUBJECTS).scalars()}


def ask_about_faults(services: Reconciler) -> Asked:
    """Ask about everything that ledger, objects and effects do not agree on; reads the whole ledger."""
    with services.ledger.reading() as tx:
        questions = {
            Kind.MISSING_TERMINAL: _about_missing_terminals(tx, services),
            Kind.UNBALANCED: _about(unbalanced_items(tx), _unbalanced)
            + _about(terminal_record_conflicts(tx), _terminal_conflict),
            Kind.EFFECT_GAP: _about_effects(tx, services),
            Kind.MISSING_OBJECT: _about(success_without_object(tx), _missing_object),
            Kind.ALTERED_OBJECT: _about(object_mismatch(tx), _altered_object)
            + _about(pins_not_stated(tx), _unstated_pins),
            Kind.ORPHAN_OBJECT: _about(object_without_success(tx), _orphan_object),
            Kind.ATTEMPTS_BEYOND_BUDGET: _about(
                attempts_beyond_budget(tx, limits=services.limits), _beyond_budget
            ),
        }
    asked = _settle(services, questions, heals=_HEALED)
    with services.ledger.transaction() as tx:
        settled = resolve_by_children(tx)
    return Asked(asked.opened, asked.healed + len(settled))


_HEALED: Mapping[Kind, str] = {
    Kind.MISSING_TERMINAL: "the job is closed",
    Kind.UNBALANCED: "items, row and journal agree again",
    Kind.EFFECT_GAP: "effect and ledger agree again",
    Kind.MISSING_OBJECT: "the object is there again with the recorded digest",
    Kind.ALTERED_OBJECT: "the object has the recorded bytes again",
    Kind.ORPHAN_OBJECT: "the object is gone or explained",
    Kind.ATTEMPTS_BEYOND_BUDGET: "the attempts lie within their bounds again",
}


def _settle(
    services: Reconciler,
    questions: Mapping[Kind, Sequence[Question]],
    *,
    heals: Mapping[Kind, str],
) -> Asked:
    opened = healed = 0
    for kind, asked in questions.items():
        for question in asked:
            point("investigate.before")
            with services.ledger.transaction() as tx:
                opened += ask(tx, question, limits=services.limits)
            point("investigate.after")
        with services.ledger.transaction() as tx:
            still = {question.subject for question in asked}
            healed += len(answer_gone(tx, kind, still=still, resolution=heals[kind]))
    return Asked(opened, healed)


def _about(finding: Finding, question_of: Callable[[dict[str, Any]], Question]) -> list[Question]:
    return [question_of(row) for row in finding.rows]


def _about_missing_terminals(tx: LedgerTransaction, services: Reconciler) -> list[Question]:
    """Return a question per stuck job that has no other owned one."""
    stuck = missing_terminal(tx, limits=services.limits)
    asked = set(tx.execute(_ASKED_ABOUT).scalars())
    rows = [row for row in stuck.rows if not row["owned"] or row["job_id"] in asked]
    return [_missing_terminal(row) for row in rows]


def _about_effects(tx: LedgerTransaction, services: Reconciler) -> list[Question]:
    undelivered = unexplained_notifications(tx, limits=services.limits)
    return [
        *_about(effect_gaps(tx), _effect_gap),
        # A message that was never written is a gap already.
        *(_undelivered(row) for row in undelivered.rows if row["fault"] != "no_message"),
        *_about(task_faults(tx), _task_fault),
    ]


def _missing_terminal(row: Mapping[str, Any]) -> Question:
    return Question(
        Kind.MISSING_TERMINAL,
        subject=row["job_id"],
        job_id=row["job_id"],
        reason=TERMINAL_MISSING,
        suspected_effect="the job may have been worked on; nothing of it was sent on",
        allowed_repair="read its attempts and holds, then `receipts reconcile`",
        evidence={"fault": row["fault"], "phase": row["phase"], "lease_epoch": row["lease_epoch"]},
    )


def _terminal_conflict(row: Mapping[str, Any]) -> Question:
    return Question(
        Kind.UNBALANCED,
        subject=record_subject(row),
        job_id=row["job_id"],
        reason=TERMINAL_CONFLICT,
        suspected_effect="effects may follow a state that the journal does not tell of",
        allowed_repair="compare row and events; restore the ledger from its backup where it was edited",
        evidence={"fault": row["fault"], "state": row["state"], "recorded_state": row["recorded_state"]},
    )


def _unbalanced(row: Mapping[str, Any]) -> Question:
    return Question(
        Kind.UNBALANCED,
        subject=row["job_id"],
        job_id=row["job_id"],
        reason=ITEMS_UNBALANCED,
        suspected_effect="items may be missing from the result or counted twice",
        allowed_repair="compare the items with the accepted event; nothing is recomputed",
        evidence={name: row[name] for name in ("fault", "requested", "listed", "classed")},
    )


def _beyond_budget(row: Mapping[str, Any]) -> Question:
    return Question(
        Kind.ATTEMPTS_BEYOND_BUDGET,
        subject=row["job_id"],
        job_id=row["job_id"],
        reason=ATTEMPTS_BEYOND_BUDGET,
        suspected_effect="the model may have been invoked more often than was paid for",
        allowed_repair="read its attempts and who claimed it; nothing is taken back",
        evidence={name: row[name] for name in ("attempts", "allowed", "attempts_spent", "max_attempts")},
    )


def _effect_gap(row: Mapping[str, Any]) -> Question:
    return Question(
        Kind.EFFECT_GAP,
        subject=gap_subject(row),
        job_id=row["job_id"],
        reason=EFFECT_GAP,
        suspected_effect=f"{row['effect']}: {row['fault']}",
        allowed_repair="look the effect up where it would be; deliver or consume again, both converge",
        evidence={"fault": row["fault"], "effect": row["effect"]},
        decided_by_note=row["fault"] == GIVEN_UP,
    )


def _undelivered(row: Mapping[str, Any]) -> Question:
    return Question(
        Kind.EFFECT_GAP,
        subject=undelivered_subject(row),
        job_id=row["job_id"],
        reason=EFFECT_GAP,
        suspected_effect="the submitter may not have been told, or told without a record",
        allowed_repair="look the message up in the channel; a repeat carries the same message id",
        evidence={name: row[name] for name in ("fault", "message_id", "message_state", "sends")},
    )


def _task_fault(row: Mapping[str, Any]) -> Question:
    return Question(
        Kind.EFFECT_GAP,
        subject=task_subject(row),
        job_id=row["job_id"],
        reason=EFFECT_GAP,
        suspected_effect="a reviewer may see a decision twice, not at all, or not as it was made",
        allowed_repair="compare the task with the item; the consumer makes a missing one again",
        evidence={"fault": row["fault"], "item_id": row["item_id"], "decision_id": row["decision_id"]},
    )


def _object_question(kind: Kind, row: Mapping[str, Any], *, subject: str, **told: Any) -> Question:
    evidence = {
        name: row[name]
        for name in ("object_key", "fault", "expected_digest", "found_digest", "found_size_bytes")
        if row.get(name) is not None
    }
    return Question(kind, subject=subject, job_id=row["job_id"], evidence=evidence, **told)


def _missing_object(row: Mapping[str, Any]) -> Question:
    return _object_question(
        Kind.MISSING_OBJECT,
        row,
        subject=row["object_key"],
        reason=RESULT_MISSING,
        suspected_effect="the result cannot be served; tasks that were made stand on a record only",
        allowed_repair="restore the object from a backup; it is found again by its digest",
    )


def _altered_object(row: Mapping[str, Any]) -> Question:
    return _object_question(
        Kind.ALTERED_OBJECT,
        row,
        subject=row["object_key"],
        reason=RESULT_MISMATCH,
        suspected_effect="the stored bytes are not those that were verified; they are not served",
        allowed_repair="set the bytes aside and restore the object from a backup",
    )


def _unstated_pins(row: Mapping[str, Any]) -> Question:
    return _object_question(
        Kind.ALTERED_OBJECT,
        row,
        subject=f"{row['object_key']}:pins",
        reason=RESULT_MISMATCH,
        suspected_effect="the result does not say which identities it was made with",
        allowed_repair="compare the header with the job's pins; submit again where they cannot be proven",
    )


def _orphan_object(row: Mapping[str, Any]) -> Question:
    return _object_question(
        Kind.ORPHAN_OBJECT,
        row,
        subject=row["object_key"],
        reason=OBJECT_UNEXPLAINED,
        suspected_effect="somebody stored a result that no job of the ledger names; it is not served",
        allowed_repair="find out who wrote it; resolve this to keep it, or remove the object",
    )
