"""Raised, resolved and sent alerts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, insert, select, update

from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.schema.admin import alert_deliveries, alert_links, alerts


@dataclass(frozen=True, slots=True)
class AlertFinding:
    """Something to warn of. `subject` is the job id, or a name for what concerns no single job."""

    kind: AlertKind
    subject: str
    job_id: str | None
    detail: Mapping[str, Any]


def open_alerts(tx: LedgerTransaction) -> list[dict[str, Any]]:
    """Return the active alerts, oldest first."""
    return tx.rows(select(alerts).where(alerts.c.resolved_at.is_(None)).order_by(alerts.c.raised_at, alerts.c.alert_id))


def list_alerts(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return the newest alerts, active or resolved."""
    return tx.rows(select(alerts).order_by(alerts.c.raised_at.desc(), alerts.c.alert_id.desc()).limit(limit))


def record_alerts(
    tx: LedgerTransaction, found: Sequence[AlertFinding], *, kinds: Collection[AlertKind]
) -> tuple[list[str], list[str]]:
    """Raise what is found and not active yet, resolve what is active and no longer found.

    Args:
        kinds: those that were looked for; alerts of other kinds stay as they are.
    Returns:
        The ids raised and the ids resolved. Finding the same again changes nothing.
    """
    active = {(row["kind"], row["subject"]): row for row in open_alerts(tx) if row["kind"] in kinds}
    wanted = {(line.kind.value, line.subject): line for line in found}
    resolved = [resolve_alert(tx, row) for name, row in active.items() if name not in wanted]
    raised = [raise_alert(tx, line) for name, line in wanted.items() if name not in active]
    return raised, resolved


def raise_alert(tx: LedgerTransaction, line: AlertFinding) -> str:
    """Write one alert with its event; returns its id."""
    alert_id = new_id(tx, "alert")
    tx.execute(
        insert(alerts).values(
            alert_id=alert_id,
            kind=line.kind.value,
            subject=line.subject,
            job_id=line.job_id,
            detail=dict(line.detail),
            raised_at=tx.now(),
        )
    )
    append_event(tx, EventKind.ALERT_RAISED, alert_id=alert_id, alert=line.kind.value, subject=line.subject)
    return alert_id


def resolve_alert(tx: LedgerTransaction, row: dict[str, Any]) -> str:
    """Record that an alert is no longer active; returns its id."""
    tx.execute(update(alerts).where(alerts.c.alert_id == row["alert_id"]).values(resolved_at=tx.now()))
    append_event(tx, EventKind.ALERT_RESOLVED, alert_id=row["alert_id"], alert=row["kind"], subject=row["subject"])
    return str(row["alert_id"])


def link_alerts(tx: LedgerTransaction, kind: AlertKind, *, channel: str, linked_by: str) -> bool:
    """Send alerts of a kind over a channel from now on; returns whether that is new."""
    known = tx.scalar(select(sa.func.count()).where(alert_links.c.kind == kind.value, alert_links.c.channel == channel))
    if known:
        return False
    tx.execute(insert(alert_links).values(kind=kind.value, channel=channel, linked_by=linked_by, linked_at=tx.now()))
    append_event(tx, EventKind.ALERT_LINKED, alert=kind.value, channel=channel, by=linked_by)
    return True


def list_links(tx: LedgerTransaction) -> list[dict[str, Any]]:
    """Return which kinds leave over which channels."""
    return tx.rows(select(alert_links).order_by(alert_links.c.kind, alert_links.c.channel))


def undelivered_alerts(tx: LedgerTransaction, *, sends_max: int, limit: int) -> list[dict[str, Any]]:
    """Return (alert, channel) pairs that are linked and not delivered yet, oldest first.

    What was resolved before it could be sent is sent as well: that it was active is news.
    """
    sent = alert_deliveries
    query = (
        select(alerts, alert_links.c.channel, sa.func.coalesce(sent.c.sends, 0).label("sends"))
        .join(alert_links, alert_links.c.kind == alerts.c.kind)
        .outerjoin(sent, and_(sent.c.alert_id == alerts.c.alert_id, sent.c.channel == alert_links.c.channel))
        .where(alerts.c.raised_at >= alert_links.c.linked_at)
        .where(sa.or_(sent.c.alert_id.is_(None), and_(sent.c.outcome == "failed", sent.c.sends < sends_max)))
        .order_by(alerts.c.raised_at, alerts.c.alert_id)
        .limit(limit)
    )
    return tx.rows(query)


def record_alert_delivery(
    tx: LedgerTransaction, alert_id: str, *, channel: str, outcome: str, reference: str = "", reason_code: str = ""
) -> None:
    """Record one send; a repeat counts up in the same row."""
    values = {"outcome": outcome, "reference": reference, "reason_code": reason_code, "sent_at": tx.now()}
    sent = alert_deliveries
    again = tx.execute(
        update(sent)
        .where(sent.c.alert_id == alert_id, sent.c.channel == channel)
        .values(sends=sent.c.sends + 1, **values)
    )
    if again.rowcount == 0:
        tx.execute(insert(sent).values(alert_id=alert_id, channel=channel, sends=1, **values))


def last_delivered_test(tx: LedgerTransaction, *, channel: str) -> Any:
    """Return when a test alert last arrived over a channel, None when none ever did."""
    return tx.scalar(
        select(sa.type_coerce(sa.func.max(alert_deliveries.c.sent_at), alert_deliveries.c.sent_at.type))
        .join(alerts, alerts.c.alert_id == alert_deliveries.c.alert_id)
        .where(alerts.c.kind == AlertKind.TEST.value, alert_deliveries.c.channel == channel)
        .where(alert_deliveries.c.outcome == "delivered")
    )
