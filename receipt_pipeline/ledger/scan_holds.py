"""Scans that nobody holds any more: marked, and removed a grace later unless somebody wants them again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import delete, exists, select

from receipt_pipeline.core.reasons import SCAN_RETIRED
from receipt_pipeline.ledger.columns import UtcMicros
from receipt_pipeline.ledger.effect_tables import object_refs, tombstones
from receipt_pipeline.ledger.engine import LedgerTransaction

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


def marked_scans(tx: LedgerTransaction, *, before: dt.datetime, at_most: int) -> list[str]:
    """Return the scans that were marked before a moment, in order."""
    query = (
        select(object_refs.c.object_key)
        .where(object_refs.c.hold_kind == DOOMED)
        .where(object_refs.c.held_at <= before)
        .order_by(object_refs.c.object_key)
        .limit(at_most)
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
        for batch in _batches(keys)
        for row in tx.rows(
            select(tombstones.c.object_key)
            .where(tombstones.c.object_key.in_(batch))
            .where(tombstones.c.reason == SCAN_RETIRED.code)
        )
    }


def unmark_scans(tx: LedgerTransaction, keys: Collection[str]) -> None:
    """Take marks and tombstones of scans away: somebody is about to store and hold them."""
    for batch in _batches(keys):
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


def _batches(keys: Collection[str]) -> Iterator[list[str]]:
    listed = sorted(set(keys))
    for start in range(0, len(listed), BATCH_MAX):
        yield listed[start : start + BATCH_MAX]
