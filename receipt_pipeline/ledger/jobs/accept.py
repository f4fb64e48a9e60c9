"""Insert a job, or find the job that a replay joins."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import insert, select

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import InputRefused, KeyConflict
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import JobState, Phase
from receipt_pipeline.core.pins import Pins, decision_id
from receipt_pipeline.core.reasons import CUTOFF_PASSED, KEY_CONFLICT, LIMIT_TOO_SHORT, LIMITS_ALIKE, ROLLOUT_SHADOW
from receipt_pipeline.core.request import ITEM_SECONDS_MIN, JobLimits, JobRequest, differing_fields
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.releases import resolve_release
from receipt_pipeline.ledger.rows import ItemRow, JobRow, read_job
from receipt_pipeline.ledger.schema.jobs import items, jobs

INSERT_BATCH_MAX = 500


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item whose scan is stored: `sha256` is a full digest, size in bytes."""

    item_id: str
    id_explicit: bool
    label: str
    sha256: str
    size_bytes: int
    media_type: str

    @classmethod
    def copied_from(cls, item: ItemRow) -> StoredItem:
        """Return the stored scan of an item of another job."""
        return cls(**{name: getattr(item, name) for name in cls.__slots__})


@dataclass(frozen=True, slots=True)
class Lineage:
    """The family a job belongs to: a child names its parent and shares its lineage."""

    parent_job_id: str | None = None
    lineage: str | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """One request on its way to a job.

    Attributes:
        stored: its items in order, their scans stored.
        shadow: a legacy system serves the caller: whatever the request demands, no effect leaves.
    """

    tenant: str
    caller: str
    request: JobRequest
    limits: JobLimits
    stored: Sequence[StoredItem]
    family: Lineage = Lineage()
    shadow: bool = False


def find_replay(tx: LedgerTransaction, *, tenant: str, request: JobRequest) -> JobRow | None:
    """Return the job that this request joins, None when the key is new.

    Raises:
        KeyConflict: the key names a different request; facts name the fields, never the values.
    """
    row = tx.row(select(jobs).where(jobs.c.tenant == tenant, jobs.c.idempotency_key == request.idempotency_key))
    if row is None:
        return None
    job = JobRow.from_row(row)
    if job.fingerprint == request.fingerprint:
        return job
    differing = differing_fields(job.fingerprint_document, request.fingerprint_document())
    raise KeyConflict(KEY_CONFLICT, pointer="/idempotency_key", job_id=job.job_id, differing=differing)


def insert_job(tx: LedgerTransaction, new: NewJob) -> JobRow:
    """Write the accepted job with frozen pins, deadlines and evidence of repetition.

    The alias is resolved here, once, inside the caller's transaction. A concurrent winner of the
    same key makes the insert raise IntegrityError; the caller then answers as a replay.

    Raises:
        InputRefused: RELEASE.* or CUTOFF.PASSED.v1.
    """
    request, limits, tenant = new.request, new.limits, new.tenant
    # Two jobs of one tenant that arrive together must see each other's bytes.
    tx.serialise(f"accept:{tenant}")
    pins = Pins.from_document(resolve_release(tx, request.release))
    now = tx.now()
    deadline = limits.queue_deadline(submitted_at=now, cutoff=request.reconciliation_cutoff)
    if deadline <= now:
        raise InputRefused(CUTOFF_PASSED, pointer="/reconciliation_cutoff", queue_deadline=deadline.isoformat())
    job_id = new_id(tx, "job")
    shadow, warnings = new.shadow, _warnings(request, len(new.stored))
    tx.execute(
        insert(jobs).values(
            job_id=job_id,
            tenant=tenant,
            caller=new.caller,
            idempotency_key=request.idempotency_key,
            fingerprint=request.fingerprint,
            fingerprint_document=request.fingerprint_document(),
            contract=request.contract,
            operation_class=request.operation_class,
            release_as_written=request.release,
            **pins.as_document(),
            **dataclasses.asdict(limits),
            cutoff_at=request.reconciliation_cutoff,
            queue_deadline=deadline,
            notification=EffectDemand.NONE if shadow else request.notification,
            review_tasks=EffectDemand.NONE if shadow else request.review_tasks,
            warnings=[*warnings, ROLLOUT_SHADOW.code] if shadow else warnings,
            items_requested=len(new.stored),
            state=JobState.ACCEPTED,
            phase=Phase.QUEUED,
            submitted_at=now,
            parent_job_id=new.family.parent_job_id,
            lineage=new.family.lineage or job_id,
        )
    )
    _insert_items(tx, job_id, new, pins)
    append_event(
        tx, EventKind.ACCEPTED, job_id=job_id, tenant=tenant, release_id=pins.release_id, items=len(new.stored)
    )
    row = read_job(tx, job_id)
    assert row is not None
    return row


def _warnings(request: JobRequest, count: int) -> list[str]:
    written = request.limits
    codes = []
    if written.processing_timeout_s is not None and written.processing_timeout_s < ITEM_SECONDS_MIN * count:
        codes.append(LIMIT_TOO_SHORT.code)
    clocks = {written.max_queue_age_s, written.processing_timeout_s, written.result_retention_s}
    if len(clocks) == 1 and None not in clocks:
        codes.append(LIMITS_ALIKE.code)
    return codes


def _insert_items(tx: LedgerTransaction, job_id: str, new: NewJob, pins: Pins) -> None:
    evidence = find_earlier(tx, new, pins)
    rows = [
        dataclasses.asdict(item)
        | {
            "job_id": job_id,
            "ordinal": ordinal,
            "tenant": new.tenant,
            "decision_id": decision_id(job_id=job_id, item_id=item.item_id, pins=pins),
        }
        | evidence[ordinal]
        for ordinal, item in enumerate(new.stored)
    ]
    for start in range(0, len(rows), INSERT_BATCH_MAX):
        tx.execute(insert(items), rows[start : start + INSERT_BATCH_MAX])


def find_earlier(tx: LedgerTransaction, new: NewJob, pins: Pins) -> list[dict[str, Any]]:
    """Return per item the frozen evidence of repetition: the earlier item with the same bytes.

    An earlier item counts when its job is open or it was classified, and its job is of another
    lineage. One whose decision this item could keep (same caller, explicit id, pins) is preferred and
    marked `earlier_alike`.
    """
    candidates: dict[str, list[dict[str, Any]]] = {}
    digests = sorted({item.sha256 for item in new.stored})
    for start in range(0, len(digests), INSERT_BATCH_MAX):
        batch = digests[start : start + INSERT_BATCH_MAX]
        for row in tx.rows(_same_bytes(new, batch)):
            candidates.setdefault(row["sha256"], []).append(row)
    return [_evidence(item, candidates.get(item.sha256, []), new.caller, pins) for item in new.stored]


def _same_bytes(new: NewJob, digests: Sequence[str]) -> sa.Select[Any]:
    is_open = jobs.c.state.in_([JobState.ACCEPTED, JobState.RUNNING]) & items.c.item_class.is_(None)
    return (
        select(
            items.c.sha256,
            items.c.job_id,
            items.c.ordinal,
            items.c.item_id,
            items.c.id_explicit,
            jobs.c.caller,
            jobs.c.release_id,
        )
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .where(
            items.c.tenant == new.tenant,
            items.c.sha256.in_(digests),
            jobs.c.lineage != (new.family.lineage or ""),
            # Nothing of a shadow was sent on: it makes no later request a repetition.
            sa.cast(jobs.c.warnings, sa.Text).not_like(f"%{ROLLOUT_SHADOW.code}%"),
            sa.or_(is_open, items.c.item_class == ItemClass.CLASSIFIED),
        )
        .order_by(jobs.c.submitted_at, items.c.ordinal)
    )


def _evidence(item: StoredItem, candidates: list[dict[str, Any]], caller: str, pins: Pins) -> dict[str, Any]:
    alike = [
        row
        for row in candidates
        if item.id_explicit
        and row["id_explicit"]
        and row["item_id"] == item.item_id
        and row["caller"] == caller
        and row["release_id"] == pins.release_id
    ]
    if not candidates:
        return {"earlier_job_id": None, "earlier_ordinal": None, "earlier_alike": False}
    chosen = (alike or candidates)[0]
    return {"earlier_job_id": chosen["job_id"], "earlier_ordinal": chosen["ordinal"], "earlier_alike": bool(alike)}


def record_replay(tx: LedgerTransaction, job: JobRow, *, door: str) -> None:
    """Journal that an identical request joined this job."""
    append_event(tx, EventKind.REPLAYED, job_id=job.job_id, tenant=job.tenant, door=door)
