"""Purges results after their retention: tombstone, deletion, record; the job's row stays (R050)."""

from __future__ import annotations

from receipt_pipeline.core.failure_points import point
from receipt_pipeline.ledger.retention import buried_but_unpurged, bury_result, due_results, record_purged
from receipt_pipeline.reconciliation.services import JOBS_BATCH_MAX, Reconciler


def expire_results(services: Reconciler) -> list[str]:
    """Purge the payload of every result whose retention has passed and that nothing holds.

    A crash after the tombstone is finished by the next pass: the tombstone is the decision.

    Returns:
        The ids of the jobs that were purged.
    Raises:
        ObjectFault: the store refused a deletion; it is tried again by the next pass.
    """
    with services.ledger.reading() as tx:
        begun = buried_but_unpurged(tx, at_most=JOBS_BATCH_MAX)
        due = due_results(tx, at_most=JOBS_BATCH_MAX)
    left: dict[str, list[str]] = {}
    for row in begun:
        left.setdefault(row["job_id"], []).append(row["object_key"])
    purged = [job_id for job_id, keys in left.items() if _purge(services, job_id, keys)]
    for job_id in due:
        if job_id in left:
            continue
        with services.ledger.transaction() as tx:
            keys = bury_result(tx, job_id=job_id)
        if keys and _purge(services, job_id, keys):
            purged.append(job_id)
    return purged


def _purge(services: Reconciler, job_id: str, keys: list[str]) -> bool:
    point("retention.before")
    for key in keys:
        services.objects.delete(key)
    point("retention.after")
    with services.ledger.transaction() as tx:
        return record_purged(tx, job_id=job_id)
