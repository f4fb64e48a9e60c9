"""Counts of jobs, deliveries and review tasks, and what of a job's consequences is still open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Table, func, select

from receipt_pipeline.core.effect_lifecycle import EffectKind, EffectState
from receipt_pipeline.core.job_lifecycle import JobState
from receipt_pipeline.ledger.consume import TASK_OPEN
from receipt_pipeline.ledger.effect_tables import deliveries, effects, outbox, quarantine, review_tasks
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.tables import jobs

LIST_MAX = 1_000


def _per_value(tx: LedgerTransaction, table: Table, column: Column[str]) -> dict[str, int]:
    rows = tx.rows(select(column.label("name"), func.count().label("n")).select_from(table).group_by(column))
    return {row["name"]: row["n"] for row in sorted(rows, key=lambda row: str(row["name"]))}


def count_jobs(tx: LedgerTransaction) -> dict[str, int]:
    """Return the number of jobs per state, every state named."""
    return dict.fromkeys((state.value for state in JobState), 0) | _per_value(tx, jobs, jobs.c.state)


def count_deliveries(tx: LedgerTransaction) -> dict[str, int]:
    """Return the number of deliveries per outcome, and of messages still due."""
    due = tx.scalar(select(func.count()).select_from(outbox).where(outbox.c.state == "due"))
    return _per_value(tx, deliveries, deliveries.c.outcome) | {"due": int(due or 0)}


def count_review_tasks(tx: LedgerTransaction) -> dict[str, int]:
    """Return the number of review tasks per state."""
    return _per_value(tx, review_tasks, review_tasks.c.state)


def unsettled_jobs(tx: LedgerTransaction, job_ids: Sequence[str]) -> list[str]:
    """Return the terminal jobs among these whose tasks or notification have not had their turn.

    A quarantined job waits for a person, so it does not count.
    """
    held = select(quarantine.c.job_id).where(quarantine.c.state == "open")
    open_effects = (
        select(effects.c.job_id)
        .where(effects.c.job_id.in_(list(job_ids)))
        .where(effects.c.kind.in_([EffectKind.REVIEW_TASKS, EffectKind.NOTIFICATION]))
        .where(effects.c.state == EffectState.INTENDED)
        .where(effects.c.job_id.not_in(held))
        .distinct()
    )
    return [row["job_id"] for row in tx.rows(open_effects)]


def list_review_tasks(
    tx: LedgerTransaction, *, tenant: str, only_open: bool, job_id: str | None = None
) -> list[dict[str, Any]]:
    """Return a tenant's review tasks, oldest first."""
    query = select(review_tasks).where(review_tasks.c.tenant == tenant)
    if only_open:
        query = query.where(review_tasks.c.state == TASK_OPEN)
    if job_id is not None:
        query = query.where(review_tasks.c.job_id == job_id)
    return tx.rows(query.order_by(review_tasks.c.created_at, review_tasks.c.decision_id).limit(LIST_MAX))
