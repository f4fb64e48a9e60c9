"""Child jobs over what a closed job left unresolved."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from sqlalchemy import exists, select

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState, Phase
from receipt_pipeline.core.reasons import RESULT_QUARANTINED, RETRY_JOB_OPEN, ROLLOUT_SHADOW, UPLOAD_UNKNOWN
from receipt_pipeline.core.request import ItemRequest, JobRequest, LimitsRequest
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.grants import require_authority
from receipt_pipeline.ledger.investigations import OPEN, RECONCILER, InvestigationKind, resolve_investigation
from receipt_pipeline.ledger.jobs.accept import Lineage, NewJob, StoredItem, find_replay, insert_job
from receipt_pipeline.ledger.jobs.quarantine import open_quarantines
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import ItemRow, JobRow
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import items, jobs

FINISHED_CLASSES = (ItemClass.CLASSIFIED, ItemClass.UNCHANGED, ItemClass.REJECTED)


def refuse_open_parent(tx: LedgerTransaction, job: JobRow) -> None:
    """Refuse a retry while anything of the job may still be in the making.

    Raises:
        NotAllowed: UPLOAD.UNKNOWN.v1 while an effect is unknown, RESULT.QUARANTINED.v1 while outputs
            diverge, RETRY.JOB_OPEN.v1 for any other open job.
    """
    job_id = job.job_id
    if job.phase is Phase.RECONCILING:
        raise NotAllowed(UPLOAD_UNKNOWN, job_id=job_id)
    if open_quarantines(tx, job_id):
        raise NotAllowed(RESULT_QUARANTINED, job_id=job_id)
    if job.state not in TERMINAL_STATES:
        raise NotAllowed(RETRY_JOB_OPEN, job_id=job_id, state=job.state)


def child_request(parent: JobRow, touched: Sequence[ItemRow], *, cutoff: dt.datetime | None) -> JobRequest:
    """Return the request of a child: the parent's limits and effects, its release by id, these items.

    Its key is derived from parent and items, so that an identical retry finds the first child.
    """
    ids = digest_of([item.item_id for item in touched]).removeprefix("sha256:")
    return JobRequest(
        contract=parent.contract,
        idempotency_key=f"retry-{parent.job_id}-{ids[:16]}",
        items=tuple(
            ItemRequest(
                item_id=item.item_id,
                uri=item.label,
                sha256=item.sha256.removeprefix("sha256:"),
                size_bytes=item.size_bytes,
                media_type=item.media_type or None,
                id_explicit=item.id_explicit,
            )
            for item in touched
        ),
        operation_class=parent.operation_class,
        release=parent.release_id,
        reconciliation_cutoff=cutoff,
        limits=LimitsRequest(
            max_queue_age_s=parent.max_queue_age_s,
            processing_timeout_s=parent.processing_timeout_s,
            result_retention_s=parent.result_retention_s,
            max_attempts=parent.max_attempts,
        ),
        notification=parent.notification,
        review_tasks=parent.review_tasks,
    )


def cutoff_of_child(tx: LedgerTransaction, parent: JobRow) -> dt.datetime | None:
    """Return the parent's cutoff while a job can still be queued before it, None afterwards."""
    now = tx.now()
    deadline = parent.limits.queue_deadline(submitted_at=now, cutoff=parent.cutoff_at)
    return parent.cutoff_at if deadline > now else None


def find_child(tx: LedgerTransaction, parent: JobRow, request: JobRequest) -> JobRow | None:
    """Return the child that an identical retry has made. Raises KeyConflict for another cutoff."""
    return find_replay(tx, tenant=parent.tenant, request=request)


def accept_child(
    tx: LedgerTransaction, *, parent: JobRow, touched: Sequence[ItemRow], request: JobRequest, caller: str
) -> tuple[JobRow, bool]:
    """Accept the child under the caller's present authority, or find the first one; True when it joined.

    The parent's record stays as it is; its journal names the child, the child's row names the parent.

    Raises:
        NotAllowed: AUTHORITY.* when the caller may no longer act, or the parent is held again.
        InputRefused: RELEASE.RETIRED.v1: the pins are no longer approved. KeyConflict: another cutoff.
    """
    refuse_open_parent(tx, parent)
    known = find_child(tx, parent, request)
    if known is not None:
        return known, True
    require_authority(tx, tenant=parent.tenant, caller=caller)
    child = insert_job(
        tx,
        NewJob(
            tenant=parent.tenant,
            caller=caller,
            request=request,
            limits=parent.limits,
            stored=[StoredItem.copied_from(item) for item in touched],
            family=Lineage(parent_job_id=parent.job_id, lineage=parent.lineage),
            shadow=ROLLOUT_SHADOW.code in parent.warnings,
        ),
    )
    assert child.pins == parent.pins, "a retry keeps its pins"
    append_event(
        tx,
        EventKind.RETRIED,
        job_id=parent.job_id,
        tenant=parent.tenant,
        child=child.job_id,
        items=len(touched),
        by=caller,
    )
    return child, False


def resolve_by_children(tx: LedgerTransaction) -> list[str]:
    """Resolve open investigations of unresolved items that jobs of the same lineage have all finished."""
    child = jobs.alias("child")
    left = (
        select(investigations.c.investigation_id, investigations.c.evidence, jobs.c.lineage)
        .join(jobs, jobs.c.job_id == investigations.c.job_id)
        .where(
            investigations.c.kind == InvestigationKind.UNRESOLVED_ITEMS,
            investigations.c.state == OPEN,
            exists(select(child.c.job_id).where(child.c.parent_job_id == jobs.c.job_id)),
        )
        .order_by(investigations.c.investigation_id)
    )
    resolved = []
    for row in tx.rows(left):
        finished = _finished_items(tx, row["lineage"])
        wanted = set(row["evidence"].get("item_ids", ()))
        if wanted and wanted <= finished.keys():
            children = sorted({finished[item_id] for item_id in wanted})
            resolve_investigation(
                tx,
                row["investigation_id"],
                resolution=f"settled by the retry in {', '.join(children)}",
                actor=RECONCILER,
            )
            resolved.append(str(row["investigation_id"]))
    return resolved


def _finished_items(tx: LedgerTransaction, lineage: str) -> dict[str, str]:
    """Return, per item id that a closed child gave an outcome, that child."""
    finished = (
        select(items.c.item_id, items.c.job_id)
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .where(
            jobs.c.lineage == lineage,
            jobs.c.parent_job_id.is_not(None),
            jobs.c.state.in_([JobState.SUCCEEDED, JobState.FAILED]),
            items.c.item_class.in_(FINISHED_CLASSES),
        )
    )
    return {row["item_id"]: row["job_id"] for row in tx.rows(finished)}
