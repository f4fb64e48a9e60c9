"""The outbox and its delivery ledger: what is due, what was sent, and what became of it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import insert, select, update

from receipt_pipeline.core.effect_lifecycle import EffectKind, EffectState
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.core.reasons import Reason
from receipt_pipeline.ledger.effect_tables import consumed, deliveries, effects, outbox
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.settlement import settle_if_done
from receipt_pipeline.ledger.tables import jobs

DUE = "due"
SENT = "sent"
ABANDONED = "abandoned"
DELIVERED = "delivered"


def due_messages(tx: LedgerTransaction, *, at_most: int, job_id: str | None = None) -> list[dict[str, Any]]:
    """Return messages whose time has come, oldest first."""
    query = select(outbox).where(outbox.c.state == DUE).where(outbox.c.due_at <= tx.now())
    if job_id is not None:
        query = query.where(outbox.c.job_id == job_id)
    return tx.rows(query.order_by(outbox.c.due_at, outbox.c.message_id).limit(at_most))


def record_delivery(
    tx: LedgerTransaction,
    message: dict[str, Any],
    *,
    channel: str,
    outcome: str,
    reference: str = "",
    reason: Reason | None = None,
    limits: ServiceLimits,
) -> str:
    """Write one delivery (`delivered`, `dropped`, `failed`) and what follows for message and effect.

    Anything but `delivered` is due again after a pause until the bound is spent; then the message
    is abandoned. Two senders that raced make two delivery rows and one settled message.
    """
    now = tx.now()
    send_no = message["sends"] + 1
    delivery_id = new_id(tx, "dlv")
    late = _is_late(tx, message["job_id"], now)  # After the effect's deadline.
    tx.execute(
        insert(deliveries).values(
            delivery_id=delivery_id,
            message_id=message["message_id"],
            job_id=message["job_id"],
            send_no=send_no,
            channel=channel,
            outcome=outcome,
            reference=reference,
            reason_code=reason.code if reason else "",
            late=late,
            delivered_at=now,
        )
    )
    spent = outcome != DELIVERED and send_no >= limits.delivery_attempts_max
    state = SENT if outcome == DELIVERED else ABANDONED if spent else DUE
    tx.execute(
        update(outbox)
        .where(outbox.c.message_id == message["message_id"])
        .where(outbox.c.state == DUE)
        .values(
            state=state,
            sends=send_no,
            due_at=now + dt.timedelta(seconds=limits.delivery_retry_s * 2 ** (send_no - 1)),
            settled_at=None if state == DUE else now,
        )
    )
    append_event(
        tx,
        EventKind.DELIVERY,
        job_id=message["job_id"],
        tenant=message["tenant"],
        message_id=message["message_id"],
        send_no=send_no,
        outcome=outcome,
        late=late or None,
        reason=reason.code if reason else None,
    )
    if state != DUE:
        _settle_effect(tx, message["job_id"], delivered=state == SENT, reference=reference, reason=reason)
    return delivery_id


def _is_late(tx: LedgerTransaction, job_id: str, now: dt.datetime) -> bool:
    deadline = tx.scalar(
        select(effects.c.deadline_at)
        .where(effects.c.job_id == job_id)
        .where(effects.c.kind == EffectKind.NOTIFICATION)
        .where(effects.c.deadline_at < now)
    )
    return deadline is not None


def _settle_effect(
    tx: LedgerTransaction, job_id: str, *, delivered: bool, reference: str, reason: Reason | None
) -> None:
    now = tx.now()
    state = EffectState.COMMITTED if delivered else EffectState.FAILED
    tx.execute(
        update(effects)
        .where(effects.c.job_id == job_id)
        .where(effects.c.kind == EffectKind.NOTIFICATION)
        .where(effects.c.state != EffectState.COMMITTED)
        .values(
            state=state,
            provider_reference=reference,
            reason_code=reason.code if reason else "",
            committed_at=now if delivered else None,
            updated_at=now,
        )
    )
    settle_if_done(tx, job_id)


def unconsumed_deliveries(tx: LedgerTransaction, *, at_most: int) -> list[dict[str, Any]]:
    """Return delivered messages that the review consumer has not taken in yet, oldest first."""
    taken = select(consumed.c.event_id)
    query = (
        select(deliveries, outbox.c.payload, outbox.c.tenant)
        .join(outbox, outbox.c.message_id == deliveries.c.message_id)
        .where(deliveries.c.outcome == DELIVERED)
        .where(deliveries.c.delivery_id.not_in(taken))
        .order_by(deliveries.c.delivered_at, deliveries.c.delivery_id)
        .limit(at_most)
    )
    return tx.rows(query)


def stale_status_jobs(tx: LedgerTransaction, *, at_most: int) -> list[str]:
    """Return jobs whose status document shows less than their newest event."""
    query = (
        select(jobs.c.job_id)
        .where(jobs.c.latest_seq > jobs.c.status_shown_seq)
        .order_by(jobs.c.latest_seq)
        .limit(at_most)
    )
    return [row["job_id"] for row in tx.rows(query)]


def mark_status_shown(tx: LedgerTransaction, job_id: str, *, seq: int) -> bool:
    """Record which event a status document shows; False when the job moved on meanwhile."""
    tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.status_shown_seq < seq)
        .values(status_shown_seq=seq)
    )
    return bool(tx.scalar(select(jobs.c.latest_seq).where(jobs.c.job_id == job_id)) == seq)
