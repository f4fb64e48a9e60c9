"""A real object store whose uploads and look-ups fail when a test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.reasons import OBJECT_UNREADABLE, UPLOAD_FAILED
from receipt_pipeline.objects.store import CopyOutcome, ObjectEntry, ObjectStat, ObjectStore, PutKind, PutOutcome


class PutFault(StrEnum):
    """What goes wrong with one upload."""

    REFUSED = "refused"  # An error, and nothing is stored.
    ANSWER_LOST = "answer_lost"  # An error, although the bytes are stored.
    GARBLED = "garbled"  # No error, but other bytes are stored.


@dataclass(slots=True)
class FailingObjects:
    """Passes everything to the store inside, except for the next faults.

    Attributes:
        put_faults: one per coming upload, in order; None lets one pass.
        blind_lookups: how many of the coming look-ups give no answer.
        unreadable: keys whose bytes cannot be read at present.
        puts: the keys of all uploads so far, failed ones included.
    """

    inner: ObjectStore
    put_faults: deque[PutFault | None] = field(default_factory=deque)
    blind_lookups: int = 0
    unreadable: set[str] = field(default_factory=set)
    puts: list[str] = field(default_factory=list)

    def put(self, key: str, data: bytes) -> PutOutcome:
        self.puts.append(key)
        fault = self.put_faults.popleft() if self.put_faults else None
        if fault is PutFault.REFUSED:
            raise ObjectFault(UPLOAD_FAILED, key=key)
        if fault is PutFault.GARBLED:
            self.inner.put(key, data[:-1] + b" ")
            return PutOutcome(PutKind.STORED, "", len(data))
        outcome = self.inner.put(key, data)
        if fault is PutFault.ANSWER_LOST:
            raise ObjectFault(UPLOAD_FAILED, key=key)
        return outcome

    def copy_in(self, key: str, chunks: Iterable[bytes], *, expected_digest: str) -> CopyOutcome:
        return self.inner.copy_in(key, chunks, expected_digest=expected_digest)

    def read(self, key: str) -> bytes:
        if key in self.unreadable:
            raise ObjectFault(OBJECT_UNREADABLE, key=key)
        return self.inner.read(key)

    def stat(self, key: str) -> ObjectStat | None:
        return self.inner.stat(key)

    def digest(self, key: str) -> tuple[str, int] | None:
        if self.blind_lookups > 0:
            self.blind_lookups -= 1
            raise ObjectFault(OBJECT_UNREADABLE, key=key)
        return self.inner.digest(key)

    def listing(self, prefix: str = "") -> Iterator[ObjectEntry]:
        return self.inner.listing(prefix)

    def delete(self, key: str) -> bool:
        return self.inner.delete(key)
