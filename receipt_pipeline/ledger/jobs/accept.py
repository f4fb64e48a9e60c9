"""Insert a job, or find the job that a replay joins."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, insert, select

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import InputRefused, KeyConflict
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import JobState, Phase
from receipt_pipeline.core.pins import Pins, decision_id
from receipt_pipeline.core.reasons import (
    CUTOFF_PASSED,
    KEY_CONFLICT,
    LIMIT_TOO_SHORT,
    LIMITS_ALIKE,
    ROLLOUT_SHADOW,
)
from receipt_pipeline.core.request import ITEM_SECONDS_MIN, JobLimits, JobRequest, differing_fields
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.releases import resolve_release
from receipt_pipeline.ledger.rows import read_job
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


@dataclass(frozen=True, slots=True)
class Lineage:
    """The family a job belongs to: a child names its parent and shares its lineage."""

    parent_job_id: str | None = None
    lineage: str | None = None


# Every acceptance asks both, the first one twice: built once.
_BY_KEY = (
    select(jobs)
    .where(jobs.c.tenant == bindparam("of_tenant"))
    .where(jobs.c.idempotency_key == bindparam("key"))
)
_SAME_BYTES = (
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
    .where(items.c.tenant == bindparam("of_tenant"))
    .where(items.c.sha256.in_(bindparam("digests", expanding=True)))
    .where(jobs.c.lineage != bindparam("own_lineage"))
    # Nothing of a shadow was sent on: it makes no later request a repetition.
    .where(sa.cast(jobs.c.warnings, sa.Text).not_like(f"%{ROLLOUT_SHADOW.code}%"))
    .where(
        sa.or_(
            sa.and_(jobs.c.state.in_([JobState.ACCEPTED, JobState.RUNNING]), items.c.item_class.is_(None)),
            items.c.item_class == ItemClass.CLASSIFIED,
        )
    )
    .order_by(jobs.c.submitted_at, items.c.ordinal)
)


def find_replay(tx: LedgerTransaction, *, tenant: str, request: JobRequest) -> dict[str, Any] | None:
    """Return the job that already answers this request, None when the key is new.

    Raises:
        KeyConflict: the key names a different request; facts name the fields, never the values.
    """
    row = tx.row(_BY_KEY, {"of_tenant": tenant, "key": request.idempotency_key})
    if row is None or row["fingerprint"] == request.fingerprint:
        return row
    differing = differing_fields(row["fingerprint_document"], request.fingerprint_document())
    raise KeyConflict(KEY_CONFLICT, pointer="/idempotency_key", job_id=row["job_id"], differing=differing)


def insert_job(
    tx: LedgerTransaction,
    *,
    tenant: str,
    caller: str,
    request: JobRequest,
    limits: JobLimits,
    stored: Sequence[StoredItem],
    family: Lineage = Lineage(),
    shadow: bool = False,
) -> dict[str, Any]:
    """Write the accepted job with frozen pins, deadlines and evidence of repetition.

    The alias is resolved here, once, inside the caller's transaction. A concurrent winner of the
    same key makes the insert raise IntegrityError; the caller then answers as a replay.

    Args:
        shadow: an older system serves the caller: whatever the request asks for, no effect leaves.

    Raises:
        InputRefused: RELEASE.* or CUTOFF.PASSED.v1.
    """
    # Two jobs of one tenant that come at once must see each other's bytes.
    tx.serialise(f"accept:{tenant}")
    release = resolve_release(tx, request.release)
    now = tx.now()
    deadline = limits.queue_deadline(submitted_at=now, cutoff=request.reconciliation_cutoff)
    if deadline <= now:
        raise InputRefused(
            CUTOFF_PASSED, pointer="/reconciliation_cutoff", queue_deadline=deadline.isoformat()
        )
    pins = Pins(**{name: release[name] for name in Pins.__slots__})
    job_id = new_id(tx, "job")
    tx.execute(
        insert(jobs),
        _job_values(request, limits, release, family)
        | {"job_id": job_id, "tenant": tenant, "caller": caller, "lineage": family.lineage or job_id}
        | {"items_requested": len(stored), "submitted_at": now, "queue_deadline": deadline}
        | {"warnings": _warnings(request, len(stored))}
        | (_shadowed(request, len(stored)) if shadow else {}),
    )
    evidence = find_earlier(
        tx, tenant=tenant, caller=caller, pins=pins, stored=stored, lineage=family.lineage
    )
    _insert_items(tx, job_id=job_id, tenant=tenant, pins=pins, stored=stored, evidence=evidence)
    append_event(
        tx, EventKind.ACCEPTED, job_id=job_id, tenant=tenant, release_id=pins.release_id, items=len(stored)
    )
    row = read_job(tx, job_id)
    assert row is not None
    return row


def _job_values(
    request: JobRequest, limits: JobLimits, release: dict[str, Any], family: Lineage
) -> dict[str, Any]:
    pinned = {name: release[name] for name in Pins.__slots__}
    return pinned | {
        "idempotency_key": request.idempotency_key,
        "fingerprint": request.fingerprint,
        "fingerprint_document": request.fingerprint_document(),
        "contract": request.contract,
        "operation_class": request.operation_class,
        "release_as_written": request.release,
        "max_queue_age_s": limits.max_queue_age_s,
        "processing_timeout_s": limits.processing_timeout_s,
        "result_retention_s": limits.result_retention_s,
        "max_attempts": limits.max_attempts,
        "cutoff_margin_s": limits.cutoff_margin_s,
        "cutoff_at": request.reconciliation_cutoff,
        "notification": request.notification.value,
        "review_tasks": request.review_tasks.value,
        "state": JobState.ACCEPTED,
        "phase": Phase.QUEUED,
        "parent_job_id": family.parent_job_id,
    }


def _shadowed(request: JobRequest, count: int) -> dict[str, Any]:
    codes = [*_warnings(request, count), ROLLOUT_SHADOW.code]
    return {"notification": EffectDemand.NONE, "review_tasks": EffectDemand.NONE, "warnings": codes}


def _warnings(request: JobRequest, count: int) -> list[str]:
    written = request.limits
    codes = []
    if written.processing_timeout_s is not None and written.processing_timeout_s < ITEM_SECONDS_MIN * count:
        codes.append(LIMIT_TOO_SHORT.code)
    clocks = {written.max_queue_age_s, written.processing_timeout_s, written.result_retention_s}
    if len(clocks) == 1 and None not in clocks:
        codes.append(LIMITS_ALIKE.code)
    return codes


def _insert_items(
    tx: LedgerTransaction,
    *,
    job_id: str,
    tenant: str,
    pins: Pins,
    stored: Sequence[StoredItem],
    evidence: Sequence[dict[str, Any]],
) -> None:
    rows = [
        {
            "job_id": job_id,
            "ordinal": ordinal,
            "item_id": item.item_id,
            "id_explicit": item.id_explicit,
            "label": item.label,
            "sha256": item.sha256,
            "size_bytes": item.size_bytes,
            "media_type": item.media_type,
            "tenant": tenant,
            "decision_id": decision_id(job_id=job_id, item_id=item.item_id, pins=pins),
        }
        | evidence[ordinal]
        for ordinal, item in enumerate(stored)
    ]
    for start in range(0, len(rows), INSERT_BATCH_MAX):
        tx.execute(insert(items), rows[start : start + INSERT_BATCH_MAX])


def find_earlier(
    tx: LedgerTransaction,
    *,
    tenant: str,
    caller: str,
    pins: Pins,
    stored: Sequence[StoredItem],
    lineage: str | None = None,
) -> list[dict[str, Any]]:
    """Return per item the frozen evidence of repetition: the earlier item with the same bytes.

    An earlier item counts when its job is open or it was classified, and its job is of another
    lineage. One that could answer for this item (same caller, explicit id, pins) is preferred and
    marked `earlier_alike`.
    """
    candidates: dict[str, list[dict[str, Any]]] = {}
    digests = sorted({item.sha256 for item in stored})
    for start in range(0, len(digests), INSERT_BATCH_MAX):
        batch = digests[start : start + INSERT_BATCH_MAX]
        asked = {"of_tenant": tenant, "digests": batch, "own_lineage": lineage or ""}
        for row in tx.rows(_SAME_BYTES, asked):
            candidates.setdefault(row["sha256"], []).append(row)
    return [_evidence(item, candidates.get(item.sha256, []), caller, pins) for item in stored]


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
    return {
        "earlier_job_id": chosen["job_id"],
        "earlier_ordinal": chosen["ordinal"],
        "earlier_alike": bool(alike),
    }


def record_replay(tx: LedgerTransaction, job: dict[str, Any], *, door: str) -> None:
    """Journal that an identical request joined this job."""
    append_event(tx, EventKind.REPLAYED, job_id=job["job_id"], tenant=job["tenant"], door=door)


def queue_age_s(job: dict[str, Any], *, at: dt.datetime) -> float:
    """Return seconds from submission to the first claim, the terminal record, or `at`."""
    end = job["claimed_at"] or job["terminal_at"] or at
    return max(0.0, float((end - job["submitted_at"]).total_seconds()))
