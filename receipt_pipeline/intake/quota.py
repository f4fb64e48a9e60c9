"""Holds a named submitter to its quota when it hands something in: a clear refusal, never a silent queue."""

from __future__ import annotations

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import QUOTA_EXCEEDED
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.submitters import lock_submitter, open_items, read_submitter


def look_at_quota(tx: LedgerTransaction, principal: Principal, *, items: int) -> None:
    """Refuse early, before a scan is copied; the answer that counts is given at the commit.

    Raises:
        InputRefused: QUOTA.EXCEEDED.v1 with quota, open items and the items asked for.
    """
    row = read_submitter(tx, tenant=principal.tenant, caller=principal.caller)
    _hold_to(tx, principal, quota=None if row is None else row["quota_items"], items=items)


def spend_quota(tx: LedgerTransaction, principal: Principal, *, items: int) -> None:
    """Refuse what goes beyond the quota; the submitter's row is held until the transaction ends.

    Raises:
        InputRefused: QUOTA.EXCEEDED.v1.
    """
    quota = lock_submitter(tx, tenant=principal.tenant, caller=principal.caller)
    _hold_to(tx, principal, quota=quota, items=items)


def _hold_to(tx: LedgerTransaction, principal: Principal, *, quota: int | None, items: int) -> None:
    if quota is None:
        return
    already = open_items(tx, tenant=principal.tenant, caller=principal.caller)
    if already + items > quota:
        raise InputRefused(QUOTA_EXCEEDED, quota_items=quota, open_items=already, asked_items=items)
