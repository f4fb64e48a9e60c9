"""Whether what an investigation asks about is still so: a fact is mended or given up, never talked away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from receipt_pipeline.core.lifecycle import JobState, Phase
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.effects import (
    GIVEN_UP,
    effect_gaps,
    task_faults,
    unexplained_notifications,
)
from receipt_pipeline.ledger.invariants.objects import (
    object_mismatch,
    pins_not_stated,
    success_without_object,
)
from receipt_pipeline.ledger.invariants.records import (
    missing_terminal,
    terminal_record_conflicts,
    unbalanced_items,
)
from receipt_pipeline.ledger.investigations import InvestigationKind
from receipt_pipeline.ledger.rows import read_job

# Of these the ledger itself can tell whether they still hold.
OBJECT_KINDS = frozenset({InvestigationKind.MISSING_OBJECT, InvestigationKind.ALTERED_OBJECT})


def gap_subject(row: Mapping[str, Any]) -> str:
    """Return what the question about one row of `effect_gaps` is about."""
    return f"{row['job_id']}:{row['effect']}:{row['fault']}"


def undelivered_subject(row: Mapping[str, Any]) -> str:
    """Return what the question about one row of `unexplained_notifications` is about."""
    return f"{row['job_id']}:notification:{row['fault']}"


def task_subject(row: Mapping[str, Any]) -> str:
    """Return what the question about one row of `task_faults` is about."""
    return f"{row['job_id']}:task:{row['fault']}:{row['decision_id']}"


def record_subject(row: Mapping[str, Any]) -> str:
    """Return what the question about one row of `terminal_record_conflicts` is about."""
    return f"{row['job_id']}:record"


def _standing_gaps(tx: LedgerTransaction, *, limits: Limits) -> set[str]:
    gaps = {gap_subject(row) for row in effect_gaps(tx).rows if row["fault"] != GIVEN_UP}
    gaps |= {undelivered_subject(row) for row in unexplained_notifications(tx, limits=limits).rows}
    return gaps | {task_subject(row) for row in task_faults(tx).rows}


def _unbalanced(tx: LedgerTransaction) -> set[str]:
    conflicts = {record_subject(row) for row in terminal_record_conflicts(tx).rows}
    return conflicts | {str(row["job_id"]) for row in unbalanced_items(tx).rows}


def fact_stands(tx: LedgerTransaction, question: Mapping[str, Any], *, limits: Limits) -> bool:
    """Tell whether the last look at ledger and objects still finds what the question asks about.

    A question of any other kind is a decision of its owner, for which no fact has to change; so is one
    about a notification that was given up.
    """
    subject = str(question["subject"]).partition("#")[0]
    kind = question["kind"]
    if kind == InvestigationKind.MISSING_OBJECT:
        return subject in {row["object_key"] for row in success_without_object(tx).rows}
    if kind == InvestigationKind.ALTERED_OBJECT:
        altered = {row["object_key"] for row in object_mismatch(tx).rows}
        return subject in altered | {f"{row['object_key']}:pins" for row in pins_not_stated(tx).rows}
    if kind == InvestigationKind.EFFECT_GAP:
        return subject in _standing_gaps(tx, limits=limits)
    if kind == InvestigationKind.UNBALANCED:
        return subject in _unbalanced(tx)
    if kind == InvestigationKind.MISSING_TERMINAL:
        return question["job_id"] in {row["job_id"] for row in missing_terminal(tx, limits=limits).rows}
    if kind == InvestigationKind.UNKNOWN_EFFECT:
        job = read_job(tx, question["job_id"])
        return job is not None and (job["state"], job["phase"]) == (JobState.RUNNING, Phase.RECONCILING)
    return False
