"""Answer one scan synchronously, without a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.items import NO_CONTEXT
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.releases import resolve_release
from receipt_pipeline.worker.context import Classifier


def classify_now(
    ledger: Ledger, chains: Callable[[Pins], Classifier], data: bytes, *, release: str, tenant: str
) -> dict[str, Any]:
    """Classify one scan now and return its outcome with the identities used.

    Raises:
        InputRefused: RELEASE.*. IdentityMismatch: the release is not carried here.
    """
    with ledger.reading() as tx:
        row = resolve_release(tx, release)
    pins = Pins.from_document(row)
    outcome = chains(pins).classify(data, duplicate_bytes=False, on_page=lambda: None, context=NO_CONTEXT)
    with ledger.transaction() as tx:
        append_event(
            tx,
            EventKind.CLASSIFIED_AT_ONCE,
            tenant=tenant,
            release_id=pins.release_id,
            sha256=digest_of_bytes(data),
            outcome_digest=outcome.outcome_digest,
        )
    return {"pins": pins.as_document(), "outcome": outcome.as_document(), "job": None}
