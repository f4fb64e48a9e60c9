"""The embedded channel: each send is a file in the tenant's outbox folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.core.effect_protocols import Capability
from receipt_pipeline.core.reasons import NOTIFICATION_FAILED
from receipt_pipeline.effects.channels.channel import OutgoingMessage, SendFailed
from receipt_pipeline.effects.outbox_folder import tenant_folder, write_whole


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
