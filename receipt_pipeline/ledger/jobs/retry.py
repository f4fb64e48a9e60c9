"""Child jobs over what a closed job left unresolved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from sqlalchemy import exists, select

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState, Phase
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.reasons import (
    RESULT_QUARANTINED,
    RETRY_JOB_OPEN,
    ROLLOUT_SHADOW,
    UPLOAD_UNKNOWN,
)
from receipt_pipeline.core.request import ItemRequest, JobLimits, JobRequest, LimitsRequest
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.grants import require_authority
from receipt_pipeline.ledger.investigations import OPEN, RECONCILER, InvestigationKind, resolve_investigation
from receipt_pipeline.ledger.jobs.accept import Lineage, StoredItem, find_replay, insert_job
from receipt_pipeline.ledger.jobs.quarantine import open_quarantines
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import items, jobs

FINISHED_CLASSES = (ItemClass.CLASSIFIED, ItemClass.UNCHANGED, ItemClass.REJECTED)


_CHILD = jobs.alias("child")
_LEFT_TO_CHILDREN = (
    select(investigations.c.investigation_id, investigations.c.evidence, jobs.c.job_id, jobs.c.lineage)
    .join(jobs, jobs.c.job_id == investigations.c.job_id)
    .where(investigations.c.kind == InvestigationKind.UNRESOLVED_ITEMS)
    .where(investigations.c.state == OPEN)
    .where(exists(select(_CHILD.c.job_id).where(_CHILD.c.parent_job_id == jobs.c.job_id)))
    .order_by(investigations.c.investigation_id)
)


def refuse_open_parent(tx: LedgerTransaction, job: dict[str, Any]) -> None:
    """Refuse a retry while anything of the job may still be in the making (R104).

    Raises:
        NotAllowed: UPLOAD.UNKNOWN.v1 while an effect is unknown, RESULT.QUARANTINED.v1 while outputs
            diverge, RETRY.JOB_OPEN.v1 for any other open job.
    """
    job_id = job["job_id"]
    if job["phase"] == Phase.RECONCILING:
        raise NotAllowed(UPLOAD_UNKNOWN, job_id=job_id)
    if open_quarantines(tx, job_id):
        raise NotAllowed(RESULT_QUARANTINED, job_id=job_id)
    if job["state"] not in TERMINAL_STATES:
        raise NotAllowed(RETRY_JOB_OPEN, job_id=job_id, state=job["state"])


def child_request(
    parent: dict[str, Any], touched: Sequence[dict[str, Any]], *, cutoff: dt.datetime | None
) -> JobRequest:
    """Return the request of a child: the parent's limits and effects, its release by id, these items.

    Its key is derived from parent and items, so that an identical retry finds the first child.
    """
    ids = digest_of([item["item_id"] for item in touched]).removeprefix("sha256:")
    return JobRequest(
        contract=parent["contract"],
        idempotency_key=f"retry-{parent['job_id']}-{ids[:16]}",
        items=tuple(
            ItemRequest(
                item_id=item["item_id"],
                uri=item["label"],
                sha256=item["sha256"].removeprefix("sha256:"),
                size_bytes=item["size_bytes"],
                media_type=item["media_type"] or None,
                id_explicit=item["id_explicit"],
            )
            for item in touched
        ),
        operation_class=parent["operation_class"],
        release=parent["release_id"],
        reconciliation_cutoff=cutoff,
        limits=LimitsRequest(
            max_queue_age_s=parent["max_queue_age_s"],
            processing_timeout_s=parent["processing_timeout_s"],
            result_retention_s=parent["result_retention_s"],
            max_attempts=parent["max_attempts"],
        ),
        notification=EffectDemand(parent["notification"]),
        review_tasks=EffectDemand(parent["review_tasks"]),
    )


def frozen_limits(parent: dict[str, Any]) -> JobLimits:
    """Return the limits that were frozen into the parent."""
    return JobLimits(**{name: parent[name] for name in JobLimits.__slots__})


def cutoff_of_child(tx: LedgerTransaction, parent: dict[str, Any]) -> dt.datetime | None:
    """Return the parent's cutoff while a job can still be queued before it, None afterwards."""
    cutoff: dt.datetime | None = parent["cutoff_at"]
    now = tx.now()
    deadline = frozen_limits(parent).queue_deadline(submitted_at=now, cutoff=cutoff)
    return cutoff if deadline > now else None


def find_child(tx: LedgerTransaction, parent: dict[str, Any], request: JobRequest) -> dict[str, Any] | None:
    """Return the child that an identical retry has made. Raises KeyConflict for another cutoff."""
    return find_replay(tx, tenant=parent["tenant"], request=request)


def accept_child(
    tx: LedgerTransaction,
    *,
    parent: dict[str, Any],
    touched: Sequence[dict[str, Any]],
    request: JobRequest,
    caller: str,
) -> tuple[dict[str, Any], bool]:
    """Accept the child under the caller's present authority, or find the first one; True when it joined.

    The parent's record stays as it is; its journal names the child, the child's row names the parent.

    Raises:
        NotAllowed: AUTHORITY.* when the caller may not act any more, or the parent is held again.
        InputRefused: RELEASE.RETIRED.v1: the pins are no longer approved. KeyConflict: another cutoff.
    """
    refuse_open_parent(tx, parent)
    known = find_child(tx, parent, request)
    if known is not None:
        return known, True
    require_authority(tx, tenant=parent["tenant"], caller=caller)
    child = insert_job(
        tx,
        tenant=parent["tenant"],
        caller=caller,
        request=request,
        limits=frozen_limits(parent),
        stored=[StoredItem(**{name: item[name] for name in StoredItem.__slots__}) for item in touched],
        family=Lineage(parent_job_id=parent["job_id"], lineage=parent["lineage"]),
        shadow=ROLLOUT_SHADOW.code in parent["warnings"],
    )
    assert Pins.from_document(child) == Pins.from_document(parent), "a retry keeps its pins"
    append_event(
        tx,
        EventKind.RETRIED,
        job_id=parent["job_id"],
        tenant=parent["tenant"],
        child=child["job_id"],
        items=len(touched),
        by=caller,
    )
    return child, False


def resolve_by_children(tx: LedgerTransaction) -> list[str]:
    """Resolve open questions about unresolved items all of which a job of the same lineage has settled."""
    answered = []
    for row in tx.rows(_LEFT_TO_CHILDREN):
        settled = _settled_items(tx, row["lineage"])
        wanted = set(row["evidence"].get("item_ids", ()))
        if wanted and wanted <= settled.keys():
            children = sorted({settled[item_id] for item_id in wanted})
            resolve_investigation(
                tx,
                row["investigation_id"],
                resolution=f"settled by the retry in {', '.join(children)}",
                actor=RECONCILER,
            )
            answered.append(str(row["investigation_id"]))
    return answered


def _settled_items(tx: LedgerTransaction, lineage: str) -> dict[str, str]:
    """Return, per item id that a closed child gave an outcome, that child."""
    query = (
        select(items.c.item_id, items.c.job_id)
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .where(jobs.c.lineage == lineage)
        .where(jobs.c.parent_job_id.is_not(None))
        .where(jobs.c.state.in_([JobState.SUCCEEDED, JobState.FAILED]))
        .where(items.c.item_class.in_(FINISHED_CLASSES))
    )
    return {row["item_id"]: row["job_id"] for row in tx.rows(query)}
