"""Send linked alerts."""

from __future__ import annotations

from typing import Any

from receipt_pipeline.core.alerts import MEANINGS, AlertKind
from receipt_pipeline.core.effects import Capability
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.effects.channels import OutgoingMessage
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.alerts import record_alert_delivery, undelivered_alerts

DELIVERED = "delivered"
FAILED = "failed"


def deliver_alerts(context: EffectContext, *, tenant: str, limit: int) -> dict[str, int]:
    """Send what is linked and not delivered; a refused send is repeated within its bound.

    Args:
        tenant: whose channel operators read.
    Returns:
        How many were delivered and how many failed.
    """
    with context.ledger.reading() as tx:
        due = undelivered_alerts(tx, sends_max=context.limits.delivery.delivery_attempts_max, limit=limit)
    counts = {DELIVERED: 0, FAILED: 0}
    for row in due:
        if row["channel"] == context.channel.name:
            counts[_send(context, row, tenant=tenant)] += 1
    return counts


def _send(context: EffectContext, row: dict[str, Any], *, tenant: str) -> str:
    message = OutgoingMessage(
        message_id=row["alert_id"], tenant=tenant, kind="alert", send_no=row["sends"] + 1, payload=alert_document(row)
    )
    reference, reason_code = "", ""
    has_lookup = context.channel.capability is Capability.LOOKUP
    try:
        # A send that was lost before its row was written is found here, and only recorded.
        found = context.channel.lookup(message) if has_lookup and row["sends"] == 0 else None
        if found is None:
            context.channel.send(message)
            # An alert is no consequence of a job: without a look-up, a repeated one does no harm.
            found = context.channel.lookup(message) if has_lookup else f"acknowledged:{message.send_no}"
        reference = found or ""
    except PipelineError as error:
        reason_code = error.reason.code
    outcome = DELIVERED if reference else FAILED
    with context.ledger.transaction() as tx:
        record_alert_delivery(
            tx, row["alert_id"], channel=row["channel"], outcome=outcome, reference=reference, reason_code=reason_code
        )
    return outcome


def alert_document(row: dict[str, Any]) -> dict[str, Any]:
    """Return an alert for people: what it means, which job it concerns, and what to do first."""
    known = MEANINGS[AlertKind(row["kind"])]
    return {
        "alert_id": row["alert_id"],
        "kind": row["kind"],
        "subject": row["subject"],
        "job_id": row["job_id"],
        "meaning": known.meaning,
        "next_step": known.next_step,
        "detail": row["detail"],
        "raised_at": row["raised_at"].isoformat(),
        "resolved_at": row["resolved_at"].isoformat() if row["resolved_at"] else None,
    }
