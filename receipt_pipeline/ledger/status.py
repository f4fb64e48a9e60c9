"""Status, lists and counts of jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Column, Table, func, select

from receipt_pipeline.core.audiences import DOCUMENTS, Audience
from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.errors import NotFound
from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.reasons import NOT_FOUND, RESULT_WITHDRAWN
from receipt_pipeline.core.status_document import Adjustment, JobFacts
from receipt_pipeline.ledger.effects.consumption import TASK_OPEN
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.finalize import item_counts
from receipt_pipeline.ledger.jobs.quarantine import WITHDRAW, open_quarantines
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.ledger.schema.effects import (
    deliveries,
    effects,
    investigations,
    object_checks,
    outbox,
    quarantine,
    review_tasks,
    tombstones,
)
from receipt_pipeline.ledger.schema.jobs import attempts, events, items, jobs, submissions

AUDIENCES: tuple[str, ...] = tuple(Audience)
LIST_MAX = 1_000


def read_own_job(tx: LedgerTransaction, job_id: str, *, tenant: str | None) -> JobRow:
    """Return a job's row; `tenant=None` is the product itself.

    Raises:
        NotFound: unknown, or another tenant's: the same answer.
    """
    job = read_job(tx, job_id)
    if job is None or tenant not in (None, job.tenant):
        raise NotFound(NOT_FOUND, job_id=job_id)
    return job


def read_facts(tx: LedgerTransaction, job_id: str, *, tenant: str | None = None, whole: bool = False) -> JobFacts:
    """Return everything that the documents of one job are built from.

    Args:
        whole: items and events too, which the customer's view does without.
    """
    job = read_own_job(tx, job_id, tenant=tenant)

    def of_job(table: Any, order: Any) -> list[dict[str, Any]]:
        return tx.rows(select(table).where(table.c.job_id == job_id).order_by(order))

    outcome = None
    if job.result_key is not None:
        checked = select(object_checks.c.outcome).where(object_checks.c.object_key == job.result_key)
        outcome = tx.scalar(checked)
    return JobFacts(
        job=job.as_mapping(),
        counts=item_counts(tx, job_id),
        attempts=of_job(attempts, attempts.c.lease_epoch),
        effects=of_job(effects, effects.c.intended_at),
        deliveries=of_job(deliveries, deliveries.c.delivered_at),
        investigations=of_job(investigations, investigations.c.opened_at),
        quarantined=bool(open_quarantines(tx, job_id)),
        object_outcome=outcome,
        read_at=tx.now(),
        adjustments=read_adjustments(tx, job_id),
        children=_ids_where(tx, jobs.c.parent_job_id == job_id),
        supersedes=_ids_where(tx, jobs.c.superseded_by == job_id),
        withdrawn=is_withdrawn(tx, job),
        reasons=read_reasons(tx, job_id),
        items=of_job(items, items.c.ordinal) if whole else (),
        events=of_job(events, events.c.seq) if whole else (),
    )


def read_reasons(tx: LedgerTransaction, job_id: str) -> dict[str, int]:
    """Count the items that are not in the result by their reason code; these outlive every payload."""
    query = (
        select(items.c.reason_code, func.count().label("n"))
        .where(items.c.job_id == job_id)
        .where(items.c.item_class.is_not(None))
        .where(items.c.item_class.not_in(sorted(KEPT_CLASSES)))
        .group_by(items.c.reason_code)
    )
    return {row["reason_code"]: row["n"] for row in tx.rows(query) if row["reason_code"]}


def _ids_where(tx: LedgerTransaction, condition: Any) -> list[str]:
    query = select(jobs.c.job_id).where(condition).order_by(jobs.c.submitted_at, jobs.c.job_id)
    return [str(row["job_id"]) for row in tx.rows(query)]


def read_adjustments(tx: LedgerTransaction, job_id: str) -> list[Adjustment]:
    """Return which items got their class by another way than a worker's checkpoint, counted by reason."""
    query = (
        select(items.c.item_class, items.c.reason_code, func.count().label("n"))
        .where(items.c.job_id == job_id)
        .where(items.c.item_class.is_not(None))
        .where(items.c.written_epoch.is_(None))
        .group_by(items.c.item_class, items.c.reason_code)
        .order_by(items.c.item_class, items.c.reason_code)
    )
    return [Adjustment(ItemClass(row["item_class"]), row["reason_code"], row["n"]) for row in tx.rows(query)]


def is_withdrawn(tx: LedgerTransaction, job: JobRow) -> bool:
    """Return whether a recorded decision withdrew the job's result: divergent outputs, or a lost object."""
    decided = select(quarantine.c.quarantine_id).where(
        quarantine.c.job_id == job.job_id, quarantine.c.resolution == WITHDRAW
    )
    withdrawn = select(tombstones.c.object_key).where(
        tombstones.c.object_key == job.result_key, tombstones.c.reason == RESULT_WITHDRAWN.code
    )
    return tx.row(decided) is not None or tx.row(withdrawn) is not None


def read_status(
    tx: LedgerTransaction, job_id: str, *, tenant: str | None = None, audience: str = "customer"
) -> dict[str, Any]:
    """Return the status document of a job for one audience."""
    view = Audience(audience)
    return DOCUMENTS[view](read_facts(tx, job_id, tenant=tenant, whole=view is not Audience.CUSTOMER))


def list_jobs(
    tx: LedgerTransaction, *, tenant: str | None, state: JobState | None = None, limit: int = LIST_MAX
) -> list[dict[str, Any]]:
    """Return jobs, newest first: id, state, phase, class, reason, items, times."""
    query = select(
        jobs.c.job_id,
        jobs.c.idempotency_key,
        jobs.c.state,
        jobs.c.phase,
        jobs.c.terminal_class,
        jobs.c.reason_code,
        jobs.c.items_requested,
        jobs.c.submitted_at,
        jobs.c.terminal_at,
    ).order_by(jobs.c.submitted_at.desc(), jobs.c.job_id.desc())
    if tenant is not None:
        query = query.where(jobs.c.tenant == tenant)
    if state is not None:
        query = query.where(jobs.c.state == state)
    return tx.rows(query.limit(limit))


def last_runs(tx: LedgerTransaction, job_ids: Collection[str]) -> dict[str, str]:
    """Return per job the run that worked it last; a job that no run has worked is left out."""
    query = (
        select(attempts.c.job_id, attempts.c.run_id)
        .where(attempts.c.job_id.in_(sorted(job_ids)))
        .where(attempts.c.run_id != "")
        .order_by(attempts.c.lease_epoch)
    )
    return {row["job_id"]: row["run_id"] for row in tx.rows(query)}


TASKS_LIST_MAX = 1_000


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


def count_submissions(tx: LedgerTransaction) -> dict[str, int]:
    """Return the number of submissions per state."""
    return _per_value(tx, submissions, submissions.c.state)


def count_object_checks(tx: LedgerTransaction) -> dict[str, int]:
    """Return the number of stored objects per outcome of their last check."""
    return _per_value(tx, object_checks, object_checks.c.outcome)


def count_review_tasks(tx: LedgerTransaction) -> dict[str, int]:
    """Return the number of review tasks per state."""
    return _per_value(tx, review_tasks, review_tasks.c.state)


def unfinished_jobs(tx: LedgerTransaction, job_ids: Sequence[str]) -> list[str]:
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
    return tx.rows(query.order_by(review_tasks.c.created_at, review_tasks.c.decision_id).limit(TASKS_LIST_MAX))
