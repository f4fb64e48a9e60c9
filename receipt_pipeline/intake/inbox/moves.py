"""Move and acknowledge processed files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from receipt_pipeline.core.errors import InputRefused, ObjectFault, is_out_of_space
from receipt_pipeline.core.reasons import SCAN_MISSING, STORAGE_FULL
from receipt_pipeline.core.request import ItemRequest, JobRequest
from receipt_pipeline.durable_files import write_whole
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox.listing import ACCEPTED, REFUSAL_SUFFIX, REFUSED, DroppedFile
from receipt_pipeline.intake.manifest import Batch
from receipt_pipeline.intake.scans import confined_parts, hex_digest_of, open_confined
from receipt_pipeline.intake.submission import Delivered
from receipt_pipeline.ledger.submissions import RowOutcome, SubmissionState

DIGEST_DIGITS = 8
NAME_BYTES_MAX = 180
SAME_NAME_MAX = 100
ANSWERED_BY_JOB = frozenset({RowOutcome.ACCEPTED, RowOutcome.JOINED})


@dataclass(frozen=True, slots=True)
class InboxScans:
    """Scans next to a dropped manifest, or moved when an earlier manifest was accepted.

    The name of a moved scan contains the beginning of its digest; its bytes are verified as usual.
    """

    inbox: Path
    tenant: str
    below: str

    @property
    def folder(self) -> Path:
        """Return the manifest's own folder."""
        return self.inbox / self.tenant / self.below

    def confine(self, item: ItemRequest, pointer: str) -> None:
        """Refuse a path that points outside of the manifest's folder."""
        confined_parts(item.uri, pointer=pointer)

    def open(self, item: ItemRequest, pointer: str) -> int:
        """Open one scan below the manifest's folder, or the one that was moved from this place.

        If both exist, the digest decides: the file may belong to another manifest.
        """
        moved = self._open_moved(item, pointer) if item.sha256 else None
        try:
            here = open_confined(self.folder, item.uri, pointer=pointer)
        except InputRefused as refusal:
            if moved is not None and refusal.reason is SCAN_MISSING:
                return moved
            if moved is not None:
                os.close(moved)
            raise
        if moved is None:
            return here
        chosen, other = (here, moved) if _digest_of(here) == item.sha256 else (moved, here)
        os.close(other)
        return chosen

    def _open_moved(self, item: ItemRequest, pointer: str) -> int | None:
        moved = PurePosixPath(self.below, marked(item.uri, item.sha256))
        try:
            return open_confined(self.inbox / self.tenant / ACCEPTED, str(moved), pointer=pointer)
        except InputRefused:
            return None


def scans_of(intake: IntakeContext, file: DroppedFile) -> InboxScans:
    """Return the source of the scans of a dropped file."""
    _, _, inside = file.place.partition("/")
    return InboxScans(intake.inbox, file.tenant, inside.rpartition("/")[0])


def marked(path: str, sha256: str) -> str:
    """Return a path with the beginning of a digest, if there is one, before its suffix."""
    whole = PurePosixPath(path)
    stem = whole.stem.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    return str(whole.with_name(stem + _mark(sha256) + whole.suffix))


def _mark(digest: str) -> str:
    return f".{digest.removeprefix('sha256:')[:DIGEST_DIGITS]}" if digest else ""


def acknowledge(intake: IntakeContext, file: DroppedFile, delivered: Delivered) -> None:
    """Write the acknowledgment into the tenant's outbox; writing it again gives the same file."""
    stem = file.name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    path = intake.outbox(file.tenant) / f"{stem}{_mark(delivered.document_digest)}.ack.json"
    write_document(path, delivered.as_document(brief=len(delivered.lines) > 1))


def move_delivery(intake: IntakeContext, file: DroppedFile, delivered: Delivered) -> bool:
    """Move a handled file into `accepted/` or `refused/`; False when it could not be moved.

    A newer file with the same name is not moved.
    """
    taken = delivered.state in (SubmissionState.ACCEPTED, SubmissionState.JOINED)
    root = intake.inbox / file.tenant / (ACCEPTED if taken else REFUSED)
    _, _, inside = file.place.partition("/")
    digest = delivered.document_digest
    target = _move(intake.inbox / file.place, root / marked(inside, digest), digest=digest)
    if target is not None and not taken:
        write_document(target.with_name(target.name + REFUSAL_SUFFIX), delivered.as_document())
    return target is not None


def move_scans(intake: IntakeContext, file: DroppedFile, parsed: JobRequest | Batch, delivered: Delivered) -> None:
    """Move the scans of accepted and joined rows; those of refused rows stay for a corrected manifest.

    Only the accepted bytes are moved: the file may have been replaced by another manifest's scan.
    """
    scans = scans_of(intake, file)
    for item in _accepted_items(parsed, delivered):
        source = scans.folder.joinpath(*confined_parts(item.uri, pointer=""))
        target = intake.inbox / file.tenant / ACCEPTED / scans.below / marked(item.uri, item.sha256)
        if not _contains_link(source, below=scans.folder):
            _move(source, target, digest=item.sha256)


def _accepted_items(parsed: JobRequest | Batch, delivered: Delivered) -> list[ItemRequest]:
    taken = {line.row_no for line in delivered.lines if line.outcome in ANSWERED_BY_JOB}
    if isinstance(parsed, JobRequest):
        return list(parsed.items) if taken else []
    return [row.request.items[0] for row in parsed.rows if row.request is not None and row.row_no in taken]


def _contains_link(path: Path, *, below: Path) -> bool:
    """Return whether the path contains a link; the target of a link is never moved."""
    steps = [path, *path.parents]
    return any(step.is_symlink() for step in steps[: steps.index(below)])


def _move(source: Path, target: Path, *, digest: str) -> Path | None:
    """Move a file without overwriting another; returns where it is now, None when it stays.

    A file that cannot be moved is remembered by its row and not processed twice. A file with another
    digest stays; an empty digest matches every file.
    """
    try:
        if not source.is_file() or (digest and not _has_digest(source, digest)):
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, SAME_NAME_MAX):
            free = target if number == 1 else target.with_name(f"{target.stem}.{number}{target.suffix}")
            if not free.exists():
                os.rename(source, free)
                return free
    except OSError:
        return None
    return None


def _has_digest(path: Path, digest: str) -> bool:
    """Return whether a file has a digest, with or without `sha256:`."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _digest_of(handle) == digest.removeprefix("sha256:")
    finally:
        os.close(handle)


def _digest_of(handle: int) -> str:
    """Return the hex digest of an open file, and rewind it; "" when it cannot be read."""
    try:
        digest = hex_digest_of(handle)
        os.lseek(handle, 0, os.SEEK_SET)
    except OSError:
        return ""
    return digest


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document for people and programs; a reader sees the old one or the new one.

    Raises:
        ObjectFault: STORAGE.FULL.v1; the old document is unchanged.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        if is_out_of_space(error):
            raise ObjectFault(STORAGE_FULL, file=path.name) from error
        raise
