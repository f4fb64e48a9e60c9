"""A channel of the operator's own: a program that takes the message, and declares what it can do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.core.effect_protocols import Capability
from receipt_pipeline.core.reasons import NOTIFICATION_FAILED, NOTIFICATION_UNKNOWN
from receipt_pipeline.effects.channels.channel import OutgoingMessage, SendFailed, SendUnknown

CERTAINLY_NOT = 75  # EX_TEMPFAIL of sysexits.h: try again, nothing was done.
REFERENCE_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class CommandChannel:
    """Runs `<command> send` with the message as JSON on standard input.

    Exit status 0 means taken and 75 certainly not taken; every other end, the time limit included,
    leaves it unknown. With capability `lookup`, `<command> lookup` prints a reference of the message,
    or nothing when it certainly never arrived, and ends with 0. RECEIPTS_MESSAGE_ID names the message
    to both. What the program writes to standard error stays out of the ledger.
    """

    command: Sequence[str]
    capability: Capability
    timeout_s: float = 30.0
    name: str = "command"

    def send(self, message: OutgoingMessage) -> None:
        """Hand the message to the program.

        Raises:
            SendFailed: the program could not be started, or ended with 75.
            SendUnknown: it ended in any other way; its status is a fact of the error.
        """
        ended = self._run("send", message)
        if ended.returncode == CERTAINLY_NOT:
            raise SendFailed(NOTIFICATION_FAILED, status=ended.returncode)
        if ended.returncode != 0:
            raise SendUnknown(NOTIFICATION_UNKNOWN, status=ended.returncode)

    def lookup(self, message: OutgoingMessage) -> str | None:
        """Ask the program for its reference of the message. Raises SendUnknown when it gives no answer."""
        try:
            ended = self._run("lookup", message)
        except SendFailed as error:
            raise SendUnknown(NOTIFICATION_UNKNOWN, **error.facts) from error
        if ended.returncode != 0:
            raise SendUnknown(NOTIFICATION_UNKNOWN, status=ended.returncode)
        return ended.stdout.decode(errors="replace").strip()[:REFERENCE_LENGTH_MAX] or None

    def _run(self, order: str, message: OutgoingMessage) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                [*self.command, order],
                input=canonical_json(message.as_document()) + b"\n",
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self.timeout_s,
                env=os.environ | {"RECEIPTS_MESSAGE_ID": message.message_id},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise SendUnknown(NOTIFICATION_UNKNOWN, timeout_s=self.timeout_s) from error
        except OSError as error:
            raise SendFailed(NOTIFICATION_FAILED, cause=type(error).__name__, errno=error.errno) from error
