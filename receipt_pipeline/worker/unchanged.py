"""Finds an earlier, verified decision that an identical item may keep, so that no model is invoked again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import select

from receipt_pipeline.core.effect_lifecycle import EffectDemand
from receipt_pipeline.core.item_classes import ItemClass
from receipt_pipeline.core.item_outcome import Decision, ItemOutcome
from receipt_pipeline.core.job_lifecycle import JobState
from receipt_pipeline.ledger.effect_tables import quarantine, tombstones
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.tables import items, jobs
from receipt_pipeline.worker.equipment import Worker


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """An earlier item's outcome, kept as `unchanged`, with the decision ID under which it was decided."""

    outcome: ItemOutcome
    decision_id: str


def outcome_of(item: dict[str, Any]) -> ItemOutcome:
    """Return the outcome that an item's row holds."""
    return ItemOutcome(
        item_class=ItemClass(item["item_class"]),
        decision=Decision(item["decision"]) if item["decision"] else None,
        risk_ppm=item["risk_ppm"],
        fields=item["fields"] or {},
        reasons=tuple(item["reasons"] or ()),
        reason_code=item["reason_code"],
        evidence=item["evidence"] or {},
    )


def keep_unchanged(worker: Worker, item: dict[str, Any]) -> KeptDecision | None:
    """Return the decision that this item keeps, None when it has to be computed.

    Acceptance froze which earlier item is alike (same caller, explicit id, bytes and pins). It counts
    when it is classified in a succeeded job that was never quarantined, and that job's result object is
    in the store at this moment with the digest of the ledger. Where this job asks for review tasks, the
    earlier one has to have asked for them too: what is kept makes no task of its own.
    """
    if not item["earlier_alike"]:
        return None
    with worker.ledger.reading() as tx:
        earlier = _earlier(tx, item)
    if earlier is None or earlier["sha256"] != item["sha256"]:
        return None
    wanted = (earlier["result_digest"], earlier["result_size_bytes"])
    if worker.objects.digest(earlier["result_key"]) != wanted:
        return None
    outcome = replace(outcome_of(earlier), item_class=ItemClass.UNCHANGED)
    return KeptDecision(outcome, earlier["decision_id"])


def _earlier(tx: LedgerTransaction, item: dict[str, Any]) -> dict[str, Any] | None:
    disputed = select(quarantine.c.job_id)
    asking = jobs.alias("asking")
    asks_no_tasks = (
        select(asking.c.job_id)
        .where(asking.c.job_id == item["job_id"])
        .where(asking.c.review_tasks == EffectDemand.NONE)
        .exists()
    )
    query = (
        select(items, jobs.c.result_key, jobs.c.result_digest, jobs.c.result_size_bytes)
        .join(jobs, jobs.c.job_id == items.c.job_id)
        .where(items.c.job_id == item["earlier_job_id"])
        .where(items.c.ordinal == item["earlier_ordinal"])
        .where(items.c.item_class == ItemClass.CLASSIFIED)
        .where(jobs.c.state == JobState.SUCCEEDED)
        .where(jobs.c.job_id.not_in(disputed))
        # A decision of which nobody was to make a task is none for a job that asks for tasks.
        .where(sa.or_(jobs.c.review_tasks != EffectDemand.NONE, asks_no_tasks))
        .where(jobs.c.result_key.not_in(select(tombstones.c.object_key)))
    )
    return tx.row(query)
