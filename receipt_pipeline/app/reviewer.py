"""What reviewers do: list review tasks and finish them."""

from __future__ import annotations

from typing import Any

from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.ledger.effects.consumption import close_review_task
from receipt_pipeline.ledger.status import list_review_tasks


def list_tasks(
    context: AppContext, principal: Principal, *, only_open: bool, job_id: str | None = None
) -> list[dict[str, Any]]:
    """Return the tenant's review tasks, oldest first."""
    require(principal, Role.REVIEWER, Role.OPERATOR)
    with context.ledger.reading() as tx:
        return list_review_tasks(tx, tenant=principal.tenant, only_open=only_open, job_id=job_id)


def finish_task(context: AppContext, principal: Principal, decision_id: str) -> None:
    """Mark one open task as done."""
    require(principal, Role.REVIEWER)
    with context.ledger.transaction() as tx:
        close_review_task(tx, decision_id=decision_id, tenant=principal.tenant, actor=principal.caller)
