"""Send the messages that are due through the channel; each attempt becomes a row."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from receipt_pipeline.core.effects import WHEN_UNKNOWN, Capability, WhenUnknown
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import altered, point
from receipt_pipeline.core.reasons import NOTIFICATION_DROPPED, NOTIFICATION_FAILED, NOTIFICATION_UNKNOWN, Reason
from receipt_pipeline.effects.channels import OutgoingMessage, SendFailed
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.outbox import (
    DELIVERED,
    SENDING,
    UNCONFIRMED,
    UNKNOWN,
    DeliveryResult,
    OutboxMessage,
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
class DeliveryAttempt:
    """How one delivery attempt ended: its outcome, the channel's reference, and why it is no delivery."""

    outcome: str
    reference: str = ""
    reason: Reason | None = None


_UNCONFIRMED = DeliveryAttempt(UNCONFIRMED, reason=NOTIFICATION_UNKNOWN)


def deliver(context: EffectContext, *, limit: int, time_bound_s: float, job_id: str | None = None) -> DeliverySummary:
    """Send the messages that are due, oldest first, and record how each attempt ended.

    A send that was lost before its row was written is followed up by what the channel can do: looked up,
    repeated under the same message id, or investigated by a person. If two senders race on a channel with
    a look-up, the receiver gets the same message id twice.
    """
    started = time.monotonic()
    has_lookup = context.channel.capability is Capability.LOOKUP
    with context.ledger.reading() as tx:
        due = due_messages(tx, limit=limit, job_id=job_id, unknown_too=has_lookup)
    counts: Counter[str] = Counter()
    done = 0
    for message in due:
        if done and time.monotonic() - started > time_bound_s:
            break
        counts[_deliver_one(context, message)] += 1
        done += 1
    return DeliverySummary(
        delivered=counts[DELIVERED],
        dropped=counts[DROPPED],
        failed=counts[FAILED],
        unconfirmed=counts[UNCONFIRMED],
        left=len(due) - done,
    )


def _deliver_one(context: EffectContext, message: OutboxMessage) -> str:
    outgoing = OutgoingMessage(
        message_id=message.message_id,
        tenant=message.tenant,
        kind=message.kind,
        send_no=message.sends + 1,
        payload=message.payload,
    )
    if context.channel.capability is Capability.LOOKUP:
        attempt = _look_up_and_send(context, outgoing, held=message.state == UNKNOWN)
    else:
        attempt = _mark_and_send(context, outgoing, message)
    if attempt.outcome == STILL_UNKNOWN:
        with context.ledger.transaction() as tx:
            postpone_lookup(tx, message, limits=context.limits)
    elif attempt.outcome != LEFT_TO_ANOTHER:
        _record(context, message, attempt)
    return attempt.outcome


def _record(context: EffectContext, message: OutboxMessage, attempt: DeliveryAttempt) -> None:
    channel = context.channel
    result = DeliveryResult(
        channel=channel.name,
        outcome=attempt.outcome,
        reference=attempt.reference,
        reason=attempt.reason,
        repeatable=WHEN_UNKNOWN[channel.capability] is not WhenUnknown.INVESTIGATE,
    )
    point("delivery_record.before")
    with context.ledger.transaction() as tx:
        record_delivery(tx, message, result, limits=context.limits)
    point("delivery_record.after")


def _look_up_and_send(context: EffectContext, message: OutgoingMessage, *, held: bool) -> DeliveryAttempt:
    """Send one message outside any transaction; a look-up afterward shows whether it arrived.

    Args:
        held: an investigation is open, so the message is looked up and never sent again.
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
        return DeliveryAttempt(STILL_UNKNOWN) if held else _UNCONFIRMED
    if reference is not None:
        return DeliveryAttempt(DELIVERED, reference)
    return DeliveryAttempt(DROPPED if unsent is NOTIFICATION_DROPPED else FAILED, reason=unsent)


def _mark_and_send(context: EffectContext, outgoing: OutgoingMessage, message: OutboxMessage) -> DeliveryAttempt:
    """Send on a channel without a look-up: marked before the call, acknowledged by its return."""
    was_begun = message.state == SENDING
    if was_begun and WHEN_UNKNOWN[context.channel.capability] is WhenUnknown.INVESTIGATE:
        return _UNCONFIRMED
    with context.ledger.transaction() as tx:
        if not begin_send(tx, message, limits=context.limits):
            return DeliveryAttempt(LEFT_TO_ANOTHER)
    try:
        _send(context, outgoing)
    except SendFailed:
        return DeliveryAttempt(FAILED, reason=NOTIFICATION_FAILED)
    except PipelineError:
        return _UNCONFIRMED
    return DeliveryAttempt(DELIVERED, f"acknowledged:{outgoing.send_no}")


def _send(context: EffectContext, message: OutgoingMessage) -> None:
    point("outbox_send.before")
    kept = altered("outbox_send.drop", message)
    if kept is not None:
        context.channel.send(kept)
    point("outbox_send.after")
