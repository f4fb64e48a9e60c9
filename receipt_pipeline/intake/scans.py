"""Copy each scan once, confined to its folder."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from receipt_pipeline.chain.decode import sniff_kind
from receipt_pipeline.core.errors import InputRefused, ScanRejected, cause_of
from receipt_pipeline.core.reasons import (
    MANIFEST_TOO_LARGE,
    PATH_OUTSIDE,
    SCAN_CHANGING,
    SCAN_DIGEST,
    SCAN_MEDIA_TYPE,
    SCAN_MISSING,
    SCAN_SIZE,
    SCAN_TOO_LARGE,
    SCAN_UNREADABLE,
)
from receipt_pipeline.core.request import ItemRequest, JobRequest
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.manifest import ListLoader
from receipt_pipeline.intake.strict_json import DOCUMENT_SIZE_BYTES_MAX
from receipt_pipeline.ledger.jobs.accept import StoredItem
from receipt_pipeline.ledger.submissions import remember_stored
from receipt_pipeline.objects.store import scan_key

DEPTH_MAX = 20
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a named pipe would block forever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def confined_parts(uri: str, *, pointer: str) -> tuple[str, ...]:
    """Return the steps of a relative path, evaluated by its text alone.

    Raises:
        InputRefused: PATH.OUTSIDE.v1 for `..`, absolute paths, drive letters, schemes, backslashes:
            the same answer whether or not anything stands there.
    """
    parts = [step for step in uri.split("/") if step != "."]
    suspicious = (
        not parts
        or len(parts) > DEPTH_MAX
        or "\\" in uri
        or _SCHEME.match(uri) is not None
        or any(step in ("", "..") or "\0" in step for step in parts)
    )
    if suspicious:
        raise outside(pointer)
    return tuple(parts)


def open_confined(folder: Path, uri: str, *, pointer: str) -> int:
    """Open a file below the folder for reading and return its descriptor.

    Each step is opened from the one before without following links, so that a folder exchanged
    for a link after the check leads nowhere.

    Raises:
        InputRefused: PATH.OUTSIDE.v1 for any symbolic link on the way, SCAN.MISSING.v1, or
            SCAN.UNREADABLE.v1 for anything but a plain file or may not be read.
    """
    parts = confined_parts(uri, pointer=pointer)
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(error, pointer) from error
    try:
        for step in parts[:-1]:
            deeper = _open_step(at, step, _FOLDER, pointer)
            os.close(at)
            at = deeper
        return _plain_file(_open_step(at, parts[-1], _FILE, pointer), pointer)
    finally:
        os.close(at)


def outside(pointer: str) -> InputRefused:
    """Return the one refusal for every path that leads out; it says nothing of the target."""
    return InputRefused(PATH_OUTSIDE, pointer=pointer)


def _open_step(at: int, step: str, flags: int, pointer: str) -> int:
    try:
        return os.open(step, flags, dir_fd=at)
    except OSError as error:
        # A link opened as a folder answers ENOTDIR on some systems and ELOOP on others.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(at, step):
            raise outside(pointer) from None
        raise _refusal(error, pointer) from error


def _is_link(at: int, step: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(step, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _plain_file(handle: int, pointer: str) -> int:
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise InputRefused(SCAN_UNREADABLE, pointer=pointer, cause="no plain file")


def _refusal(error: OSError, pointer: str) -> InputRefused:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return InputRefused(SCAN_MISSING, pointer=pointer)
    return InputRefused(SCAN_UNREADABLE, pointer=pointer, cause=cause_of(error))


READ_CHUNK_BYTES = 1 << 20
SAVE_EVERY_SCANS = 256
MEDIA_TYPES = {
    "jpeg": "image/jpeg",
    "png": "image/png",
    "tiff": "image/tiff",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "pdf": "application/pdf",
}
SAME_KIND = {"image/jpg": "image/jpeg", "image/heif": "image/heic", "application/x-pdf": "application/pdf"}


class PassEnded(Exception):
    """The time of this pass is up. Not a failure: the next pass continues with what was stored."""


class ScanSource(Protocol):
    """Where the scans of one submission come from."""

    def confine(self, item: ItemRequest, pointer: str) -> None:
        """Refuse a path that points outside, by its text alone; nothing is opened."""

    def open(self, item: ItemRequest, pointer: str) -> int:
        """Open a scan for reading and return its descriptor. Raises InputRefused."""


@dataclass(frozen=True, slots=True)
class FolderScans:
    """Scans in the folder of their manifest, or below it."""

    folder: Path

    def confine(self, item: ItemRequest, pointer: str) -> None:
        """Refuse a path that points outside of the folder."""
        confined_parts(item.uri, pointer=pointer)

    def open(self, item: ItemRequest, pointer: str) -> int:
        """Open one scan below the folder."""
        return open_confined(self.folder, item.uri, pointer=pointer)


def item_pointer(ordinal: int) -> str:
    """Return the JSON pointer of an item's path in a `receipt-job/v1` document."""
    return f"/items/{ordinal}/uri"


def never_stop() -> bool:
    """Return that there is no time limit."""
    return False


@dataclass(slots=True)
class CopyProgress:
    """Which scans of one delivery are stored; kept between passes where there is a submission.

    Attributes:
        known: hex digest to (size in bytes, media type) of the scans that are already stored.
        pointer_of: from the position of an item to the JSON pointer of its path.
    """

    submission_id: str | None = None
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    time_is_up: Callable[[], bool] = never_stop
    pointer_of: Callable[[int], str] = item_pointer
    unsaved: int = 0
    copied: int = 0

    def remember(self, intake: IntakeContext, sha256: str, size_bytes: int, media_type: str) -> None:
        """Remember one stored scan; every 256th time, in the ledger."""
        self.known[sha256] = (size_bytes, media_type)
        self.unsaved += 1
        self.copied += 1
        if self.unsaved >= SAVE_EVERY_SCANS:
            self._save(intake)

    def pause_if_due(self, intake: IntakeContext) -> None:
        """Save and raise PassEnded when the time of this pass is up, but never before one scan is copied."""
        if self.submission_id is not None and self.copied and self.time_is_up():
            self._save(intake)
            raise PassEnded

    def _save(self, intake: IntakeContext) -> None:
        if self.submission_id is None or not self.unsaved:
            return
        with intake.ledger.transaction() as tx:
            remember_stored(tx, self.submission_id, self.known)
        self.unsaved = 0


def copy_scans(
    intake: IntakeContext, request: JobRequest, *, tenant: str, scans: ScanSource, progress: CopyProgress
) -> tuple[StoredItem, ...]:
    """Verify and store every scan of a request, in order.

    Raises:
        InputRefused: for the first scan that is missing, unreadable, changing or different from the request.
        ObjectFault: STORAGE.FULL.v1 and the like; nothing was accepted.
        PassEnded: see CopyProgress.
    """
    stored = []
    for ordinal, item in enumerate(request.items):
        known = progress.known.get(item.sha256)
        if known is None or intake.objects.stat(scan_key(tenant, item.sha256)) is None:
            progress.pause_if_due(intake)
            known = _copy_one(intake, item, tenant=tenant, scans=scans, pointer=progress.pointer_of(ordinal))
            progress.remember(intake, item.sha256, *known)
        stored.append(
            StoredItem(
                item_id=item.item_id,
                id_explicit=item.id_explicit,
                label=item.label,
                sha256=f"sha256:{item.sha256}",
                size_bytes=known[0],
                media_type=known[1],
            )
        )
    return tuple(stored)


def read_document(scans: ScanSource, uri: str, *, pointer: str) -> bytes:
    """Read a manifest, or a list that one refers to, from the source of its scans.

    Raises:
        InputRefused: PATH.OUTSIDE.v1, SCAN.MISSING.v1, SCAN.UNREADABLE.v1 or MANIFEST.TOO_LARGE.v1.
    """
    document = ItemRequest(item_id="", uri=uri, sha256="")
    scans.confine(document, pointer)
    handle = scans.open(document, pointer)
    try:
        size_bytes = os.fstat(handle).st_size
        if size_bytes > DOCUMENT_SIZE_BYTES_MAX:
            limit = DOCUMENT_SIZE_BYTES_MAX
            raise InputRefused(MANIFEST_TOO_LARGE, pointer=pointer, size_bytes=size_bytes, size_bytes_max=limit)
        reading = _ScanCopy(handle, document, pointer=pointer, size_bytes_max=DOCUMENT_SIZE_BYTES_MAX)
        return b"".join(reading.chunks())
    finally:
        os.close(handle)


def read_one_scan(path: Path, *, size_bytes_max: int) -> bytes:
    """Read one scan that a person names, within the usual limits.

    Raises:
        InputRefused: SCAN.MISSING.v1, SCAN.TOO_LARGE.v1, or SCAN.UNREADABLE.v1 for anything but a plain file.
    """
    target = Path(os.path.realpath(path))
    named = ItemRequest(item_id="", uri=target.name, sha256="")
    handle = FolderScans(target.parent).open(named, path.name)
    try:
        reading = _ScanCopy(handle, named, pointer=path.name, size_bytes_max=size_bytes_max)
        return b"".join(reading.chunks())
    finally:
        os.close(handle)


def list_loader(scans: ScanSource) -> ListLoader:
    """Return a function that reads a list of items and checks its digest."""

    def load(uri: str, sha256: str, pointer: str) -> bytes:
        data = read_document(scans, uri, pointer=pointer)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise InputRefused(SCAN_DIGEST, pointer=pointer, named="list of items", size_bytes=len(data))
        return data

    return load


def _copy_one(
    intake: IntakeContext, item: ItemRequest, *, tenant: str, scans: ScanSource, pointer: str
) -> tuple[int, str]:
    """Copy one scan; returns its size in bytes and the media type of its bytes, "" if unknown."""
    handle = scans.open(item, pointer)
    try:
        before = os.fstat(handle)
        if item.size_bytes is not None and before.st_size != item.size_bytes:
            raise InputRefused(SCAN_SIZE, pointer=pointer, size_bytes=before.st_size, given=item.size_bytes)
        reading = _ScanCopy(handle, item, pointer=pointer, size_bytes_max=intake.scan_size_bytes_max)
        outcome = intake.objects.copy_in(
            scan_key(tenant, item.sha256), reading.chunks(), expected_digest=f"sha256:{item.sha256}"
        )
        after = os.fstat(handle)
    finally:
        os.close(handle)
    if outcome.put is None:
        moved = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)
        reason = SCAN_CHANGING if moved else SCAN_DIGEST
        raise InputRefused(reason, pointer=pointer, size_bytes=outcome.size_bytes)
    return outcome.size_bytes, reading.media_type


def hex_digest_of(handle: int) -> str:
    """Return the hex digest of an open file from its position to its end. Raises OSError."""
    with open(handle, "rb", buffering=0, closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _ScanCopy:
    """One open scan, read in chunks within its limits; finds its media type."""

    def __init__(self, handle: int, item: ItemRequest, *, pointer: str, size_bytes_max: int) -> None:
        self._handle = handle
        self._item = item
        self._pointer = pointer
        self._size_bytes_max = size_bytes_max
        self.media_type = ""

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes. Raises InputRefused for too many, unreadable, or of another media type."""
        size_bytes = 0
        while chunk := self._read():
            if size_bytes == 0:
                self.media_type = self._kind(chunk)
            size_bytes += len(chunk)
            if size_bytes > self._size_bytes_max:
                limit = self._size_bytes_max
                raise InputRefused(SCAN_TOO_LARGE, pointer=self._pointer, size_bytes_max=limit)
            yield chunk

    def _read(self) -> bytes:
        try:
            return os.read(self._handle, READ_CHUNK_BYTES)
        except OSError as error:
            raise InputRefused(SCAN_UNREADABLE, pointer=self._pointer, cause=cause_of(error)) from error

    def _kind(self, head: bytes) -> str:
        """Return the media type of the bytes; only a contradiction is refused.

        Bytes of an unknown kind are accepted here and rejected in processing.
        """
        try:
            found = MEDIA_TYPES[sniff_kind(head)]
        except ScanRejected:
            return ""
        stated = self._item.media_type
        if stated is not None and SAME_KIND.get(stated, stated) != found:
            raise InputRefused(SCAN_MEDIA_TYPE, pointer=self._pointer, found=found)
        return found
