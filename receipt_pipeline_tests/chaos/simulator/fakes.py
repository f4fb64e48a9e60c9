"""Fakes around the services of a simulation: clock, object store and channel, in memory and faulty."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.effects import Capability
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.reasons import (
    NOTIFICATION_FAILED,
    NOTIFICATION_UNKNOWN,
    OBJECT_UNREADABLE,
    RESULT_MISSING,
    UPLOAD_FAILED,
)
from receipt_pipeline.effects.channels import OutgoingMessage, SendFailed, SendUnknown
from receipt_pipeline.objects.store import (
    CopyOutcome,
    ObjectEntry,
    ObjectStat,
    PutKind,
    PutOutcome,
    checked_key,
    checked_prefix,
    set_aside_key,
)
from receipt_pipeline_tests.chaos.simulator.faults import Fault, Place
from receipt_pipeline_tests.chaos.simulator.scheduler import SimulatedCrash

START = dt.datetime(2026, 11, 28, 8, 0, tzinfo=dt.UTC)
# Called with what is about to happen outside the ledger; returns the fault that meets it.
Outside = Callable[[Place, str], Fault | None]

# Faults that damage an object while it is written; a correct object is never overwritten.
DAMAGING = frozenset({Fault.PARTIAL_WRITE, Fault.PARTIAL_WRITE_CRASH, Fault.GARBLED})


class VirtualClock:
    """A clock that moves only when the simulation moves it, backwards too."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> dt.datetime:
        """Return the simulated aware UTC time."""
        return self._now

    @property
    def seconds(self) -> float:
        """Return the simulated seconds since the start."""
        return (self._now - START).total_seconds()

    def advance(self, seconds: float) -> None:
        """Move by a number of seconds, backward when negative."""
        self._now += dt.timedelta(seconds=seconds)


@dataclass(slots=True)
class MemoryObjects:
    """An object store that keeps the promises of `objects.store` as long as the faults let it.

    Attributes:
        stored: bytes and time of change by key.
        changes_so_far: the number of the ledger's newest change.
        right_since: per key that number when the right bytes were put there first.
        garbled: keys under which other bytes were stored although the put was answered.
        corrupted: keys whose bytes were lost or altered after they were stored right, and after which change.
        acting: who works at this moment.
        found_right: who has looked a key up and found the right bytes there.
    """

    clock: VirtualClock
    outside: Outside
    changes_so_far: Callable[[], int]
    acting: Callable[[], str]
    stored: dict[str, tuple[bytes, dt.datetime]] = field(default_factory=dict)
    right_since: dict[str, int] = field(default_factory=dict)
    garbled: set[str] = field(default_factory=set)
    corrupted: dict[str, int] = field(default_factory=dict)
    found_right: set[tuple[str, str]] = field(default_factory=set)

    def put(self, key: str, data: bytes) -> PutOutcome:
        """Store bytes unless they are there; other bytes under the key are set aside."""
        checked_key(key)
        fault = self.outside(Place.PUT, f"put {key}")
        if fault is Fault.REFUSED:
            raise ObjectFault(UPLOAD_FAILED, key=key)
        known = self.stored.get(key)
        if known is not None and known[0] == data:
            fault = Fault.ANSWER_LOST if fault in DAMAGING else fault
        if fault in (Fault.PARTIAL_WRITE, Fault.PARTIAL_WRITE_CRASH):
            self._keep(key, data[: len(data) // 2])
            if fault is Fault.PARTIAL_WRITE_CRASH:
                raise SimulatedCrash
            raise ObjectFault(UPLOAD_FAILED, key=key)
        if fault is Fault.GARBLED:
            self.garbled.add(key)
            self._keep(key, data[:-1] + b" ")
            return PutOutcome(PutKind.STORED, digest_of_bytes(data), len(data))
        outcome = self._store(key, data)
        self.right_since.setdefault(key, self.changes_so_far())
        if fault is Fault.ANSWER_LOST:
            raise ObjectFault(UPLOAD_FAILED, key=key)
        return outcome

    def copy_in(self, key: str, chunks: Iterable[bytes], *, expected_digest: str) -> CopyOutcome:
        """Store a stream, but only when it hashes to the full digest expected."""
        data = b"".join(chunks)
        digest = digest_of_bytes(data)
        if digest != expected_digest:
            return CopyOutcome(digest, len(data), None)
        return CopyOutcome(digest, len(data), self.put(key, data))

    def read(self, key: str) -> bytes:
        """Return the bytes."""
        self._look(key)
        found = self.stored.get(key)
        if found is None:
            raise ObjectFault(RESULT_MISSING, key=key)
        return found[0]

    def stat(self, key: str) -> ObjectStat | None:
        """Return size and time of change, None when there is no such object."""
        found = self.stored.get(key)
        return None if found is None else ObjectStat(len(found[0]), found[1])

    def digest(self, key: str) -> tuple[str, int] | None:
        """Return full digest and size of the stored bytes, None when there is no such object."""
        self._look(key)
        found = self.stored.get(key)
        if key in self.right_since and key not in self.corrupted:
            self.found_right.add((self.acting(), key))
        return None if found is None else (digest_of_bytes(found[0]), len(found[0]))

    def listing(self, prefix: str = "") -> Iterator[ObjectEntry]:
        """Yield the objects whose keys begin with a folder-like prefix, ordered by key."""
        checked_prefix(prefix)
        for key in sorted(self.stored):
            if key.startswith(prefix):
                data, changed = self.stored[key]
                yield ObjectEntry(key, len(data), changed)

    def delete(self, key: str) -> bool:
        """Remove an object; False when there was none."""
        self.outside(Place.LOOK, f"delete {key}")
        return self.stored.pop(key, None) is not None

    def corrupt(self, key: str, *, lost: bool) -> None:
        """Lose or alter stored bytes, as an accident would."""
        data, changed = self.stored.pop(key)
        self.corrupted.setdefault(key, self.changes_so_far())
        if not lost:
            self.stored[key] = (b"?" + data[1:], changed)

    def _look(self, key: str) -> None:
        if self.outside(Place.LOOK, f"look up {key}") is Fault.UNREADABLE:
            raise ObjectFault(OBJECT_UNREADABLE, key=key)

    def _store(self, key: str, data: bytes) -> PutOutcome:
        digest, known = digest_of_bytes(data), self.stored.get(key)
        if known is not None and known[0] == data:
            return PutOutcome(PutKind.PRESENT, digest, len(data))
        aside = None
        if known is not None:
            aside = set_aside_key(key, digest_of_bytes(known[0]))
            self._keep(aside, known[0])
        self._keep(key, data)
        return PutOutcome(PutKind.STORED, digest, len(data), aside)

    def _keep(self, key: str, data: bytes) -> None:
        self.stored[key] = (data, self.clock.now())


@dataclass(slots=True)
class MemoryChannel:
    """A notification channel: what arrived, in order, doubled ones twice."""

    outside: Outside
    arrived: list[OutgoingMessage] = field(default_factory=list)
    name: str = "memory"
    capability: Capability = Capability.LOOKUP

    def send(self, message: OutgoingMessage) -> None:
        """Let the message arrive, unless the faults lose, refuse or double it."""
        fault = self.outside(Place.SEND, f"send {message.message_id}")
        if fault is Fault.REFUSED:
            raise SendFailed(NOTIFICATION_FAILED, cause="simulated")
        if fault is Fault.LOST:
            return
        self.arrived.append(message)
        if fault is Fault.DOUBLED:
            self.arrived.append(message)
        if fault is Fault.ANSWER_LOST:
            raise SendUnknown(NOTIFICATION_UNKNOWN, cause="simulated")

    def lookup(self, message: OutgoingMessage) -> str | None:
        """Return the place of this message among the arrived, None when none arrived."""
        if self.outside(Place.LOOK, f"look up {message.message_id}") is Fault.UNREADABLE:
            raise SendUnknown(NOTIFICATION_UNKNOWN, cause="simulated")
        for place, known in enumerate(self.arrived):
            if known.message_id == message.message_id:
                return f"memory:{place}"
        return None
