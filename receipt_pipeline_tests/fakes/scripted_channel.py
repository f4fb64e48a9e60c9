"""A channel that does what the test says: delivers, refuses, loses, or dies after it delivered."""

from __future__ import annotations

from dataclasses import dataclass, field

from receipt_pipeline.core.reasons import NOTIFICATION_FAILED
from receipt_pipeline.effects.channels.channel import OutgoingMessage, SendFailed


class SenderKilled(BaseException):
    """Stands for a SIGKILL between the send and its row."""


@dataclass
class ScriptedChannel:
    """Keeps what arrived; each send takes the next word of `script`, and delivers when it is used up."""

    script: list[str] = field(default_factory=list)
    arrived: list[OutgoingMessage] = field(default_factory=list)
    sends: int = 0
    name: str = "scripted"

    def send(self, message: OutgoingMessage) -> None:
        """Do what the script says: `deliver`, `lose`, `refuse`, or `die` after delivering."""
        self.sends += 1
        word = self.script.pop(0) if self.script else "deliver"
        if word == "refuse":
            raise SendFailed(NOTIFICATION_FAILED, cause="scripted")
        if word == "lose":
            return
        self.arrived.append(message)
        if word == "die":
            raise SenderKilled

    def lookup(self, message: OutgoingMessage) -> str | None:
        """Return the message's place among the arrived."""
        for index, known in enumerate(self.arrived):
            if known.message_id == message.message_id:
                return f"scripted:{index}"
        return None
