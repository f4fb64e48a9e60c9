"""Object records, holds and unreferenced scans."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import delete, exists, select

from receipt_pipeline.core.effects import EffectKind
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.reasons import SCAN_RETIRED
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import RECONCILER, RESOLVED, InvestigationKind, plain_subject
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.effects import (
    effects,
    investigations,
    object_checks,
    object_refs,
    quarantine,
    tombstones,
)
from receipt_pipeline.ledger.schema.jobs import jobs, refused_writes
from receipt_pipeline.ledger.schema.types import UtcMicros

KEYS_BATCH_MAX = 400
RESULTS_PREFIX = "results/"
REJECTED_PREFIX = "set-aside/refused/"
_KEYS: sa.BindParameter[Any] = sa.bindparam("keys", expanding=True)


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    listed = sorted(set(keys))
    for start in range(0, len(listed), KEYS_BATCH_MAX):
        yield listed[start : start + KEYS_BATCH_MAX]


# What was found in the store.


class ObjectOutcome(StrEnum):
    """What a sweep found under one key; everything but `ok` is a fault."""

    OK = "ok"
    MISSING = "missing"
    MISMATCH = "mismatch"
    ORPHAN = "orphan"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ObjectObservation:
    """What is stored under one key: digests in full form, sizes in bytes.

    Attributes:
        outcome: None when the object is there and was not read.
        pins_stated: None when the object was not read or nothing is expected of it.
    """

    object_key: str
    job_id: str | None
    outcome: ObjectOutcome | None
    expected_digest: str | None = None
    found_digest: str | None = None
    expected_size_bytes: int | None = None
    found_size_bytes: int | None = None
    pins_stated: bool | None = None

    @property
    def is_fault(self) -> bool:
        """Return whether this is worth an investigation."""
        return self.outcome not in (None, ObjectOutcome.OK) or self.pins_stated is False

    def differs_from(self, known: dict[str, Any] | None) -> bool:
        """Return whether a recorded row of `object_checks` says something else."""
        return known is None or any(known[name] != value for name, value in asdict(self).items())


_NEW_CHECK = (
    "INSERT INTO object_checks (object_key, checked_at, job_id, outcome, expected_digest, found_digest,"
    " expected_size_bytes, found_size_bytes, pins_stated, latest_seq)"
    " VALUES (:object_key, :checked_at, :job_id, :outcome, :expected_digest, :found_digest,"
    " :expected_size_bytes, :found_size_bytes, :pins_stated, :latest_seq)"
    " ON CONFLICT (object_key) DO"
)
_RECORD_CHECK = sa.text(
    f"{_NEW_CHECK} UPDATE SET checked_at = excluded.checked_at, job_id = excluded.job_id,"
    " outcome = excluded.outcome, expected_digest = excluded.expected_digest,"
    " found_digest = excluded.found_digest, expected_size_bytes = excluded.expected_size_bytes,"
    " found_size_bytes = excluded.found_size_bytes, pins_stated = excluded.pins_stated,"
    " latest_seq = excluded.latest_seq"
).bindparams(sa.bindparam("checked_at", type_=UtcMicros()))
_RECORD_FIRST_CHECK = sa.text(f"{_NEW_CHECK} NOTHING").bindparams(sa.bindparam("checked_at", type_=UtcMicros()))


def record_object_check(tx: LedgerTransaction, found: ObjectObservation) -> bool:
    """Record what was found under a key; False when it says what is known already.

    A repeated observation changes nothing, so that a sweep may run as often as it likes. A new fault,
    and a fault that went away, each append one event to the job; any other news makes one of no job.
    """
    assert found.outcome is not None, found
    known = tx.row(select(object_checks).where(object_checks.c.object_key == found.object_key))
    if not found.differs_from(known):
        return False
    before = known["outcome"] if known else ObjectOutcome.OK
    if found.outcome is ObjectOutcome.OK and before == ObjectOutcome.OK:
        seq = append_event(tx, EventKind.OBJECTS_CHECKED, object_key=found.object_key)
    else:
        seq = append_event(
            tx,
            EventKind.OBJECT_FAULT,
            job_id=found.job_id,
            object_key=found.object_key,
            outcome=found.outcome.value,
            before=before,
            found_digest=found.found_digest,
        )
    tx.execute(_RECORD_CHECK, asdict(found) | {"checked_at": tx.now(), "latest_seq": seq})
    return True


def record_first_checks(tx: LedgerTransaction, found: Sequence[ObjectObservation]) -> int:
    """Record objects that were right when first looked at, with one event; returns how many are new."""
    assert all(observation.outcome is ObjectOutcome.OK for observation in found)
    if found:
        seq = append_event(tx, EventKind.OBJECTS_CHECKED, objects=len(found))
        recorded = {"checked_at": tx.now(), "latest_seq": seq}
        tx.execute(_RECORD_FIRST_CHECK, [asdict(observation) | recorded for observation in found])
    return len(found)


@dataclass(frozen=True, slots=True)
class ExpectedResult:
    """The result object that the ledger expects of a succeeded job; its size in bytes."""

    job_id: str
    object_key: str
    digest: str
    size_bytes: int
    pins: Pins


_EXPECTED_RESULTS = (
    select(
        jobs.c.job_id,
        jobs.c.result_key,
        jobs.c.result_digest,
        jobs.c.result_size_bytes,
        *(jobs.c[name] for name in Pins.__slots__),
    )
    .where(jobs.c.state == JobState.SUCCEEDED)
    .where(jobs.c.result_purged_at.is_(None))
    .where(jobs.c.result_key.not_in(select(tombstones.c.object_key)))
    .where(jobs.c.job_id > sa.bindparam("after"))
    .order_by(jobs.c.job_id)
    .limit(sa.bindparam("limit", type_=sa.Integer()))
)


def expected_results(
    tx: LedgerTransaction,
    *,
    after_job_id: str = "",
    limit: int = KEYS_BATCH_MAX,
    job_ids: Collection[str] | None = None,
) -> list[ExpectedResult]:
    """Return at most `limit` results that should exist, in order of job id after the given one.

    Args:
        job_ids: of these jobs only.
    """
    query = _EXPECTED_RESULTS
    if job_ids is not None:
        query = query.where(jobs.c.job_id.in_(sorted(job_ids)))
    return [
        ExpectedResult(
            job_id=row["job_id"],
            object_key=row["result_key"],
            digest=row["result_digest"],
            size_bytes=row["result_size_bytes"],
            pins=Pins.from_document(row),
        )
        for row in tx.rows(query, {"after": after_job_id, "limit": limit})
    ]


# Holds.

DOOMED = "doomed"
COPYING = "acceptance"
SWEEPER = "system:sweep"

# Two entry points may write the same row at the same time; both databases know this form. A hold that a
# crash left is as old as its last renewal, and the sweep releases old ones.
_HOLD = sa.text(
    "INSERT INTO object_refs (object_key, holder, hold_kind, held_at)"
    " VALUES (:object_key, :holder, :hold_kind, :held_at)"
    " ON CONFLICT (object_key, holder) DO UPDATE SET held_at = excluded.held_at"
).bindparams(sa.bindparam("held_at", type_=UtcMicros()))
_UNMARK = delete(object_refs).where(object_refs.c.object_key.in_(_KEYS)).where(object_refs.c.hold_kind == DOOMED)
_REMOVE_SCAN_TOMBSTONES = (
    delete(tombstones).where(tombstones.c.object_key.in_(_KEYS)).where(tombstones.c.reason == SCAN_RETIRED.code)
)
_RELEASE = delete(object_refs).where(object_refs.c.holder == sa.bindparam("of_holder"))
_HELD = (
    select(object_refs.c.object_key).where(object_refs.c.hold_kind != DOOMED).where(object_refs.c.object_key.in_(_KEYS))
)


def hold_objects(tx: LedgerTransaction, keys: Iterable[str], *, holder: str, hold_kind: str) -> None:
    """Hold objects for a holder (a submission, a job); holding them again renews the hold.

    Marks and tombstones of scans are removed: the holder is about to store or use them.
    """
    now = tx.now()
    for batch in _batches(keys):
        tx.execute(_UNMARK, {"keys": batch})
        tx.execute(_REMOVE_SCAN_TOMBSTONES, {"keys": batch})
        tx.execute(
            _HOLD, [{"object_key": key, "holder": holder, "hold_kind": hold_kind, "held_at": now} for key in batch]
        )


def release_holds(tx: LedgerTransaction, *, holder: str) -> int:
    """Release everything that a holder holds; returns how many holds there were."""
    return int(tx.execute(_RELEASE, {"of_holder": holder}).rowcount)


def release_stale_copies(tx: LedgerTransaction, *, before: dt.datetime) -> int:
    """Release holds of acceptances that ended without an answer; returns how many there were."""
    return int(
        tx.execute(
            delete(object_refs).where(object_refs.c.hold_kind == COPYING).where(object_refs.c.held_at <= before)
        ).rowcount
    )


def held_keys(tx: LedgerTransaction, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that have a hold; a mark is none."""
    return {row["object_key"] for batch in _batches(keys) for row in tx.rows(_HELD, {"keys": batch})}


# Scans without a hold: marked by one sweep, removed by a later one.

_PINNED = (
    "EXISTS (SELECT 1 FROM items JOIN jobs ON jobs.job_id = items.job_id"
    " WHERE items.tenant = :tenant AND items.sha256 = :sha256 AND jobs.result_purged_at IS NULL)"
)
_IS_PINNED = sa.text(f"SELECT {_PINNED}")
# One statement, so that a hold that comes meanwhile wins.
_MARK = sa.text(
    "INSERT INTO object_refs (object_key, holder, hold_kind, held_at)"
    " SELECT :object_key, :holder, :hold_kind, :held_at"
    f" WHERE NOT EXISTS (SELECT 1 FROM object_refs WHERE object_key = :object_key) AND NOT {_PINNED}"
    " ON CONFLICT DO NOTHING"
).bindparams(
    sa.bindparam("object_key", type_=sa.String()),
    sa.bindparam("holder", type_=sa.String()),
    sa.bindparam("hold_kind", type_=sa.String()),
    sa.bindparam("held_at", type_=UtcMicros()),
)


def mark_scan(tx: LedgerTransaction, key: str) -> bool:
    """Mark a scan without a hold that no unpurged job names; False when it is needed, or marked already."""
    values = {"object_key": key, "holder": SWEEPER, "hold_kind": DOOMED, "held_at": tx.now()}
    return tx.execute(_MARK, values | _named(key)).rowcount == 1


def _named(key: str) -> dict[str, str]:
    """Return tenant and digest of a scan's key, `scans/<tenant>/<sha256>`; no job names any other key."""
    parts = key.split("/")
    _, tenant, sha256 = parts if len(parts) == 3 else ("", "", "")
    return {"tenant": tenant, "sha256": f"sha256:{sha256}"}


def marked_scans(tx: LedgerTransaction, *, before: dt.datetime, limit: int) -> list[str]:
    """Return the scans that were marked before a moment, in order."""
    query = (
        select(object_refs.c.object_key)
        .where(object_refs.c.hold_kind == DOOMED)
        .where(object_refs.c.held_at <= before)
        .order_by(object_refs.c.object_key)
        .limit(limit)
    )
    return [str(row["object_key"]) for row in tx.rows(query)]


def condemn_scan(tx: LedgerTransaction, key: str) -> bool:
    """Replace a scan's mark by its tombstone, before it is removed; False when the scan is needed again."""
    other = object_refs.alias("other")
    is_held = exists(select(other.c.holder).where(other.c.object_key == key).where(other.c.hold_kind != DOOMED))
    mark = (object_refs.c.object_key == key) & (object_refs.c.hold_kind == DOOMED)
    if tx.scalar(_IS_PINNED, _named(key)):
        tx.execute(delete(object_refs).where(mark))
        return False
    if tx.execute(delete(object_refs).where(mark).where(~is_held)).rowcount == 0:
        return False
    add_tombstone(tx, object_key=key, job_id=None, reason=SCAN_RETIRED.code, digest=None)
    return True


def removed_scans(tx: LedgerTransaction, keys: Collection[str]) -> set[str]:
    """Return those of the keys under which a scan was, or is being, removed."""
    return {
        str(row["object_key"])
        for batch in _batches(keys)
        for row in tx.rows(
            select(tombstones.c.object_key)
            .where(tombstones.c.object_key.in_(batch))
            .where(tombstones.c.reason == SCAN_RETIRED.code)
        )
    }


# Tombstones, and what else explains a stored key.

_ADD_TOMBSTONE = sa.text(
    "INSERT INTO tombstones (object_key, job_id, reason, digest, buried_at)"
    " VALUES (:object_key, :job_id, :reason, :digest, :buried_at) ON CONFLICT DO NOTHING"
).bindparams(sa.bindparam("buried_at", type_=UtcMicros()))


def add_tombstone(
    tx: LedgerTransaction, *, object_key: str, job_id: str | None, reason: str, digest: str | None
) -> None:
    """Write the tombstone that explains why an object is gone, before it is deleted."""
    tx.execute(
        _ADD_TOMBSTONE,
        {"object_key": object_key, "job_id": job_id, "reason": reason, "digest": digest, "buried_at": tx.now()},
    )


def explained_keys(tx: LedgerTransaction, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that a success, intent, rejected write, quarantine, investigation, hold or
    tombstone names.

    The open investigation of an orphan does not explain it; a person's recorded decision does.
    """
    wanted = set(keys)
    explained = _decided_orphans(tx) & wanted
    for batch in _batches(wanted):
        other = investigations.c.kind != InvestigationKind.ORPHAN_OBJECT
        named = sa.union(
            select(jobs.c.result_key).where(jobs.c.result_key.in_(batch)).where(jobs.c.state == JobState.SUCCEEDED),
            select(effects.c.idempotency_key)
            .where(effects.c.idempotency_key.in_(batch))
            .where(effects.c.kind == EffectKind.RESULT_OBJECT),
            select(object_refs.c.object_key).where(object_refs.c.object_key.in_(batch)),
            select(tombstones.c.object_key).where(tombstones.c.object_key.in_(batch)),
            select(investigations.c.subject).where(investigations.c.subject.in_(batch)).where(other),
        )
        explained |= set(tx.execute(named).scalars())
        explained |= _quarantined_keys(tx, [key for key in batch if key not in explained])
        explained |= recorded_rejections(tx, batch)
    return explained


def _decided_orphans(tx: LedgerTransaction) -> set[str]:
    decided = (
        select(investigations.c.subject)
        .where(investigations.c.kind == InvestigationKind.ORPHAN_OBJECT)
        .where(investigations.c.state == RESOLVED)
        .where(investigations.c.resolved_by != RECONCILER)
    )
    return {plain_subject(subject) for subject in tx.execute(decided).scalars()}


def _quarantined_keys(tx: LedgerTransaction, keys: Sequence[str]) -> set[str]:
    """Return the result keys whose digest a quarantine of their job lists."""
    by_job = {key: key.split("/")[1] for key in keys if key.startswith(RESULTS_PREFIX) and key.count("/") > 1}
    if not by_job:
        return set()
    query = select(quarantine.c.job_id, quarantine.c.digests).where(
        quarantine.c.job_id.in_(sorted(set(by_job.values())))
    )
    listed: dict[str, set[str]] = {}
    for row in tx.rows(query):
        listed.setdefault(row["job_id"], set()).update(str(entry["digest"]) for entry in row["digests"])
    return {
        key
        for key, job_id in by_job.items()
        if any(digest.removeprefix("sha256:") in key for digest in listed.get(job_id, ()))
    }


# Outputs of stale workers whose writes were rejected.


def rejected_output_key(*, job_id: str, ordinal: int, lease_epoch: int, digest: str) -> str:
    """Return the object key of an item's outcome that a stale worker wrote: job, item, epoch and digest."""
    return f"{REJECTED_PREFIX}{job_id}/{ordinal}-{lease_epoch}-{digest.removeprefix('sha256:')}"


def rejected_output_keys(tx: LedgerTransaction, job_ids: Collection[str]) -> dict[str, str]:
    """Return the keys of the outputs whose rejection is recorded, each with its digest; stored or not."""
    if not job_ids:
        return {}
    rejected = (
        select(refused_writes.c.job_id, refused_writes.c.ordinal, refused_writes.c.lease_epoch, refused_writes.c.digest)
        .where(refused_writes.c.job_id.in_(sorted(job_ids)))
        .where(refused_writes.c.ordinal.is_not(None))
        .where(refused_writes.c.digest.is_not(None))
    )
    return {rejected_output_key(**row): str(row["digest"]) for row in tx.rows(rejected)}


def recorded_rejections(tx: LedgerTransaction, keys: Iterable[str]) -> set[str]:
    """Return those of the keys under which the output of a recorded rejection is kept."""
    kept = {key for key in keys if key.startswith(REJECTED_PREFIX)}
    job_ids = {key.removeprefix(REJECTED_PREFIX).partition("/")[0] for key in kept}
    return kept & set(rejected_output_keys(tx, job_ids))
