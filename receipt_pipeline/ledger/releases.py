"""Releases, aliases and evaluations on record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from receipt_pipeline.core.errors import InputRefused, NotFound
from receipt_pipeline.core.pins import Release
from receipt_pipeline.core.reasons import NOT_FOUND, RELEASE_RETIRED, RELEASE_UNAPPROVED, RELEASE_UNKNOWN
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.jobs import aliases, events, releases

SETUP = "system:setup"


def approve_release(tx: LedgerTransaction, release: Release, *, name: str, approved_by: str) -> str:
    """Approve a release; approving it again changes nothing. Returns its id.

    Raises:
        InputRefused: RELEASE.RETIRED.v1; what was retired is not approved again.
    """
    release_id = release.release_id
    known = tx.row(select(releases.c.retired_at).where(releases.c.release_id == release_id))
    if known is not None:
        if known["retired_at"] is not None:
            raise InputRefused(RELEASE_RETIRED, release_id=release_id)
        return release_id
    tx.execute(
        insert(releases).values(
            release_id=release_id,
            name=name,
            image_digest=release.image_digest,
            chain_revision=release.chain_revision,
            feature_contract=release.feature_contract,
            risk_model_digest=release.risk_model_digest,
            policy_revision=release.policy_revision,
            approved_by=approved_by,
            approved_at=tx.now(),
        )
    )
    append_event(tx, EventKind.RELEASE_APPROVED, release_id=release_id, name=name, by=approved_by)
    return release_id


def move_alias(tx: LedgerTransaction, *, alias: str, release_id: str, moved_by: str) -> None:
    """Let an alias point at an approved release, as a new row of its history."""
    row = tx.row(select(releases).where(releases.c.release_id == release_id))
    if row is None:
        raise NotFound(NOT_FOUND, release_id=release_id)
    if row["retired_at"] is not None:
        raise InputRefused(RELEASE_RETIRED, release_id=release_id)
    current = alias_head(tx, alias)
    if current is not None and current["release_id"] == release_id and current["moved_by"] == moved_by:
        return
    tx.execute(insert(aliases).values(alias=alias, release_id=release_id, moved_by=moved_by, moved_at=tx.now()))
    append_event(tx, EventKind.ALIAS_MOVED, alias=alias, release_id=release_id, by=moved_by)


_HEAD = select(aliases).where(aliases.c.alias == bindparam("of_alias")).order_by(aliases.c.move_no.desc()).limit(1)
_RELEASE = select(releases).where(releases.c.release_id == bindparam("release"))


def alias_head(tx: LedgerTransaction, alias: str) -> dict[str, Any] | None:
    """Return the newest move of an alias, or None."""
    return tx.row(_HEAD, {"of_alias": alias})


def retire_release(tx: LedgerTransaction, *, release_id: str, retired_by: str) -> None:
    """Retire a release: nothing new is accepted under it."""
    written = tx.execute(
        update(releases)
        .where(releases.c.release_id == release_id)
        .where(releases.c.retired_at.is_(None))
        .values(retired_at=tx.now(), retired_by=retired_by)
    )
    if written.rowcount == 1:
        append_event(tx, EventKind.RELEASE_RETIRED, release_id=release_id, by=retired_by)
    elif tx.row(select(releases.c.release_id).where(releases.c.release_id == release_id)) is None:
        raise NotFound(NOT_FOUND, release_id=release_id)


def resolve_release(tx: LedgerTransaction, written: str) -> dict[str, Any]:
    """Return the approved release row that an alias, name or id means right now.

    Raises:
        InputRefused: RELEASE.UNKNOWN.v1, RELEASE.UNAPPROVED.v1 or RELEASE.RETIRED.v1.
    """
    head = alias_head(tx, written)
    wanted = head["release_id"] if head else written
    row = tx.row(_RELEASE, {"release": wanted}) or tx.row(
        select(releases)
        .where(releases.c.name == written)
        .order_by(releases.c.retired_at.is_not(None), releases.c.approved_at.desc())
    )
    if row is None:
        # A digest nobody approved is refused as such; any other word is a name we do not know.
        reason = RELEASE_UNAPPROVED if written.startswith("sha256:") else RELEASE_UNKNOWN
        raise InputRefused(reason, pointer="/release")
    if row["retired_at"] is not None:
        raise InputRefused(RELEASE_RETIRED, pointer="/release", release_id=row["release_id"])
    return row


def list_releases(tx: LedgerTransaction) -> list[dict[str, Any]]:
    """Return every release with the aliases that point at it now, newest approval last."""
    heads: dict[str, str] = {}
    for move in tx.rows(select(aliases).order_by(aliases.c.move_no)):
        heads[move["alias"]] = move["release_id"]
    return [
        row | {"aliases": sorted(alias for alias, target in heads.items() if target == row["release_id"])}
        for row in tx.rows(select(releases).order_by(releases.c.approved_at, releases.c.release_id))
    ]


def approved_release_ids(tx: LedgerTransaction) -> list[str]:
    """Return the ids of releases that are approved and not retired."""
    query = select(releases.c.release_id).where(releases.c.retired_at.is_(None))
    return [row["release_id"] for row in tx.rows(query.order_by(releases.c.release_id))]


def record_evaluation(
    tx: LedgerTransaction, *, release_id: str, document_digest: str, set_digest: str, actor: str
) -> None:
    """Record that a release was evaluated; the document is kept beside the ledger, under this digest."""
    append_event(
        tx,
        EventKind.RELEASE_EVALUATED,
        release_id=release_id,
        document_digest=document_digest,
        set_digest=set_digest,
        by=actor,
    )


def record_override(
    tx: LedgerTransaction, *, release_id: str, measures: Sequence[str], actor: str, because: str
) -> None:
    """Record that a person let a release through although these measures are worse."""
    append_event(
        tx, EventKind.WORSE_RELEASE_ALLOWED, release_id=release_id, measures=list(measures), by=actor, because=because
    )


def newest_evaluation(tx: LedgerTransaction, release_id: str) -> dict[str, Any] | None:
    """Return what was recorded last of a release's evaluation: digests and who, or None."""
    query = select(events.c.data).where(events.c.kind == EventKind.RELEASE_EVALUATED)
    # There are a few evaluations in the life of a home, so they are looked through one by one.
    for row in tx.rows(query.order_by(events.c.seq.desc())):
        if row["data"]["release_id"] == release_id:
            return dict(row["data"])
    return None
