"""A channel that does what the test says: delivers, refuses, loses, or dies after it delivered."""

from __future__ import annotations

from dataclasses import dataclass, field

from receipt_pipeline.core.effects import Capability
from receipt_pipeline.core.reasons import NOTIFICATION_FAILED, NOTIFICATION_UNKNOWN
from receipt_pipeline.effects.channels import OutgoingMessage, SendFailed, SendUnknown


class SenderKilled(BaseException):
    """Stands for a SIGKILL between the send and its row."""


@dataclass
class ScriptedChannel:
    """Keeps what arrived; each send takes the next word of `script`, and delivers when it is used up.

    Attributes:
        blind_lookups: how many of the coming look-ups give no answer.
    """

    script: list[str] = field(default_factory=list)
    arrived: list[OutgoingMessage] = field(default_factory=list)
    sends: int = 0
    name: str = "scripted"
    capability: Capability = Capability.LOOKUP
    blind_lookups: int = 0

    def send(self, message: OutgoingMessage) -> None:
        """Do what the script says: `deliver`, `lose`, `refuse`, `vanish` or `hide` (no answer; not arrived
        or arrived), `die` after delivering, or `die_first` before."""
        self.sends += 1
        word = self.script.pop(0) if self.script else "deliver"
        if word == "refuse":
            raise SendFailed(NOTIFICATION_FAILED, cause="scripted")
        if word == "vanish":
            raise SendUnknown(NOTIFICATION_UNKNOWN, cause="scripted")
        if word == "die_first":
            raise SenderKilled
        if word == "lose":
            return
        self.arrived.append(message)
        if word == "die":
            raise SenderKilled
        if word == "hide":
            raise SendUnknown(NOTIFICATION_UNKNOWN, cause="scripted")

    def lookup(self, message: OutgoingMessage) -> str | None:
        assert self.capability is Capability.LOOKUP, "only a channel that can be asked is asked"
        if self.blind_lookups > 0:
            self.blind_lookups -= 1
            raise SendUnknown(NOTIFICATION_UNKNOWN, cause="scripted")
        for index, known in enumerate(self.arrived):
            if known.message_id == message.message_id:
                return f"scripted:{index}"
        return None
