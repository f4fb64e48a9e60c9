"""The channel protocol, and the file and command channels."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.core.effects import Capability
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.reasons import NOTIFICATION_FAILED, NOTIFICATION_UNKNOWN
from receipt_pipeline.durable_files import tenant_folder, write_whole


class SendFailed(PipelineError):
    """The channel refused the message; it certainly did not arrive."""


class SendUnknown(PipelineError):
    """The channel gave no answer; the message may or may not have arrived."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message to send. A repeat has the same message id and the next send number.

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
    """A way to send messages."""

    @property
    def name(self) -> str:
        """Return the name under which deliveries are recorded."""

    @property
    def capability(self) -> Capability:
        """Return what a sender can do that does not know whether a message arrived."""

    def send(self, message: OutgoingMessage) -> None:
        """Send the message; returning means that the channel accepted it.

        Raises:
            SendFailed: NOTIFICATION.FAILED.v1, it certainly did not arrive.
            SendUnknown: NOTIFICATION.UNKNOWN.v1, it may have arrived.
        """

    def lookup(self, message: OutgoingMessage) -> str | None:
        """Return the channel's reference of this message, sent now or before; None when none arrived.

        Called on channels of capability `lookup` alone.

        Raises:
            SendUnknown: NOTIFICATION.UNKNOWN.v1, the channel gives no answer now.
        """


@dataclass(frozen=True, slots=True)
class FileChannel:
    """Writes `<outbox>/<tenant>/notifications/<message_id>.<send_no>.json`, durably."""

    outbox_root: Path
    name: str = "file"
    capability: Capability = Capability.LOOKUP

    def send(self, message: OutgoingMessage) -> None:
        """Write the message's file.

        Raises:
            SendFailed: NOTIFICATION.FAILED.v1 with the error's name.
        """
        try:
            write_whole(self._path(message, message.send_no), canonical_json(message.as_document()) + b"\n")
        except OSError as error:
            raise SendFailed(NOTIFICATION_FAILED, cause=type(error).__name__, errno=error.errno) from error

    def lookup(self, message: OutgoingMessage) -> str | None:
        """Return the newest file of this message, relative to the outbox, or None."""
        for send_no in range(message.send_no, 0, -1):
            path = self._path(message, send_no)
            if path.is_file():
                return path.relative_to(self.outbox_root).as_posix()
        return None

    def _path(self, message: OutgoingMessage, send_no: int) -> Path:
        folder = tenant_folder(self.outbox_root, message.tenant) / "notifications"
        return folder / f"{message.message_id}.{send_no}.json"


CERTAINLY_NOT = 75  # EX_TEMPFAIL of sysexits.h: try again, nothing was done.
REFERENCE_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class CommandChannel:
    """Runs `<command> send` with the message as JSON on standard input.

    Exit status 0 means accepted and 75 certainly not accepted; every other end, the time limit included,
    leaves it unknown. With capability `lookup`, `<command> lookup` prints a reference of the message,
    or nothing when it certainly never arrived, and ends with 0. RECEIPTS_MESSAGE_ID names the message
    to both. What the program writes to standard error stays out of the ledger.
    """

    command: Sequence[str]
    capability: Capability
    timeout_s: float = 30.0
    name: str = "command"

    def send(self, message: OutgoingMessage) -> None:
        """Pass the message to the program.

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
        """Return the program's reference of the message. Raises SendUnknown when it gives no answer."""
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
