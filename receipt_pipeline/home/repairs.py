"""Orders that repair one job: give it back to the queue."""

from __future__ import annotations

from typing import Any

from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.home.orders import Orders
from receipt_pipeline.ledger.losses import read_job
from receipt_pipeline.ledger.requeue import Requeued, requeue_job


class RepairOrders(Orders):
    """What an operator or a submitter does about a job that did not end as it should."""

    def requeue(self, job_id: str) -> dict[str, Any]:
        """Give a running job back to the queue and say what that did.

        Raises:
            NotAllowed: the job is closed or held; the reason says what to do instead.
        """
        with self.ledger.transaction() as tx:
            require(self.principal, Role.OPERATOR, record=read_job(tx, job_id))
            did = requeue_job(tx, job_id=job_id, by=self.settings.caller)
        return self.status(job_id) | {
            "changed": did.changed,
            "fenced": did.fenced,
            "lease_epoch": {"before": did.epoch_before, "now": did.epoch},
            "sentence": _sentence(did),
        }


def _sentence(did: Requeued) -> str:
    if not did.changed:
        return f"{did.job_id} waits for its first claim and nobody holds it: nothing was changed"
    whom = f"{did.fenced} is fenced and can write nothing any more" if did.fenced else "nobody held it"
    return (
        f"{did.job_id} is ready again under the next epoch ({did.epoch_before} -> {did.epoch}): {whom}; "
        "finished items stay, no attempt was charged"
    )
