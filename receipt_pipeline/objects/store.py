"""The object store protocol, its outcomes and key names."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class PutKind(StrEnum):
    """Whether a put wrote the bytes or found them already stored."""

    STORED = "stored"
    PRESENT = "present"


@dataclass(frozen=True, slots=True)
class PutOutcome:
    """What a put did: digest in full form, size in bytes.

    `set_aside` is the key to which different bytes under this key were moved, None in the normal case.
    """

    kind: PutKind
    digest: str
    size_bytes: int
    set_aside: str | None = None


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """What was read from a stream; `put` is None when the digest was not the expected one."""

    digest: str
    size_bytes: int
    put: PutOutcome | None


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """Size in bytes and time of the last change by the store's clock; it decides nothing."""

    size_bytes: int
    modified_at: dt.datetime


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a listing."""

    key: str
    size_bytes: int
    modified_at: dt.datetime


SCANS_PREFIX = "scans/"
RESULTS_PREFIX = "results/"
SET_ASIDE_PREFIX = "set-aside/"
KEY_LENGTH_MAX = 400

# No part begins with a dot, so a key is never a parent folder or a temporary file.
_KEY = re.compile(r"[a-z][a-z-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+")
_PREFIX = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)*")


def scan_key(tenant: str, sha256: str) -> str:
    """Return the key of a scan: `scans/<tenant>/<hex>`; the digest with or without `sha256:`."""
    return checked_key(f"{SCANS_PREFIX}{tenant}/{sha256.removeprefix('sha256:')}")


def result_key(job_id: str, lease_epoch: int, digest: str) -> str:
    """Return the key of one attempt's result: `results/<job_id>/<epoch>-<hex>`."""
    return checked_key(f"{RESULTS_PREFIX}{job_id}/{lease_epoch}-{digest.removeprefix('sha256:')}")


def set_aside_key(key: str, digest: str) -> str:
    """Return the key for bytes that were found under a key they do not belong to."""
    return f"{SET_ASIDE_PREFIX}{key}/{digest.removeprefix('sha256:')}"


def checked_key(key: str) -> str:
    """Return the key itself. Raises ValueError for any other text, which could point elsewhere."""
    if len(key) > KEY_LENGTH_MAX or _KEY.fullmatch(key) is None:
        raise ValueError(f"not an object key: {key[:80]!r}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return a folder-like prefix, empty or ending in `/`. Raises ValueError otherwise."""
    if _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"not a prefix of object keys: {prefix[:80]!r}")
    return prefix


class ObjectStore(Protocol):
    """Bytes by key. Keys are content addresses, so nothing is ever overwritten.

    Every call may raise ObjectFault: STORAGE.FULL.v1 or UPLOAD.FAILED.v1 when writing,
    OBJECT.UNREADABLE.v1 when the store itself cannot be read.
    """

    def put(self, key: str, data: bytes) -> PutOutcome:
        """Store bytes durably unless they are already stored; other bytes under the key are set aside."""

    def copy_in(self, key: str, chunks: Iterable[bytes], *, expected_digest: str) -> CopyOutcome:
        """Store a stream durably, but only when it hashes to the full digest expected."""

    def read(self, key: str) -> bytes:
        """Return the bytes. Raises ObjectFault RESULT.MISSING.v1 when there are none."""

    def stat(self, key: str) -> ObjectStat | None:
        """Return size and time of change, None when there is no such object."""

    def digest(self, key: str) -> tuple[str, int] | None:
        """Return full digest and size of the stored bytes, None when there is no such object."""

    def listing(self, prefix: str) -> Iterator[ObjectEntry]:
        """Yield the objects whose keys begin with a folder-like prefix, ordered by key."""

    def delete(self, key: str) -> bool:
        """Remove an object durably; False when there was none."""
