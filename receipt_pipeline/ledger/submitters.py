"""Named submitters and their quotas: how many items of open jobs each may have at once."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_, bindparam, func, insert, select, update

from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.operation_tables import submitters
from receipt_pipeline.ledger.tables import jobs

_IS_HE = and_(submitters.c.tenant == bindparam("of_tenant"), submitters.c.caller == bindparam("of_caller"))
_ONE = select(submitters).where(_IS_HE)
# Writes nothing new: who has the row holds it until his transaction ends.
_HOLD = update(submitters).where(_IS_HE).values(quota_items=submitters.c.quota_items)


def list_submitters(tx: LedgerTransaction, *, tenant: str) -> list[dict[str, Any]]:
    """Return the tenant's named submitters with the items they have open."""
    rows = tx.rows(select(submitters).where(submitters.c.tenant == tenant).order_by(submitters.c.caller))
    return [{**row, "open_items": open_items(tx, tenant=tenant, caller=row["caller"])} for row in rows]


def read_submitter(tx: LedgerTransaction, *, tenant: str, caller: str) -> dict[str, Any] | None:
    """Return one named submitter, None for a caller without a quota."""
    return tx.row(_ONE, {"of_tenant": tenant, "of_caller": caller})


def open_items(tx: LedgerTransaction, *, tenant: str, caller: str) -> int:
    """Return how many items of the caller's jobs are accepted and not closed."""
    count = tx.scalar(
        select(func.coalesce(func.sum(jobs.c.items_requested), 0)).where(
            jobs.c.tenant == tenant, jobs.c.caller == caller, jobs.c.terminal_at.is_(None)
        )
    )
    return int(count or 0)


def lock_submitter(tx: LedgerTransaction, *, tenant: str, caller: str) -> int | None:
    """Return the quota, held until the transaction ends so that two acceptances cannot share the rest.

    None for a caller without a quota.
    """
    held = tx.execute(_HOLD, {"of_tenant": tenant, "of_caller": caller})
    if held.rowcount == 0:
        return None
    row = read_submitter(tx, tenant=tenant, caller=caller)
    return None if row is None else int(row["quota_items"])


def put_submitter(tx: LedgerTransaction, *, tenant: str, caller: str, quota_items: int, by: str) -> None:
    """Add a submitter or change its quota; who allowed it is recorded."""
    now = tx.now()
    changed = tx.execute(
        update(submitters)
        .where(submitters.c.tenant == tenant, submitters.c.caller == caller)
        .values(quota_items=quota_items, changed_by=by, changed_at=now)
    )
    if changed.rowcount == 0:
        tx.execute(
            insert(submitters).values(
                tenant=tenant,
                caller=caller,
                quota_items=quota_items,
                added_by=by,
                added_at=now,
                changed_by=by,
                changed_at=now,
            )
        )
    append_event(
        tx, EventKind.SUBMITTER_CHANGED, tenant=tenant, caller=caller, quota_items=quota_items, by=by
    )
