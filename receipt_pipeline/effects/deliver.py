"""Delivers: messages that are due leave through the channel, and each try becomes a row."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import altered, point
from receipt_pipeline.core.reasons import NOTIFICATION_DROPPED, NOTIFICATION_FAILED, Reason
from receipt_pipeline.effects.channels.channel import OutgoingMessage
from receipt_pipeline.effects.services import EffectServices
from receipt_pipeline.ledger.outbox import DELIVERED, due_messages, record_delivery

DROPPED = "dropped"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """What one pass delivered; `left` messages were due but the time bound came first."""

    delivered: int = 0
    dropped: int = 0
    failed: int = 0
    left: int = 0


def deliver(
    effects: EffectServices, *, at_most: int, time_bound_s: float, job_id: str | None = None
) -> DeliverySummary:
    """Send the messages that are due, oldest first, and record what became of each.

    A send that was lost before its row was written is found in the channel by the next pass and
    only recorded; where two senders race, the receiver gets the same message id twice.
    """
    started = time.monotonic()
    with effects.ledger.reading() as tx:
        due = due_messages(tx, at_most=at_most, job_id=job_id)
    counts = {DELIVERED: 0, DROPPED: 0, FAILED: 0}
    done = 0
    for row in due:
        if done and time.monotonic() - started > time_bound_s:
            break
        counts[_deliver_one(effects, row)] += 1
        done += 1
    return DeliverySummary(
        delivered=counts[DELIVERED], dropped=counts[DROPPED], failed=counts[FAILED], left=len(due) - done
    )


def _deliver_one(effects: EffectServices, row: dict[str, Any]) -> str:
    message = OutgoingMessage(
        message_id=row["message_id"],
        tenant=row["tenant"],
        kind=row["kind"],
        send_no=row["sends"] + 1,
        payload=row["payload"],
    )
    outcome, reference, reason = _send(effects, message)
    point("delivery_record.before")
    with effects.ledger.transaction() as tx:
        record_delivery(
            tx,
            row,
            channel=effects.channel.name,
            outcome=outcome,
            reference=reference,
            reason=reason,
            limits=effects.limits,
        )
    point("delivery_record.after")
    return outcome


def _send(effects: EffectServices, message: OutgoingMessage) -> tuple[str, str, Reason | None]:
    """Send one message outside any transaction; the channel, asked afterwards, says what arrived."""
    # A crash between send and record leaves the message due although its receiver has it.
    reference = effects.channel.lookup(message)
    unsent: Reason = NOTIFICATION_DROPPED
    if reference is None:
        try:
            point("outbox_send.before")
            carried = altered("outbox_send.drop", message)
            if carried is not None:
                effects.channel.send(carried)
            point("outbox_send.after")
        except PipelineError:
            unsent = NOTIFICATION_FAILED
        reference = effects.channel.lookup(message)
    if reference is not None:
        return DELIVERED, reference, None
    return (DROPPED if unsent is NOTIFICATION_DROPPED else FAILED), "", unsent
