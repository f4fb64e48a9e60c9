"""What analysts do: publish and read the account, and query it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from receipt_pipeline.accounting.query import read_published, run_query
from receipt_pipeline.accounting.report import report_document
from receipt_pipeline.app import maintenance
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.principals import Principal, Role, require


def read_report(
    context: AppContext, principal: Principal, *, cutoff: dt.datetime | None = None, published: bool = False
) -> dict[str, Any]:
    """Return the tenant's account from the ledger as it is now, or as it was published last.

    Raises:
        NotAllowed: REPORT.SEVERAL_TENANTS.v1 when the published account is not of this tenant alone.
    """
    require(principal, Role.ANALYST, Role.OPERATOR)
    if published:
        return read_published(context.accountant, tenant=principal.tenant)
    return report_document(context.accountant, cutoff=cutoff, tenant=principal.tenant)


def publish_page(context: AppContext, principal: Principal) -> Path:
    """Render the published account as one HTML page; returns its path. Raises ReportFault."""
    require(principal, Role.ANALYST, Role.OPERATOR)
    return maintenance.publish_page(context)


def query_report(context: AppContext, principal: Principal, sql: str) -> list[dict[str, Any]]:
    """Query what the published report holds of this tenant, read-only."""
    require(principal, Role.ANALYST, Role.OPERATOR)
    return run_query(context.accountant, sql, tenant=principal.tenant)
