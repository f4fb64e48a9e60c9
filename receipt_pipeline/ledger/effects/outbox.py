"""Messages and their deliveries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Integer, bindparam, case, insert, literal, select, update

from receipt_pipeline.core.effects import EFFECT_TRANSITIONS, EffectKind, EffectState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import NOTIFICATION_UNKNOWN, Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import RESOLVED, InvestigationKind, InvestigationRequest, open_investigation
from receipt_pipeline.ledger.jobs.finalize import finish_job_if_done
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.schema.effects import consumed, deliveries, effects, investigations, outbox
from receipt_pipeline.ledger.schema.jobs import jobs

DUE = "due"
SENDING = "sending"
SENT = "sent"
UNKNOWN = "unknown"
ABANDONED = "abandoned"

DELIVERED = "delivered"
UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """One message to deliver; `sends` counts the delivery attempts that were recorded."""

    message_id: str
    job_id: str
    tenant: str
    kind: str
    payload: Mapping[str, Any]
    state: str
    sends: int
    due_at: dt.datetime

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> OutboxMessage:
        """Return the message of a row of `outbox`."""
        return cls(**{field.name: row[field.name] for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """How one delivery attempt ended.

    Attributes:
        outcome: `delivered`, `dropped`, `failed` or `unconfirmed`.
        reference: the channel's, when it was delivered.
        reason: why it is no delivery.
        repeatable: False when an unconfirmed call must not be repeated automatically.
    """

    channel: str
    outcome: str
    reference: str = ""
    reason: Reason | None = None
    repeatable: bool = True

    def next_state(self, *, is_last: bool) -> str:
        """Return the state of the message after this attempt."""
        if self.outcome == DELIVERED:
            return SENT
        if self.outcome == UNCONFIRMED:
            return DUE if self.repeatable and not is_last else UNKNOWN
        return ABANDONED if is_last else DUE


# Every pass runs this.
_DUE_MESSAGES = (
    select(outbox)
    .where(outbox.c.state.in_(bindparam("states", expanding=True)))
    .where(outbox.c.due_at <= bindparam("now"))
    .order_by(outbox.c.due_at, outbox.c.message_id)
    .limit(bindparam("limit", type_=Integer()))
)


def due_messages(
    tx: LedgerTransaction, *, limit: int, job_id: str | None = None, unknown_too: bool = False
) -> list[OutboxMessage]:
    """Return messages whose time has come, oldest first.

    One that is `sending` past its time was begun by a sender that never recorded how it ended.

    Args:
        unknown_too: the channel has a look-up, so what is held as unknown is looked up again.
    """
    query = _DUE_MESSAGES if job_id is None else _DUE_MESSAGES.where(outbox.c.job_id == job_id)
    states = [DUE, SENDING, UNKNOWN] if unknown_too else [DUE, SENDING]
    rows = tx.rows(query, {"states": states, "now": tx.now(), "limit": limit})
    return [OutboxMessage.from_row(row) for row in rows]


def begin_send(tx: LedgerTransaction, message: OutboxMessage, *, limits: Limits) -> bool:
    """Mark a message as being sent, before the call; False when another sender has it.

    For channels without a look-up: without the mark a crash after the call would leave no trace.
    """
    written = tx.execute(
        update(outbox)
        .where(outbox.c.message_id == message.message_id)
        .where(outbox.c.state == message.state)
        .where(outbox.c.sends == message.sends)
        .where(outbox.c.due_at == message.due_at)
        .values(state=SENDING, due_at=tx.now() + dt.timedelta(seconds=limits.delivery.send_ttl_s))
    )
    return written.rowcount == 1


def postpone_lookup(tx: LedgerTransaction, message: OutboxMessage, *, limits: Limits) -> None:
    """Look a message that is held as unknown up again later; its investigation stays open."""
    tx.execute(
        update(outbox)
        .where(outbox.c.message_id == message.message_id)
        .where(outbox.c.state == UNKNOWN)
        .values(due_at=tx.now() + dt.timedelta(seconds=limits.delivery.retry_cap_s))
    )


def record_delivery(tx: LedgerTransaction, message: OutboxMessage, result: DeliveryResult, *, limits: Limits) -> str:
    """Write one delivery attempt and what follows from it; returns its id.

    Anything but `delivered` is due again after a pause until the bound is spent; then the message
    is abandoned, or held as unknown with an investigation when it is not known whether it arrived. Two
    senders that raced make two delivery rows and one final state.
    """
    send_no = message.sends + 1
    state = result.next_state(is_last=send_no >= limits.delivery.delivery_attempts_max)
    delivery_id = _insert_delivery(tx, message, result, send_no=send_no)
    _update_message(tx, message, result, state=state, limits=limits)
    if state == UNKNOWN:
        _hold_unknown(tx, message, reason=result.reason or NOTIFICATION_UNKNOWN, limits=limits)
    elif state != DUE:
        effect = EffectState.COMMITTED if state == SENT else EffectState.FAILED
        _update_effect(tx, message.job_id, effect, reference=result.reference, reason=result.reason)
    return delivery_id


def _insert_delivery(tx: LedgerTransaction, message: OutboxMessage, result: DeliveryResult, *, send_no: int) -> str:
    now = tx.now()
    delivery_id = new_id(tx, "dlv")
    late_effect = (
        select(effects.c.deadline_at)
        .where(effects.c.job_id == message.job_id)
        .where(effects.c.kind == EffectKind.NOTIFICATION)
        .where(effects.c.deadline_at < now)
    )
    is_late = tx.scalar(late_effect) is not None
    reason_code = result.reason.code if result.reason else ""
    tx.execute(
        insert(deliveries),
        {
            "delivery_id": delivery_id,
            "message_id": message.message_id,
            "job_id": message.job_id,
            "send_no": send_no,
            "channel": result.channel,
            "outcome": result.outcome,
            "reference": result.reference,
            "reason_code": reason_code,
            "late": is_late,
            "delivered_at": now,
        },
    )
    append_event(
        tx,
        EventKind.DELIVERY,
        job_id=message.job_id,
        tenant=message.tenant,
        message_id=message.message_id,
        send_no=send_no,
        outcome=result.outcome,
        late=is_late or None,
        reason=reason_code or None,
    )
    return delivery_id


def _update_message(
    tx: LedgerTransaction, message: OutboxMessage, result: DeliveryResult, *, state: str, limits: Limits
) -> None:
    """Move the message to the state that one attempt led to, unless another sender finished it first."""
    now = tx.now()
    send_no = message.sends + 1
    pause_s = limits.delivery.delivery_retry_s * 2 ** (send_no - 1)
    open_states = [DUE, SENDING]
    if result.outcome == DELIVERED or message.state == UNKNOWN:
        open_states.append(UNKNOWN)
    if result.outcome == DELIVERED:
        # What arrived has arrived, also when another sender had abandoned it meanwhile.
        open_states.append(ABANDONED)
    tx.execute(
        update(outbox)
        .where(outbox.c.message_id == message.message_id)
        .where(outbox.c.state.in_(open_states))
        .values(
            sends=case((outbox.c.sends > send_no, outbox.c.sends), else_=send_no),
            state=state,
            due_at=now + dt.timedelta(seconds=pause_s),
            settled_at=None if state in (DUE, UNKNOWN) else now,
        )
    )


def _hold_unknown(tx: LedgerTransaction, message: OutboxMessage, *, reason: Reason, limits: Limits) -> None:
    """Mark the effect as unknown and open an investigation; nothing is sent again automatically."""
    _update_effect(tx, message.job_id, EffectState.UNKNOWN, reference="", reason=reason)
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNKNOWN_EFFECT,
            subject=notification_subject(message.job_id),
            job_id=message.job_id,
            reason=reason,
            suspected_effect=f"message {message.message_id} may have reached its receiver",
            allowed_repair="ask the receiver for the message id, then resolve this with the answer",
            evidence={"message_id": message.message_id, "sends": message.sends + 1},
        ),
        limits=limits,
    )


def notification_subject(job_id: str) -> str:
    """Return the subject of the investigation of an unknown notification."""
    return f"{job_id}:{EffectKind.NOTIFICATION}"


def unknown_subjects(tx: LedgerTransaction) -> set[str]:
    """Return the subjects of the messages that are held as unknown."""
    unknown = select(outbox.c.job_id).where(outbox.c.state == UNKNOWN)
    return {notification_subject(job_id) for job_id in tx.execute(unknown).scalars()}


def apply_lookup(tx: LedgerTransaction, *, limit: int) -> list[str]:
    """Abandon the unknown messages whose investigation a person has resolved; returns their ids.

    The person's answer is in the investigation: nothing is sent because of it.
    """
    decided = tx.rows(
        select(outbox.c.message_id, outbox.c.job_id)
        .join(investigations, investigations.c.subject == outbox.c.job_id + literal(f":{EffectKind.NOTIFICATION}"))
        .where(outbox.c.state == UNKNOWN)
        .where(investigations.c.kind == InvestigationKind.UNKNOWN_EFFECT)
        .where(investigations.c.state == RESOLVED)
        .order_by(outbox.c.message_id)
        .limit(limit)
    )
    for row in decided:
        tx.execute(
            update(outbox)
            .where(outbox.c.message_id == row["message_id"])
            .where(outbox.c.state == UNKNOWN)
            .values(state=ABANDONED, settled_at=tx.now())
        )
        reason = NOTIFICATION_UNKNOWN
        _update_effect(tx, row["job_id"], EffectState.ABANDONED, reference="", reason=reason)
    return [row["message_id"] for row in decided]


def _update_effect(
    tx: LedgerTransaction, job_id: str, state: EffectState, *, reference: str, reason: Reason | None
) -> None:
    """Move the effect of the notification along its transitions, and finish the job if it was the last."""
    now = tx.now()
    sources = [source for source, target in EFFECT_TRANSITIONS if target is state]
    written = tx.execute(
        update(effects)
        .where(effects.c.job_id == job_id)
        .where(effects.c.kind == EffectKind.NOTIFICATION)
        .where(effects.c.state.in_(sources))
        .values(
            state=state,
            provider_reference=reference,
            reason_code=reason.code if reason else "",
            committed_at=now if state is EffectState.COMMITTED else None,
            updated_at=now,
        )
    )
    if written.rowcount == 1:
        append_event(
            tx,
            EventKind.EFFECT_CHANGED,
            job_id=job_id,
            effect=EffectKind.NOTIFICATION.value,
            state=state.value,
            reason=reason.code if reason else None,
        )
    finish_job_if_done(tx, job_id)


def unconsumed_deliveries(tx: LedgerTransaction, *, limit: int) -> list[dict[str, Any]]:
    """Return delivered messages that the review consumer has not consumed yet, oldest first."""
    query = (
        select(deliveries, outbox.c.payload, outbox.c.tenant)
        .join(outbox, outbox.c.message_id == deliveries.c.message_id)
        .where(deliveries.c.outcome == DELIVERED)
        .where(deliveries.c.delivery_id.not_in(select(consumed.c.event_id)))
        .order_by(deliveries.c.delivered_at, deliveries.c.delivery_id)
        .limit(limit)
    )
    return tx.rows(query)


def stale_status_jobs(tx: LedgerTransaction, *, limit: int) -> list[str]:
    """Return jobs whose status document shows less than their newest event."""
    query = (
        select(jobs.c.job_id)
        .where(jobs.c.latest_seq > jobs.c.status_shown_seq)
        .order_by(jobs.c.latest_seq)
        .limit(limit)
    )
    return [row["job_id"] for row in tx.rows(query)]


def mark_status_shown(tx: LedgerTransaction, job_id: str, *, seq: int) -> bool:
    """Record which event a status document shows; False when the job has a newer event."""
    tx.execute(
        update(jobs).where(jobs.c.job_id == job_id).where(jobs.c.status_shown_seq < seq).values(status_shown_seq=seq)
    )
    return bool(tx.scalar(select(jobs.c.latest_seq).where(jobs.c.job_id == job_id)) == seq)
