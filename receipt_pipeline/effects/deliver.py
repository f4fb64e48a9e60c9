"""Delivers: messages that are due leave through the channel, and each try becomes a row."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.effects import WHEN_UNKNOWN, Capability, WhenUnknown
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import altered, point
from receipt_pipeline.core.reasons import (
    NOTIFICATION_DROPPED,
    NOTIFICATION_FAILED,
    NOTIFICATION_UNKNOWN,
    Reason,
)
from receipt_pipeline.effects.channels import OutgoingMessage, SendFailed
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.outbox import (
    DELIVERED,
    SENDING,
    UNCONFIRMED,
    UNKNOWN,
    begin_send,
    due_messages,
    postpone_lookup,
    record_delivery,
)

DROPPED = "dropped"
FAILED = "failed"
LEFT_TO_ANOTHER = "left_to_another"
STILL_UNKNOWN = "still_unknown"


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """What one pass delivered; `left` messages were due but the time bound came first."""

    delivered: int = 0
    dropped: int = 0
    failed: int = 0
    unconfirmed: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class Tried:
    """How one try ended: its outcome, the channel's reference, and why it is no delivery."""

    outcome: str
    reference: str = ""
    reason: Reason | None = None


_UNCONFIRMED = Tried(UNCONFIRMED, reason=NOTIFICATION_UNKNOWN)


def deliver(
    context: EffectContext, *, limit: int, time_bound_s: float, job_id: str | None = None
) -> DeliverySummary:
    """Send the messages that are due, oldest first, and record what became of each.

    A send that was lost before its row was written is followed up by what the channel can do: looked up,
    repeated under the same message id, or put before a person. Where two senders race on a channel that
    can be asked, the receiver gets the same message id twice.
    """
    started = time.monotonic()
    can_ask = context.channel.capability is Capability.LOOKUP
    with context.ledger.reading() as tx:
        due = due_messages(tx, limit=limit, job_id=job_id, unknown_too=can_ask)
    counts: Counter[str] = Counter()
    done = 0
    for row in due:
        if done and time.monotonic() - started > time_bound_s:
            break
        counts[_deliver_one(context, row)] += 1
        done += 1
    return DeliverySummary(
        delivered=counts[DELIVERED],
        dropped=counts[DROPPED],
        failed=counts[FAILED],
        unconfirmed=counts[UNCONFIRMED],
        left=len(due) - done,
    )


def _deliver_one(context: EffectContext, row: dict[str, Any]) -> str:
    message = OutgoingMessage(
        message_id=row["message_id"],
        tenant=row["tenant"],
        kind=row["kind"],
        send_no=row["sends"] + 1,
        payload=row["payload"],
    )
    if context.channel.capability is Capability.LOOKUP:
        tried = _look_up_and_send(context, message, held=row["state"] == UNKNOWN)
    else:
        tried = _mark_and_send(context, message, row)
    if tried.outcome == STILL_UNKNOWN:
        with context.ledger.transaction() as tx:
            postpone_lookup(tx, row, limits=context.limits)
    elif tried.outcome != LEFT_TO_ANOTHER:
        _record(context, row, tried)
    return tried.outcome


def _record(context: EffectContext, row: dict[str, Any], tried: Tried) -> None:
    point("delivery_record.before")
    with context.ledger.transaction() as tx:
        record_delivery(
            tx,
            row,
            channel=context.channel.name,
            outcome=tried.outcome,
            reference=tried.reference,
            reason=tried.reason,
            limits=context.limits,
            repeatable=WHEN_UNKNOWN[context.channel.capability] is not WhenUnknown.INVESTIGATE,
        )
    point("delivery_record.after")


def _look_up_and_send(context: EffectContext, message: OutgoingMessage, *, held: bool) -> Tried:
    """Send one message outside any transaction; the channel, asked afterwards, says what arrived.

    Args:
        held: a person was asked already, so the message is looked up and never sent again.
    """
    unsent: Reason = NOTIFICATION_DROPPED
    try:
        # A crash between send and record leaves the message due although its receiver has it.
        reference = context.channel.lookup(message)
        if reference is None and not held:
            try:
                _send(context, message)
            except PipelineError:
                unsent = NOTIFICATION_FAILED
            reference = context.channel.lookup(message)
    except PipelineError:
        # Without an answer nothing may be repeated: the next pass looks up before it sends.
        return Tried(STILL_UNKNOWN) if held else _UNCONFIRMED
    if reference is not None:
        return Tried(DELIVERED, reference)
    return Tried(DROPPED if unsent is NOTIFICATION_DROPPED else FAILED, reason=unsent)


def _mark_and_send(context: EffectContext, message: OutgoingMessage, row: dict[str, Any]) -> Tried:
    """Send on a channel that cannot be asked: marked before the call, acknowledged by its return."""
    begun_before = row["state"] == SENDING
    if begun_before and WHEN_UNKNOWN[context.channel.capability] is WhenUnknown.INVESTIGATE:
        return _UNCONFIRMED
    with context.ledger.transaction() as tx:
        if not begin_send(tx, row, limits=context.limits):
            return Tried(LEFT_TO_ANOTHER)
    try:
        _send(context, message)
    except SendFailed:
        return Tried(FAILED, reason=NOTIFICATION_FAILED)
    except PipelineError:
        return _UNCONFIRMED
    return Tried(DELIVERED, f"acknowledged:{message.send_no}")


def _send(context: EffectContext, message: OutgoingMessage) -> None:
    point("outbox_send.before")
    carried = altered("outbox_send.drop", message)
    if carried is not None:
        context.channel.send(carried)
    point("outbox_send.after")
