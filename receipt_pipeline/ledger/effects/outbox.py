"""Messages and their deliveries."""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import BindParameter, Integer, bindparam, case, insert, literal, select, update

from receipt_pipeline.core.effects import EFFECT_TRANSITIONS, EffectKind, EffectState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import NOTIFICATION_UNKNOWN, Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import (
    RESOLVED,
    InvestigationKind,
    InvestigationRequest,
    open_investigation,
)
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


_STATES: BindParameter[Any] = bindparam("states", expanding=True)
_DUE_MESSAGES = (
    select(outbox)
    .where(outbox.c.state.in_(_STATES))
    .where(outbox.c.due_at <= bindparam("now"))
    .order_by(outbox.c.due_at, outbox.c.message_id)
    .limit(bindparam("limit", type_=Integer()))
)
_SEND_NO = bindparam("send_no", type_=Integer())
_SETTLE_MESSAGE = (
    update(outbox)
    .where(outbox.c.message_id == bindparam("of_message"))
    .where(outbox.c.state.in_(_STATES))
    .values(sends=case((outbox.c.sends > _SEND_NO, outbox.c.sends), else_=_SEND_NO))
)
_SETTLE_NOTIFICATION = (
    update(effects)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.kind == EffectKind.NOTIFICATION)
    .where(effects.c.state.in_(_STATES))
)
_UNKNOWN_JOBS = select(outbox.c.job_id).where(outbox.c.state == UNKNOWN)
_ANSWERED = (
    select(outbox.c.message_id, outbox.c.job_id)
    .join(
        investigations,
        investigations.c.subject == outbox.c.job_id + literal(f":{EffectKind.NOTIFICATION}"),
    )
    .where(outbox.c.state == UNKNOWN)
    .where(investigations.c.kind == InvestigationKind.UNKNOWN_EFFECT)
    .where(investigations.c.state == RESOLVED)
    .order_by(outbox.c.message_id)
    .limit(bindparam("limit", type_=Integer()))
)
_LATE_MESSAGE = (
    select(effects.c.deadline_at)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.kind == EffectKind.NOTIFICATION)
    .where(effects.c.deadline_at < bindparam("now"))
)


def due_messages(
    tx: LedgerTransaction, *, limit: int, job_id: str | None = None, unknown_too: bool = False
) -> list[dict[str, Any]]:
    """Return messages whose time has come, oldest first.

    One that is `sending` past its time was begun by a sender that never said how it ended.

    Args:
        unknown_too: the channel can be asked, so what is held as unknown is looked up again.
    """
    states = [DUE, SENDING, UNKNOWN] if unknown_too else [DUE, SENDING]
    asked: dict[str, Any] = {"states": states, "now": tx.now(), "limit": limit}
    if job_id is None:
        return tx.rows(_DUE_MESSAGES, asked)
    return tx.rows(_DUE_MESSAGES.where(outbox.c.job_id == job_id), asked)


def begin_send(tx: LedgerTransaction, message: dict[str, Any], *, limits: Limits) -> bool:
    """Mark a message as being sent, before the call; False when another sender has it.

    For channels that cannot be asked: without the mark a crash after the call would leave no trace.
    """
    written = tx.execute(
        update(outbox)
        .where(outbox.c.message_id == message["message_id"])
        .where(outbox.c.state == message["state"])
        .where(outbox.c.sends == message["sends"])
        .where(outbox.c.due_at == message["due_at"])
        .values(state=SENDING, due_at=tx.now() + dt.timedelta(seconds=limits.delivery.send_ttl_s))
    )
    return written.rowcount == 1


def postpone_lookup(tx: LedgerTransaction, message: dict[str, Any], *, limits: Limits) -> None:
    """Look a message that is held as unknown up again later; the question about it stays as it is."""
    tx.execute(
        update(outbox)
        .where(outbox.c.message_id == message["message_id"])
        .where(outbox.c.state == UNKNOWN)
        .values(due_at=tx.now() + dt.timedelta(seconds=limits.delivery.retry_cap_s))
    )


def record_delivery(
    tx: LedgerTransaction,
    message: dict[str, Any],
    *,
    channel: str,
    outcome: str,
    reference: str = "",
    reason: Reason | None = None,
    limits: Limits,
    repeatable: bool = True,
) -> str:
    """Write one delivery (`delivered`, `dropped`, `failed`, `unconfirmed`) and what follows from it.

    Anything but `delivered` is due again after a pause until the bound is spent; then the message
    is abandoned, or held as unknown with an owned question when its last end is not known. Two senders
    that raced make two delivery rows and one settled message.

    Args:
        repeatable: False when an unconfirmed call must not be made again by itself.
    """
    now = tx.now()
    send_no = message["sends"] + 1
    delivery_id = new_id(tx, "dlv")
    late = _is_late(tx, message["job_id"], now)  # After the effect's deadline.
    state = _following(outcome, last=send_no >= limits.delivery.delivery_attempts_max, repeatable=repeatable)
    tx.execute(
        insert(deliveries),
        {
            "delivery_id": delivery_id,
            "message_id": message["message_id"],
            "job_id": message["job_id"],
            "send_no": send_no,
            "channel": channel,
            "outcome": outcome,
            "reference": reference,
            "reason_code": reason.code if reason else "",
            "late": late,
            "delivered_at": now,
        },
    )
    _follow(tx, message, outcome=outcome, state=state, send_no=send_no, limits=limits)
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
    if state == UNKNOWN:
        _hold_unknown(tx, message, reason=reason or NOTIFICATION_UNKNOWN, limits=limits)
    elif state != DUE:
        _settle_effect(tx, message["job_id"], _STATE_OF[state], reference=reference, reason=reason)
    return delivery_id


def _follow(
    tx: LedgerTransaction,
    message: dict[str, Any],
    *,
    outcome: str,
    state: str,
    send_no: int,
    limits: Limits,
) -> None:
    """Let the message become what one try made of it, unless another sender settled it first."""
    now = tx.now()
    open_states = [DUE, SENDING]
    if outcome == DELIVERED or message["state"] == UNKNOWN:
        open_states.append(UNKNOWN)
    if outcome == DELIVERED:
        # What arrived has arrived, also when another sender had given it up meanwhile.
        open_states.append(ABANDONED)
    tx.execute(
        _SETTLE_MESSAGE,
        {
            "of_message": message["message_id"],
            "states": open_states,
            "send_no": send_no,
            "state": state,
            "due_at": now + dt.timedelta(seconds=limits.delivery.delivery_retry_s * 2 ** (send_no - 1)),
            "settled_at": None if state in (DUE, UNKNOWN) else now,
        },
    )


_STATE_OF = {SENT: EffectState.COMMITTED, ABANDONED: EffectState.FAILED}


def _following(outcome: str, *, last: bool, repeatable: bool) -> str:
    """Return the state of a message after one try."""
    if outcome == DELIVERED:
        return SENT
    if outcome == UNCONFIRMED:
        return DUE if repeatable and not last else UNKNOWN
    return ABANDONED if last else DUE


def _hold_unknown(tx: LedgerTransaction, message: dict[str, Any], *, reason: Reason, limits: Limits) -> None:
    """Mark the effect as unknown and ask a person; nothing is sent again by itself (R094, R104)."""
    job_id = message["job_id"]
    _settle_effect(tx, job_id, EffectState.UNKNOWN, reference="", reason=reason)
    open_investigation(
        tx,
        InvestigationRequest(
            InvestigationKind.UNKNOWN_EFFECT,
            subject=notification_subject(job_id),
            job_id=job_id,
            reason=reason,
            suspected_effect=f"message {message['message_id']} may have reached its receiver",
            allowed_repair="ask the receiver by the message id, then resolve this with the answer",
            evidence={"message_id": message["message_id"], "sends": message["sends"] + 1},
        ),
        limits=limits,
    )


def notification_subject(job_id: str) -> str:
    """Return what the question about an unknown notification is about."""
    return f"{job_id}:{EffectKind.NOTIFICATION}"


def unknown_subjects(tx: LedgerTransaction) -> set[str]:
    """Return the subjects of the messages that are held as unknown."""
    return {notification_subject(job_id) for job_id in tx.execute(_UNKNOWN_JOBS).scalars()}


def apply_lookup(tx: LedgerTransaction, *, limit: int) -> list[str]:
    """Give up the unknown messages about which a person has recorded an answer; returns their ids.

    The answer itself stands in the investigation: the product sends nothing on the strength of it.
    """
    rows = tx.rows(_ANSWERED, {"limit": limit})
    for row in rows:
        tx.execute(
            update(outbox)
            .where(outbox.c.message_id == row["message_id"])
            .where(outbox.c.state == UNKNOWN)
            .values(state=ABANDONED, settled_at=tx.now())
        )
        reason = NOTIFICATION_UNKNOWN
        _settle_effect(tx, row["job_id"], EffectState.ABANDONED, reference="", reason=reason)
    return [row["message_id"] for row in rows]


def _is_late(tx: LedgerTransaction, job_id: str, now: dt.datetime) -> bool:
    return tx.scalar(_LATE_MESSAGE, {"of_job": job_id, "now": now}) is not None


def _settle_effect(
    tx: LedgerTransaction, job_id: str, state: EffectState, *, reference: str, reason: Reason | None
) -> None:
    now = tx.now()
    before = [source for source, target in EFFECT_TRANSITIONS if target is state]
    written = tx.execute(
        _SETTLE_NOTIFICATION,
        {
            "of_job": job_id,
            "states": before,
            "state": state,
            "provider_reference": reference,
            "reason_code": reason.code if reason else "",
            "committed_at": now if state is EffectState.COMMITTED else None,
            "updated_at": now,
        },
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
    """Return delivered messages that the review consumer has not taken in yet, oldest first."""
    taken = select(consumed.c.event_id)
    query = (
        select(deliveries, outbox.c.payload, outbox.c.tenant)
        .join(outbox, outbox.c.message_id == deliveries.c.message_id)
        .where(deliveries.c.outcome == DELIVERED)
        .where(deliveries.c.delivery_id.not_in(taken))
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
    """Record which event a status document shows; False when the job moved on meanwhile."""
    tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.status_shown_seq < seq)
        .values(status_shown_seq=seq)
    )
    return bool(tx.scalar(select(jobs.c.latest_seq).where(jobs.c.job_id == job_id)) == seq)
