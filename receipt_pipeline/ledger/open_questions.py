"""The questions that reconciliation asks and answers by itself: asked once, asked again on new evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, func, or_, select

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import (
    OPEN,
    InvestigationKind,
    assign_investigation,
    open_investigation,
    resolve_investigation,
)
from receipt_pipeline.ledger.schema.effects import investigations

RECONCILER = "system:reconcile"
# Asked again as long as it is so, whatever was answered.
ASKED_WHILE_SO = frozenset(
    {
        InvestigationKind.MISSING_OBJECT,
        InvestigationKind.ALTERED_OBJECT,
        InvestigationKind.MISSING_TERMINAL,
        InvestigationKind.UNBALANCED,
        InvestigationKind.EFFECT_GAP,
    }
)


# Asked by every pass, once a kind: built once.
_OPEN_OF_KIND = (
    select(investigations.c.investigation_id, investigations.c.subject)
    .where(investigations.c.kind == bindparam("of_kind"))
    .where(investigations.c.state == OPEN)
    .order_by(investigations.c.investigation_id)
)
_OVERDUE = (
    select(investigations.c.investigation_id)
    .where(investigations.c.state == OPEN)
    .where(investigations.c.deadline_at < bindparam("now"))
    .where(investigations.c.owner != bindparam("escalation"))
    .order_by(investigations.c.investigation_id)
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about one subject; `subject` carries no `#`, which numbers repetitions.

    Attributes:
        decided_by_note: an answer settles it although nothing changes, whatever its kind.
    """

    kind: InvestigationKind
    subject: str
    job_id: str | None
    reason: Reason
    suspected_effect: str
    allowed_repair: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    decided_by_note: bool = False


def ask(tx: LedgerTransaction, question: Question, *, limits: Limits) -> bool:
    """Open the question unless it is open, or a person has decided about it; True when it is new.

    Where reconciliation itself had closed the question because the fault was gone, the fault's return
    is new evidence and is asked under the next number. So is a fact that stands although a person has
    called it settled: no answer makes an object be there.
    """
    # Two passes at once would both find nothing asked.
    tx.serialise(f"question:{question.kind.value}:{question.subject}")
    asked = _asked(tx, question)
    latest = asked[-1] if asked else None
    decided = latest is not None and latest["state"] != OPEN and latest["resolved_by"] != RECONCILER
    if decided and (question.decided_by_note or question.kind not in ASKED_WHILE_SO):
        return False
    is_new = latest is None or latest["state"] != OPEN
    number = len(asked) + (1 if is_new else 0)
    open_investigation(
        tx,
        question.kind,
        subject=question.subject if number == 1 else f"{question.subject}#{number}",
        job_id=question.job_id,
        reason=question.reason,
        suspected_effect=question.suspected_effect,
        allowed_repair=question.allowed_repair,
        limits=limits,
        evidence=question.evidence,
    )
    return is_new


def _asked(tx: LedgerTransaction, question: Question) -> list[dict[str, Any]]:
    table = investigations.c
    prefix = f"{question.subject}#"
    numbered = func.substr(table.subject, 1, len(prefix)) == prefix
    return tx.rows(
        select(table.subject, table.state, table.resolved_by)
        .where(table.kind == question.kind)
        .where(or_(table.subject == question.subject, numbered))
        .order_by(table.opened_at, table.investigation_id)
    )


def answer_gone(
    tx: LedgerTransaction, kind: InvestigationKind, *, still: Collection[str], resolution: str
) -> list[str]:
    """Resolve the open questions of a kind whose subject is no longer at fault; returns their ids.

    Args:
        still: the subjects that are at fault now, without numbers.
    """
    rows = tx.rows(_OPEN_OF_KIND, {"of_kind": kind})
    gone = [row["investigation_id"] for row in rows if str(row["subject"]).partition("#")[0] not in still]
    for investigation_id in gone:
        resolve_investigation(tx, investigation_id, resolution=resolution, actor=RECONCILER)
    return gone


def escalate_overdue(tx: LedgerTransaction, *, limits: Limits) -> list[str]:
    """Give open questions past their deadline to the escalation of the rota (D13); returns their ids.

    The deadline stays as it is: an overdue question is unowned until somebody answers it.
    """
    if limits.staffing.escalation not in limits.staffing.principals:
        return []
    rows = tx.rows(_OVERDUE, {"now": tx.now(), "escalation": limits.staffing.escalation})
    for row in rows:
        assign_investigation(
            tx, row["investigation_id"], owner=limits.staffing.escalation, actor=RECONCILER, limits=limits
        )
    return [row["investigation_id"] for row in rows]
