"""Consumed events and review tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Integer, bindparam, insert, select, update

from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.errors import NotAllowed, NotFound
from receipt_pipeline.core.items import Decision, ItemClass
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.principals import Role
from receipt_pipeline.core.reasons import AUTHORITY_REVOKED, NOT_FOUND
from receipt_pipeline.core.reasons import TASK_DONE as TASK_DONE_ALREADY
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.grants import authority_fault
from receipt_pipeline.ledger.jobs.finalize import finish_job_if_done
from receipt_pipeline.ledger.jobs.quarantine import OPEN, open_quarantines
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.ledger.schema.effects import consumed, effects, quarantine, review_tasks
from receipt_pipeline.ledger.schema.jobs import items, jobs

TASK_OPEN = "open"
AUTO_CLEARED = "auto_cleared"
TASK_DONE = "done"

# Every pass and every success runs these.
_DUE = (
    select(jobs)
    .join(effects, effects.c.job_id == jobs.c.job_id)
    .where(effects.c.kind == EffectKind.REVIEW_TASKS)
    .where(effects.c.state.in_([EffectState.INTENDED, EffectState.UNKNOWN, EffectState.FAILED]))
    .where(jobs.c.state == JobState.SUCCEEDED)
    .where(jobs.c.job_id.not_in(select(quarantine.c.job_id).where(quarantine.c.state == OPEN)))
    .order_by(jobs.c.terminal_at)
    .limit(bindparam("limit", type_=Integer()))
)
_CLASSIFIED = (
    select(items)
    .where(items.c.job_id == bindparam("of_job"))
    .where(items.c.item_class == ItemClass.CLASSIFIED)
    .order_by(items.c.ordinal)
)
_TASK = select(review_tasks.c.decision_id).where(review_tasks.c.decision_id == bindparam("of_decision"))
_TASKS_EFFECT = (
    update(effects)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.kind == EffectKind.REVIEW_TASKS)
    .where(effects.c.state != EffectState.COMMITTED)
)


def due_consumption(tx: LedgerTransaction, *, limit: int, job_id: str | None = None) -> list[dict[str, Any]]:
    """Return verified successes whose review tasks are not made yet and that nothing holds."""
    return tx.rows(_DUE.where(jobs.c.job_id == job_id) if job_id else _DUE, {"limit": limit})


def make_review_tasks(tx: LedgerTransaction, job: JobRow) -> int:
    """Create one task per decision ID of a verified success; returns how many were new.

    `clear` decisions are created closed (`auto_cleared`), so that there is a task for every decision.
    The caller has verified the object against the ledger before this transaction. A job that was
    quarantined since then gets none, and its effect stays due.
    """
    read_job(tx, job.job_id, lock=True)
    if open_quarantines(tx, job.job_id):
        return 0
    now = tx.now()
    made = 0
    # A caller who lost the grant meanwhile clears nothing: a reviewer looks at every decision.
    denied = authority_fault(tx, tenant=job.tenant, caller=job.caller, role=Role.SUBMITTER)
    doubts = [denied.code] if denied is AUTHORITY_REVOKED else []
    rows = tx.rows(_CLASSIFIED, {"of_job": job.job_id})
    for item in rows:
        if tx.row(_TASK, {"of_decision": item["decision_id"]}) is not None:
            continue
        cleared = item["decision"] == Decision.CLEAR and not doubts
        tx.execute(
            insert(review_tasks),
            {
                "decision_id": item["decision_id"],
                "job_id": job.job_id,
                "tenant": job.tenant,
                "ordinal": item["ordinal"],
                "item_id": item["item_id"],
                "decision": item["decision"],
                "reasons": [*(item["reasons"] or []), *doubts],
                "result_digest": job.result_digest,
                "outcome_digest": item["outcome_digest"],
                "state": AUTO_CLEARED if cleared else TASK_OPEN,
                "created_at": now,
                "closed_at": now if cleared else None,
            },
        )
        made += 1
    tx.execute(
        _TASKS_EFFECT,
        {
            "of_job": job.job_id,
            "state": EffectState.COMMITTED,
            "provider_reference": f"{len(rows)} decisions",
            "committed_at": now,
            "updated_at": now,
        },
    )
    finish_job_if_done(tx, job.job_id)
    return made


@dataclass(frozen=True, slots=True)
class ConsumedEvent:
    """One received event and what it led to: acted, noted, duplicate, late, conflict and so on."""

    event_id: str
    job_id: str
    event_kind: str
    source: str
    outcome: str
    result_digest: str | None = None
    reason_code: str = ""
    tasks_made: int = 0


def record_consumed(tx: LedgerTransaction, event: ConsumedEvent) -> None:
    """Record one received event and append it to the journal."""
    tx.execute(insert(consumed), asdict(event) | {"received_at": tx.now()})
    append_event(
        tx,
        EventKind.CONSUMED,
        job_id=event.job_id,
        event_id=event.event_id,
        outcome=event.outcome,
        tasks_made=event.tasks_made,
    )


def close_review_task(tx: LedgerTransaction, *, decision_id: str, tenant: str, actor: str) -> None:
    """Mark a tenant's open task as done by a reviewer.

    Raises:
        NotFound: no such task of this tenant. NotAllowed: TASK.DONE.v1 when it is closed already.
    """
    written = tx.execute(
        update(review_tasks)
        .where(review_tasks.c.decision_id == decision_id)
        .where(review_tasks.c.tenant == tenant)
        .where(review_tasks.c.state == TASK_OPEN)
        .values(state=TASK_DONE, closed_at=tx.now())
    )
    row = tx.row(
        select(review_tasks).where(review_tasks.c.decision_id == decision_id).where(review_tasks.c.tenant == tenant)
    )
    if row is None:
        raise NotFound(NOT_FOUND, decision_id=decision_id)
    if written.rowcount == 0:
        raise NotAllowed(TASK_DONE_ALREADY, decision_id=decision_id, state=row["state"])
    append_event(tx, EventKind.EFFECT_CHANGED, job_id=row["job_id"], task=decision_id, state=TASK_DONE, by=actor)
