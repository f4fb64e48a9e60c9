"""Expire jobs past their deadlines."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.reasons import IDENTITY_RETIRED
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.claim import limit_reached
from receipt_pipeline.ledger.jobs.expire import expire_job, overdue_job_ids, overrun_job, overrunning_jobs
from receipt_pipeline.ledger.jobs.failures import close_for_identity
from receipt_pipeline.ledger.jobs.waves import close_silent_waves, mark_incapable, supported_release_ids
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import jobs, releases
from receipt_pipeline.reconciliation.context import JOBS_BATCH_MAX, ReconciliationContext


def expire_overdue(context: ReconciliationContext) -> list[str]:
    """Expire accepted jobs past their queue deadline; a claim that came first wins."""
    with context.ledger.reading() as tx:
        overdue = overdue_job_ids(tx, limit=JOBS_BATCH_MAX)
    expired = []
    for job_id in overdue:
        point("expire.before")
        with context.ledger.transaction() as tx:
            if expire_job(tx, job_id=job_id, limits=context.limits):
                expired.append(job_id)
        point("expire.after")
    return expired


def take_over_overrunning(context: ReconciliationContext) -> list[str]:
    """Take jobs from workers that did not close within the grace; closing attempts finish them."""
    grace_s = context.limits.work.overrun_grace_s
    with context.ledger.reading() as tx:
        late = overrunning_jobs(tx, grace_s=grace_s, limit=JOBS_BATCH_MAX)
    taken = []
    for row in late:
        point("takeover.before")
        with context.ledger.transaction() as tx:
            job = read_job(tx, row["job_id"], lock=True)
            cause = limit_reached(job, tx.now()) if job is not None else None
            if cause is not None and overrun_job(
                tx, job_id=row["job_id"], seen_epoch=row["lease_epoch"], cause=cause, grace_s=grace_s
            ):
                taken.append(row["job_id"])
        point("takeover.after")
    return taken


def close_retired(context: ReconciliationContext) -> list[str]:
    """Close accepted jobs whose release was retired and that no live worker supports."""
    with context.ledger.reading() as tx:
        stranded = _retired_jobs(tx, context)
    closed = []
    for job_id in stranded:
        with context.ledger.transaction() as tx:
            job = read_job(tx, job_id, lock=True)
            waiting = job is not None and job.state == JobState.ACCEPTED
            if waiting and close_for_identity(tx, job_id, reason=IDENTITY_RETIRED, limits=context.limits):
                closed.append(job_id)
    return closed


_RETIRED = (
    select(jobs.c.job_id)
    .join(releases, releases.c.release_id == jobs.c.release_id)
    .where(jobs.c.state == JobState.ACCEPTED)
    .where(releases.c.retired_at.is_not(None))
    .where(jobs.c.release_id.not_in(bindparam("supported", expanding=True)))
    .order_by(jobs.c.submitted_at)
    .limit(JOBS_BATCH_MAX)
)


def _retired_jobs(tx: LedgerTransaction, context: ReconciliationContext) -> list[str]:
    supported = supported_release_ids(tx, worker_ttl_s=context.limits.work.worker_ttl_s)
    return [str(row["job_id"]) for row in tx.rows(_RETIRED, {"supported": sorted(supported)})]


def close_waves_and_mark_waiting(context: ReconciliationContext) -> tuple[list[str], list[str]]:
    """Close silent waves and mark the jobs that wait for a capable worker; returns wave ids and job ids."""
    with context.ledger.transaction() as tx:
        silent = close_silent_waves(tx, limits=context.limits)
        stranded = mark_incapable(tx, worker_ttl_s=context.limits.work.worker_ttl_s)
    return silent, stranded
