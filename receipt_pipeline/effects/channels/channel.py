"""What every notification channel can do: send a message, and say whether it arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from receipt_pipeline.core.effect_protocols import Capability
from receipt_pipeline.core.errors import PipelineError


class SendFailed(PipelineError):
    """The channel refused the message; it certainly did not arrive."""


class SendUnknown(PipelineError):
    """The channel gave no answer; the message may or may not have arrived."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message on its way. A repeat carries the same message id and the next send number.

    `payload` holds ids, states and digests; never a field that was read from a scan.
    """

    message_id: str
    tenant: str
    kind: str
    send_no: int
    payload: Mapping[str, Any]

    def as_document(self) -> dict[str, Any]:
        """Return what a receiver gets."""
        return {
            "message_id": self.message_id,
            "send_no": self.send_no,
            "kind": self.kind,
            "payload": dict(self.payload),
        }


class Channel(Protocol):
    """A way on which messages leave."""

    @property
    def name(self) -> str:
        """Return the name under which deliveries are recorded."""

    @property
    def capability(self) -> Capability:
        """Return what the channel offers to somebody who does not know whether a message arrived."""

    def send(self, message: OutgoingMessage) -> None:
        """Send the message; returning means that the channel has taken it.

        Raises:
            SendFailed: NOTIFICATION.FAILED.v1, it certainly did not arrive.
            SendUnknown: NOTIFICATION.UNKNOWN.v1, it may have arrived.
        """

    def lookup(self, message: OutgoingMessage) -> str | None:
        """Return the channel's reference of this message, sent now or before; None when none arrived.

        Called on channels of capability `lookup` alone.

        Raises:
            SendUnknown: NOTIFICATION.UNKNOWN.v1, the channel cannot be asked now.
        """
