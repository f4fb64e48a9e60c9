"""What every object store promises: put if absent, durable, verified, never overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from receipt_pipeline.objects.keys import result_key as result_key
from receipt_pipeline.objects.keys import scan_key as scan_key
from receipt_pipeline.objects.local_store import LocalObjectStore as LocalObjectStore
from receipt_pipeline.objects.outcomes import CopyOutcome, ObjectEntry, ObjectStat, PutOutcome
from receipt_pipeline.objects.outcomes import PutKind as PutKind


class ObjectStore(Protocol):
    """Bytes by key. Keys are content addresses, so nothing is ever overwritten.

    Every call may raise ObjectFault: STORAGE.FULL.v1 or UPLOAD.FAILED.v1 when writing,
    OBJECT.UNREADABLE.v1 when the store itself cannot be read.
    """

    def put(self, key: str, data: bytes) -> PutOutcome:
        """Store bytes durably unless they are there; other bytes under the key are set aside."""

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
