"""What an object store answers: frozen records without behaviour."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum


class PutKind(StrEnum):
    """Whether a put wrote the bytes or found them there."""

    STORED = "stored"
    PRESENT = "present"


@dataclass(frozen=True, slots=True)
class PutOutcome:
    """What a put did: digest in full form, size in bytes.

    `set_aside` is the key that other bytes, found under this one, were moved to; None as a rule.
    """

    kind: PutKind
    digest: str
    size_bytes: int
    set_aside: str | None = None


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """What was read from a stream; `put` is None when its digest was not the expected one."""

    digest: str
    size_bytes: int
    put: PutOutcome | None


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """Size in bytes and the store's own time of the last change: evidence, never a decision."""

    size_bytes: int
    modified_at: dt.datetime


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a listing."""

    key: str
    size_bytes: int
    modified_at: dt.datetime
