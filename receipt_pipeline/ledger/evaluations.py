"""Evaluations of releases on record: each is an event that names the document by its digest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.tables import events


def record_evaluation(
    tx: LedgerTransaction, *, release_id: str, document_digest: str, set_digest: str, by: str
) -> None:
    """Record that a release was evaluated; the document is kept beside the ledger, under this digest."""
    append_event(
        tx,
        EventKind.RELEASE_EVALUATED,
        release_id=release_id,
        document_digest=document_digest,
        set_digest=set_digest,
        by=by,
    )


def record_override(
    tx: LedgerTransaction, *, release_id: str, measures: Sequence[str], by: str, because: str
) -> None:
    """Record that a person let a release through although these measures are worse."""
    append_event(
        tx,
        EventKind.WORSE_RELEASE_ALLOWED,
        release_id=release_id,
        measures=list(measures),
        by=by,
        because=because,
    )


def newest_evaluation(tx: LedgerTransaction, release_id: str) -> dict[str, Any] | None:
    """Return what was recorded last of a release's evaluation: digests and who, or None."""
    query = select(events.c.data).where(events.c.kind == EventKind.RELEASE_EVALUATED)
    # There are a few evaluations in the life of a home, so they are looked through one by one.
    for row in tx.rows(query.order_by(events.c.seq.desc())):
        if row["data"]["release_id"] == release_id:
            return dict(row["data"])
    return None
