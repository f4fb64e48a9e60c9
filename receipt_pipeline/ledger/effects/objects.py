"""Object records, holds and unreferenced scans."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy import delete, exists, select

from receipt_pipeline.core.effects import EffectKind
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.reasons import SCAN_RETIRED
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import RECONCILER, RESOLVED, InvestigationKind
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

DOOMED = "doomed"
COPYING = "acceptance"
SWEEPER = "system:sweep"
BATCH_MAX = 400
KEY_STEPS = 3

_PINNED = (
    "EXISTS (SELECT 1 FROM items JOIN jobs ON jobs.job_id = items.job_id"
    " WHERE items.tenant = :tenant AND items.sha256 = :sha256 AND jobs.result_purged_at IS NULL)"
)
_IS_PINNED = sa.text(f"SELECT {_PINNED}")
# One statement, so that a hold that is taken meanwhile wins.
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


_OF_SCANS: sa.BindParameter[Any] = sa.bindparam("keys", expanding=True)
_UNMARK = (
    delete(object_refs)
    .where(object_refs.c.object_key.in_(_OF_SCANS))
    .where(object_refs.c.hold_kind == DOOMED)
)
_UNBURY = (
    delete(tombstones)
    .where(tombstones.c.object_key.in_(_OF_SCANS))
    .where(tombstones.c.reason == SCAN_RETIRED.code)
)


def mark_scan(tx: LedgerTransaction, key: str) -> bool:
    """Mark a scan that nobody holds and no unpurged job names; False when it is wanted, or marked already."""
    values = {"object_key": key, "holder": SWEEPER, "hold_kind": DOOMED, "held_at": tx.now()}
    return tx.execute(_MARK, values | _named(key)).rowcount == 1


def _named(key: str) -> dict[str, str]:
    """Return the tenant and digest that a scan's key names; what is no such key names nothing of a job."""
    _, tenant, sha256 = key.split("/") if key.count("/") == KEY_STEPS - 1 else ("", "", "")
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
    """Write the tombstone of a marked scan before it is removed; False when it is wanted again.

    Its mark is taken away then.
    """
    other = object_refs.alias("other")
    wanted = exists(
        select(other.c.holder).where(other.c.object_key == key).where(other.c.hold_kind != DOOMED)
    )
    mine = (object_refs.c.object_key == key) & (object_refs.c.hold_kind == DOOMED)
    if tx.scalar(_IS_PINNED, _named(key)):
        tx.execute(delete(object_refs).where(mine))
        return False
    if tx.execute(delete(object_refs).where(mine).where(~wanted)).rowcount == 0:
        return False
    tx.execute(
        sa.insert(tombstones).values(
            object_key=key, job_id=None, reason=SCAN_RETIRED.code, digest=None, buried_at=tx.now()
        )
    )
    return True


def removed_scans(tx: LedgerTransaction, keys: Collection[str]) -> set[str]:
    """Return those of the keys under which a scan was, or is just being, removed."""
    return {
        str(row["object_key"])
        for batch in _scan_batches(keys)
        for row in tx.rows(
            select(tombstones.c.object_key)
            .where(tombstones.c.object_key.in_(batch))
            .where(tombstones.c.reason == SCAN_RETIRED.code)
        )
    }


def unmark_scans(tx: LedgerTransaction, keys: Collection[str]) -> None:
    """Take marks and tombstones of scans away: somebody is about to store and hold them."""
    for batch in _scan_batches(keys):
        tx.execute(_UNMARK, {"keys": batch})
        tx.execute(_UNBURY, {"keys": batch})


def release_stale_copies(tx: LedgerTransaction, *, before: dt.datetime) -> int:
    """Let go of holds of acceptances that ended without an answer; returns how many there were."""
    return int(
        tx.execute(
            delete(object_refs)
            .where(object_refs.c.hold_kind == COPYING)
            .where(object_refs.c.held_at <= before)
        ).rowcount
    )


def _scan_batches(keys: Collection[str]) -> Iterator[list[str]]:
    listed = sorted(set(keys))
    for start in range(0, len(listed), BATCH_MAX):
        yield listed[start : start + BATCH_MAX]


KEYS_BATCH_MAX = 400
RESULTS_PREFIX = "results/"


class ObjectOutcome(StrEnum):
    """What a sweep found under one key; everything but `ok` is a fault."""

    OK = "ok"
    MISSING = "missing"
    MISMATCH = "mismatch"
    ORPHAN = "orphan"
    UNREADABLE = "unreadable"


# Two doors may write the same row at once, and both databases know this form. A hold that a crash left
# behind is as young as its newest order: the sweep lets go of old ones.
_HOLD = sa.text(
    "INSERT INTO object_refs (object_key, holder, hold_kind, held_at)"
    " VALUES (:object_key, :holder, :hold_kind, :held_at)"
    " ON CONFLICT (object_key, holder) DO UPDATE SET held_at = excluded.held_at"
).bindparams(sa.bindparam("held_at", type_=UtcMicros()))

_RELEASE = sa.delete(object_refs).where(object_refs.c.holder == sa.bindparam("of_holder"))
_KEYS: sa.BindParameter[Any] = sa.bindparam("keys", expanding=True)
_HELD = (
    select(object_refs.c.object_key)
    .where(object_refs.c.hold_kind != DOOMED)
    .where(object_refs.c.object_key.in_(_KEYS))
)
_ANSWERED_ORPHANS = (
    select(investigations.c.subject)
    .where(investigations.c.kind == InvestigationKind.ORPHAN_OBJECT)
    .where(investigations.c.state == RESOLVED)
    .where(investigations.c.resolved_by != RECONCILER)
)
_RESULTS = (
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
_BURY = sa.text(
    "INSERT INTO tombstones (object_key, job_id, reason, digest, buried_at)"
    " VALUES (:object_key, :job_id, :reason, :digest, :buried_at) ON CONFLICT DO NOTHING"
).bindparams(sa.bindparam("buried_at", type_=UtcMicros()))

_CHECK_COLUMNS = (
    "job_id",
    "outcome",
    "expected_digest",
    "found_digest",
    "expected_size_bytes",
    "found_size_bytes",
    "pins_stated",
    "latest_seq",
)

_NEW_CHECK = (
    f"INSERT INTO object_checks (object_key, checked_at, {', '.join(_CHECK_COLUMNS)})"
    f" VALUES (:object_key, :checked_at, {', '.join(':' + name for name in _CHECK_COLUMNS)})"
    " ON CONFLICT (object_key) DO "
)
_CHECK = sa.text(
    f"{_NEW_CHECK} UPDATE SET checked_at = excluded.checked_at, "
    + ", ".join(f"{name} = excluded.{name}" for name in _CHECK_COLUMNS)
).bindparams(sa.bindparam("checked_at", type_=UtcMicros()))
_FIRST_CHECK = sa.text(f"{_NEW_CHECK} NOTHING").bindparams(sa.bindparam("checked_at", type_=UtcMicros()))


def hold_objects(tx: LedgerTransaction, keys: Iterable[str], *, holder: str, hold_kind: str) -> None:
    """Hold objects for a holder (a submission, a job); holding them again renews the hold.

    Who holds a scan wants it: a mark or tombstone of a clean-up is taken away.
    """
    now = tx.now()
    keys = sorted(set(keys))
    unmark_scans(tx, keys)
    rows = [
        {"object_key": key, "holder": holder, "hold_kind": hold_kind, "held_at": now}
        for key in sorted(set(keys))
    ]
    for start in range(0, len(rows), KEYS_BATCH_MAX):
        tx.execute(_HOLD, rows[start : start + KEYS_BATCH_MAX])


def release_holds(tx: LedgerTransaction, *, holder: str) -> int:
    """Let go of everything a holder held; returns how many holds there were."""
    return int(tx.execute(_RELEASE, {"of_holder": holder}).rowcount)


def held_keys(tx: LedgerTransaction, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that somebody holds."""
    return {row["object_key"] for batch in _batches(keys) for row in tx.rows(_HELD, {"keys": batch})}


def record_object_check(
    tx: LedgerTransaction,
    *,
    object_key: str,
    job_id: str | None,
    outcome: ObjectOutcome | str,
    expected_digest: str | None = None,
    found_digest: str | None = None,
    expected_size_bytes: int | None = None,
    found_size_bytes: int | None = None,
    pins_stated: bool | None = None,
) -> bool:
    """Record what was found under a key; False when it says what is known already.

    A repeated finding changes nothing, so that a sweep may run as often as it likes. A new fault,
    and a fault that went away, each append one event to the job; any other news makes one of no job.
    """
    outcome = ObjectOutcome(outcome)
    found = {
        "job_id": job_id,
        "outcome": outcome.value,
        "expected_digest": expected_digest,
        "found_digest": found_digest,
        "expected_size_bytes": expected_size_bytes,
        "found_size_bytes": found_size_bytes,
        "pins_stated": pins_stated,
    }
    known = tx.row(select(object_checks).where(object_checks.c.object_key == object_key))
    if known is not None and all(known[name] == value for name, value in found.items()):
        return False
    before = known["outcome"] if known else ObjectOutcome.OK
    if outcome is ObjectOutcome.OK and before == ObjectOutcome.OK:
        seq = append_event(tx, EventKind.OBJECTS_CHECKED, object_key=object_key)
    else:
        seq = append_event(
            tx,
            EventKind.OBJECT_FAULT,
            job_id=job_id,
            object_key=object_key,
            outcome=outcome.value,
            before=before,
            found_digest=found_digest,
        )
    tx.execute(_CHECK, {"object_key": object_key, "checked_at": tx.now(), "latest_seq": seq} | found)
    return True


def record_first_checks(tx: LedgerTransaction, found: Sequence[dict[str, Any]]) -> int:
    """Record objects that were found right when they were looked at first; returns how many are new.

    Each row carries what `record_object_check` takes, with outcome `ok`. They make one event together.
    """
    assert all(row["outcome"] == ObjectOutcome.OK for row in found)
    if found:
        seq = append_event(tx, EventKind.OBJECTS_CHECKED, objects=len(found))
        told = {"checked_at": tx.now(), "latest_seq": seq}
        tx.execute(_FIRST_CHECK, [row | told for row in found])
    return len(found)


def bury(
    tx: LedgerTransaction, *, object_key: str, job_id: str | None, reason: str, digest: str | None
) -> None:
    """Write the tombstone that explains why an object is gone, before it is deleted."""
    tx.execute(
        _BURY,
        {
            "object_key": object_key,
            "job_id": job_id,
            "reason": reason,
            "digest": digest,
            "buried_at": tx.now(),
        },
    )


def explained_keys(tx: LedgerTransaction, keys: Iterable[str]) -> set[str]:
    """Return those of the keys that a success, intent, refused write, quarantine, investigation, hold or
    tombstone names.

    The open question about an orphan does not explain it; a person's recorded answer does.
    """
    wanted = set(keys)
    explained = _answered_orphans(tx) & wanted
    for batch in _batches(wanted):
        other = investigations.c.kind != InvestigationKind.ORPHAN_OBJECT
        named = sa.union(
            select(jobs.c.result_key)
            .where(jobs.c.result_key.in_(batch))
            .where(jobs.c.state == JobState.SUCCEEDED),
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


def _answered_orphans(tx: LedgerTransaction) -> set[str]:
    # A question that is asked again carries its number behind `#`.
    return {str(subject).partition("#")[0] for subject in tx.execute(_ANSWERED_ORPHANS).scalars()}


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


def results_to_check(
    tx: LedgerTransaction,
    *,
    after_job_id: str = "",
    limit: int = KEYS_BATCH_MAX,
    job_ids: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Return succeeded jobs whose result should exist, in order of job id after the given one.

    Each row carries job_id, result_key, result_digest, result_size_bytes and the six pins. `job_ids`
    asks for these jobs only, at most `limit` of them.
    """
    asked = {"after": after_job_id, "limit": limit}
    if job_ids is None:
        return tx.rows(_RESULTS, asked)
    return tx.rows(_RESULTS.where(jobs.c.job_id.in_(sorted(job_ids))), asked)


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    listed = sorted(set(keys))
    for start in range(0, len(listed), KEYS_BATCH_MAX):
        yield listed[start : start + KEYS_BATCH_MAX]


REJECTED_PREFIX = "set-aside/refused/"


_OF_JOBS: sa.BindParameter[Any] = sa.bindparam("of_jobs", expanding=True)


_CARRIED = (
    select(*(refused_writes.c[name] for name in ("job_id", "ordinal", "lease_epoch", "digest")))
    .where(refused_writes.c.job_id.in_(_OF_JOBS))
    .where(refused_writes.c.ordinal.is_not(None))
    .where(refused_writes.c.digest.is_not(None))
)


def rejected_output_key(*, job_id: str, ordinal: int, lease_epoch: int, digest: str) -> str:
    """Return the object key of an item's outcome that a stale worker carried: job, item, epoch and digest."""
    return f"{REJECTED_PREFIX}{job_id}/{ordinal}-{lease_epoch}-{digest.removeprefix('sha256:')}"


def rejected_output_keys(tx: LedgerTransaction, job_ids: Collection[str]) -> dict[str, str]:
    """Return the keys of the outputs whose refusal is recorded, each with its digest; stored or not."""
    if not job_ids:
        return {}
    rows = tx.rows(_CARRIED, {"of_jobs": sorted(job_ids)})
    return {rejected_output_key(**row): str(row["digest"]) for row in rows}


def recorded_rejections(tx: LedgerTransaction, keys: Iterable[str]) -> set[str]:
    """Return those of the keys under which the output of a recorded refusal is kept."""
    kept = {key for key in keys if key.startswith(REJECTED_PREFIX)}
    of_jobs = {key.removeprefix(REJECTED_PREFIX).partition("/")[0] for key in kept}
    return kept & set(rejected_output_keys(tx, of_jobs))
