"""The append-only journal: every change that the report shows, in the transaction that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.jobs import events, jobs


class EventKind(StrEnum):
    """What the journal records."""

    RELEASE_APPROVED = "release_approved"
    RELEASE_RETIRED = "release_retired"
    RELEASE_EVALUATED = "release_evaluated"
    WORSE_RELEASE_ALLOWED = "worse_release_allowed"
    ALIAS_MOVED = "alias_moved"
    ACCEPTED = "accepted"
    REPLAYED = "replayed"
    RETRIED = "retried"
    SUPERSEDES = "supersedes"
    REQUEUED = "requeued"
    CLAIMED = "claimed"
    PHASE_CHANGED = "phase_changed"
    ITEM_FINISHED = "item_finished"
    ITEM_LOST = "item_lost"
    ATTEMPT_CLOSED = "attempt_closed"
    WRITE_REFUSED = "write_refused"
    CLOSING = "closing"
    RESULT_INTENDED = "result_intended"
    TERMINAL = "terminal"
    MESSAGE_CREATED = "message_created"
    DELIVERY = "delivery"
    CONSUMED = "consumed"
    EFFECT_CHANGED = "effect_changed"
    SETTLED = "settled"
    QUARANTINED = "quarantined"
    QUARANTINE_RESOLVED = "quarantine_resolved"
    INVESTIGATION_OPENED = "investigation_opened"
    INVESTIGATION_ASSIGNED = "investigation_assigned"
    INVESTIGATION_RESOLVED = "investigation_resolved"
    OBJECT_FAULT = "object_fault"
    OBJECTS_CHECKED = "objects_checked"
    RESULT_PURGED = "result_purged"
    RESULT_WITHDRAWN = "result_withdrawn"
    DIAGNOSTICS_FORGOTTEN = "diagnostics_forgotten"
    SUBMISSION_SETTLED = "submission_settled"
    GRANT_CHANGED = "grant_changed"
    ALERT_RAISED = "alert_raised"
    ALERT_RESOLVED = "alert_resolved"
    ALERT_LINKED = "alert_linked"
    SUBMITTER_CHANGED = "submitter_changed"
    IMPORTED = "imported"
    IMPORT_ENDED = "import_ended"
    CLASSIFIED_AT_ONCE = "classified_at_once"


# Built once: nothing is executed more often.
_APPEND = insert(events)
_POINT_AT = update(jobs).where(jobs.c.job_id == bindparam("of_job"))


def append_event(
    tx: LedgerTransaction,
    kind: EventKind,
    *,
    job_id: str | None = None,
    tenant: str = "",
    lease_epoch: int | None = None,
    **data: Any,
) -> int:
    """Append one event and let its job point at it; returns the event's sequence number.

    `data` holds ids, codes, counts and digests only: never scan contents or extracted fields.
    """
    if job_id is not None and tx.skips_locked_rows:
        # The number is drawn under the job's lock: otherwise a slower writer that drew the lower
        # one would commit last, and a reader that saw the higher one would never look again.
        tx.execute(select(jobs.c.job_id).where(jobs.c.job_id == job_id).with_for_update(key_share=True))
    row = {"job_id": job_id, "tenant": tenant, "kind": kind, "lease_epoch": lease_epoch}
    result = tx.execute(_APPEND, row | {"at": tx.now(), "data": _plain(data)})
    inserted = result.inserted_primary_key
    assert inserted is not None
    seq = int(inserted[0])
    if job_id is not None:
        tx.execute(_POINT_AT, {"of_job": job_id, "latest_seq": seq})
    return seq


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None}


def new_id(tx: LedgerTransaction, prefix: str) -> str:
    """Return a time-sortable id, `<prefix>_` and a ULID in lower case, timed by the ledger."""
    return f"{prefix}_{str(tx.new_number()).lower()}"
