"""The files of the inbox and their kinds."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath

from receipt_pipeline.intake.manifest import MANIFEST_SUFFIXES

LOOSE = "loose"
ACCEPTED = "accepted"
REFUSED = "refused"
# Endless folders of one tenant must not delay the deliveries of others.
FOLDERS_DEEP_MAX = 64
TENANT_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class FileKind(StrEnum):
    """The kind of a dropped file, from its place and name."""

    MANIFEST = "manifest"
    LOOSE_SCAN = "loose_scan"
    PICTURE = "picture"
    IGNORED = "ignored"
    MISPLACED = "misplaced"


@dataclass(frozen=True, slots=True)
class DroppedFile:
    """One file of the inbox.

    Attributes:
        place: its path below the inbox, beginning with the tenant; an address, never an identity.
        tenant: "" for a file outside of all tenant folders.
        mtime_ns: the file system's own time, compared only with itself.
    """

    place: str
    tenant: str
    kind: FileKind
    size_bytes: int
    mtime_ns: int

    @property
    def name(self) -> str:
        """Return the name without folders."""
        return PurePosixPath(self.place).name

    @property
    def suffix(self) -> str:
        """Return the suffix, which names the format of a manifest."""
        return PurePosixPath(self.place).suffix.lower()


@dataclass(slots=True)
class InboxListing:
    """All files of the inbox at one moment."""

    tenants: set[str] = field(default_factory=set)
    files: list[DroppedFile] = field(default_factory=list)

    def of_kind(self, *kinds: FileKind) -> list[DroppedFile]:
        """Return the files of some kinds, in the order of their places."""
        return [file for file in self.files if file.kind in kinds]


def list_inbox(inbox: Path) -> InboxListing:
    """Return the files of the inbox, ordered by place.

    Links are never followed. The folders `accepted` and `refused` and written refusals are left out.
    A folder deeper than `FOLDERS_DEEP_MAX` is listed as ignored and not read.
    """
    listing = InboxListing()
    for entry in _entries(inbox):
        if not entry.is_dir(follow_symlinks=False):
            if not is_temporary(entry.name) and not entry.name.endswith(REFUSAL_SUFFIX):
                listing.files.extend(_file(entry, entry.name, "", FileKind.MISPLACED))
        elif TENANT_FORM.fullmatch(entry.name):
            listing.tenants.add(entry.name)
            listing.files.extend(_walk(Path(entry.path), entry.name, tenant=entry.name, loose=False))
        elif not is_temporary(entry.name):
            listing.files.append(DroppedFile(entry.name, "", FileKind.MISPLACED, 0, 0))
    return listing


def _walk(folder: Path, place: str, *, tenant: str, loose: bool) -> Iterator[DroppedFile]:
    for entry in _entries(folder):
        below = f"{place}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if below.count("/") > FOLDERS_DEEP_MAX:
                yield from _file(entry, below, tenant, FileKind.IGNORED)
                continue
            top = place == tenant
            if top and entry.name in (ACCEPTED, REFUSED):
                continue
            if not is_temporary(entry.name):
                is_loose = loose or (top and entry.name == LOOSE)
                yield from _walk(Path(entry.path), below, tenant=tenant, loose=is_loose)
        elif not entry.name.endswith(REFUSAL_SUFFIX):
            yield from _file(entry, below, tenant, _kind(entry, loose=loose))


def _kind(entry: os.DirEntry[str], *, loose: bool) -> FileKind:
    if is_temporary(entry.name) or not entry.is_file(follow_symlinks=False):
        return FileKind.IGNORED
    if PurePosixPath(entry.name).suffix.lower() in MANIFEST_SUFFIXES:
        return FileKind.MISPLACED if loose else FileKind.MANIFEST
    return FileKind.LOOSE_SCAN if loose else FileKind.PICTURE


def _file(entry: os.DirEntry[str], place: str, tenant: str, kind: FileKind) -> Iterator[DroppedFile]:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # Gone since the folder was read.
        return
    size_bytes = found.st_size if stat.S_ISREG(found.st_mode) else 0
    yield DroppedFile(place, tenant, kind, size_bytes, found.st_mtime_ns)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            # A name that is not text cannot be stored or answered.
            entries = [entry for entry in found if _is_text(entry.name)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return []
    return sorted(entries, key=lambda entry: entry.name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


TEMPORARY_PREFIXES = (".", "~")
TEMPORARY_SUFFIXES = (
    "~",
    ".part",
    ".partial",
    ".filepart",
    ".tmp",
    ".temp",
    ".crdownload",
    ".download",
    ".opdownload",
    ".swp",
    ".swx",
    ".lock",
    ".lck",
    ".bak",
    ".!ut",
)
SIDE_FILES = frozenset({"thumbs.db", "desktop.ini", "ehthumbs.db", "icon\r", "$recycle.bin", "__macosx"})
REFUSAL_SUFFIX = ".refusal.json"


def is_temporary(name: str) -> bool:
    """Return whether uploads, editors or desktops create files with this name."""
    folded = name.lower()
    return folded.startswith(TEMPORARY_PREFIXES) or folded.endswith(TEMPORARY_SUFFIXES) or folded in SIDE_FILES
