"""Open an owned investigation about each violation, and resolve those whose violation is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.lifecycle import JobState, Phase
from receipt_pipeline.ledger.effects.outbox import unknown_subjects
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants import INVARIANTS
from receipt_pipeline.ledger.invariants.invariant import Bounds, Invariant, find
from receipt_pipeline.ledger.investigations import (
    OPEN,
    InvestigationKind,
    InvestigationRequest,
    InvestigationRow,
    escalate_overdue,
    open_while_violated,
    plain_subject,
    resolve_gone,
)
from receipt_pipeline.ledger.jobs.retry import resolve_by_children
from receipt_pipeline.ledger.rows import is_terminal, read_job
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.reconciliation.context import ReconciliationContext


@dataclass(frozen=True, slots=True)
class InvestigationSummary:
    """How many investigations were opened, and how many resolved because nothing is violated any longer."""

    opened: int = 0
    resolved: int = 0


@dataclass(slots=True)
class _Violations:
    """What is to be investigated of one kind, by all invariants that open investigations of it."""

    resolved_when: str
    requests: list[InvestigationRequest] = field(default_factory=list)


def investigate_open_jobs(context: ReconciliationContext) -> InvestigationSummary:
    """Open investigations about open jobs past their deadlines or held without an owner; cheap.

    Investigations of unknown effects end with their job; overdue ones go to the escalation.
    """
    done = _investigate(context, [invariant for invariant in INVARIANTS if not invariant.whole_ledger])
    with context.ledger.transaction() as tx:
        resolved = resolve_gone(
            tx,
            InvestigationKind.UNKNOWN_EFFECT,
            unresolved_subjects=_held_subjects(tx) | unknown_subjects(tx),
            resolution="the outcome of the effect is known",
        )
        escalate_overdue(tx, limits=context.limits)
    return InvestigationSummary(done.opened, done.resolved + len(resolved))


def investigate_all(context: ReconciliationContext) -> InvestigationSummary:
    """Open investigations about all that ledger, objects and effects disagree on; reads the whole ledger."""
    done = _investigate(context, INVARIANTS)
    with context.ledger.transaction() as tx:
        resolved = resolve_by_children(tx)
    return InvestigationSummary(done.opened, done.resolved + len(resolved))


def _investigate(
    context: ReconciliationContext, invariants: list[Invariant] | tuple[Invariant, ...]
) -> InvestigationSummary:
    with context.ledger.reading() as tx:
        found = _find_violations(tx, context.bounds(), invariants)
    opened = resolved = 0
    for kind, violations in found.items():
        for request in violations.requests:
            point("investigate.before")
            with context.ledger.transaction() as tx:
                opened += open_while_violated(tx, request, limits=context.limits)
            point("investigate.after")
        with context.ledger.transaction() as tx:
            subjects = {request.subject for request in violations.requests}
            gone = resolve_gone(tx, kind, unresolved_subjects=subjects, resolution=violations.resolved_when)
            resolved += len(gone)
    return InvestigationSummary(opened, resolved)


def _find_violations(
    tx: LedgerTransaction, bounds: Bounds, invariants: list[Invariant] | tuple[Invariant, ...]
) -> dict[InvestigationKind, _Violations]:
    """Return the requests of all violations by kind: one kind may be opened by several invariants."""
    found: dict[InvestigationKind, _Violations] = {}
    for invariant in invariants:
        opened = invariant.investigation
        if opened is not None:
            violations = found.setdefault(opened.kind, _Violations(opened.resolved_when))
            violations.requests += [
                invariant.request(row) for row in find(tx, invariant, bounds).rows if opened.opens(row)
            ]
    return found


_HELD_SUBJECTS = (
    select(investigations.c.subject)
    .join(jobs, jobs.c.job_id == investigations.c.job_id)
    .where(investigations.c.kind == InvestigationKind.UNKNOWN_EFFECT)
    .where(investigations.c.state == OPEN)
    .where(~is_terminal())
)


def _held_subjects(tx: LedgerTransaction) -> set[str]:
    return {plain_subject(subject) for subject in tx.execute(_HELD_SUBJECTS).scalars()}


def is_still_violated(tx: LedgerTransaction, row: InvestigationRow, *, bounds: Bounds) -> bool:
    """Return whether ledger and objects, as last observed, still show what an investigation is about.

    Investigations that a note resolves are decisions of their owner, for which nothing has to change.
    """
    if row.kind == InvestigationKind.UNKNOWN_EFFECT:
        job = read_job(tx, row.job_id or "")
        return job is not None and (job.state, job.phase) == (JobState.RUNNING, Phase.RECONCILING)
    subject = plain_subject(row.subject)
    return any(
        _is_violation_of(invariant, subject, violation)
        for invariant in INVARIANTS
        if invariant.investigation is not None and invariant.investigation.kind == row.kind
        for violation in find(tx, invariant, bounds).rows
    )


def _is_violation_of(invariant: Invariant, subject: str, violation: Mapping[str, Any]) -> bool:
    request = invariant.request(violation)
    return request.subject == subject and not request.a_note_resolves
