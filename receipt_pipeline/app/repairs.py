"""Orders about one job that did not go as it should: cancel, replace, retry, requeue; and who may act."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from pathlib import Path
from typing import Any

from receipt_pipeline.app.orders import Orders
from receipt_pipeline.core.errors import InputRefused, NotAllowed
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.core.reasons import FIELD_INVALID, STATE_REFUSES
from receipt_pipeline.core.receipt_text import cancellation_document, compensation
from receipt_pipeline.intake.retry import preview_retry, retry_unresolved
from receipt_pipeline.intake.supersede import supersede_by_job, supersede_by_manifest
from receipt_pipeline.ledger.grants import give_grant, list_grants, revoke_grant
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.claim import Requeued, requeue_job
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.status import read_facts, read_items, read_status
from receipt_pipeline.settings import NAME

DAY_S = 86_400.0


class RepairOrders(Orders):
    """What an operator or a submitter does about a job that did not go as it should."""

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel an open job: says what stopped, what stands, what remains, and whether anything undoes it.

        Raises:
            NotAllowed: STATE.REFUSES.v1 for a closed job, with what stands and what could undo it.
        """
        # Outside the transaction: who stands still here must not keep the ledger's writers waiting.
        point("cancel.before")
        with self.ledger.transaction() as tx:
            job = read_job(tx, job_id)
            require(self.principal, Role.SUBMITTER, Role.OPERATOR, record=job)
            before = cancel_job(tx, job_id=job_id, limits=self.settings.limits)
        point("cancel.after")
        if before is None:
            raise NotAllowed(STATE_REFUSES, job_id=job_id, **self._what_stands(job_id))
        answer = self._ended(job_id)
        sentence = (
            f"{job_id} is canceled: {len(answer['stopped'])} items stopped, {len(answer['stands'])} finished "
            f"ones stay readable, {len(answer['unresolved'])} unresolved; nothing of the job is sent on"
        )
        return answer | {"sentence": sentence}

    def _ended(self, job_id: str) -> dict[str, Any]:
        """Return the status of a job that was ended on request, with what became of each item."""
        with self.ledger.reading() as tx:
            explained = cancellation_document(read_items(tx, job_id), read_facts(tx, job_id).effects)
            return read_status(tx, job_id, tenant=self.settings.tenant) | explained

    def _what_stands(self, job_id: str) -> dict[str, Any]:
        with self.ledger.reading() as tx:
            facts = read_facts(tx, job_id)
        return {
            "state": facts.job["state"],
            "stands": {name.value: count for name, count in facts.counts.items() if count},
            "compensating_action": compensation(facts.effects)["what"],
        }

    def supersede(self, job_id: str, *, by: str) -> dict[str, Any]:
        """Replace an open job by another job, or by a manifest that is accepted for it (R061).

        Args:
            by: a job id, or the path of a manifest.
        """
        manifest = Path(by)
        if manifest.is_file():
            by_job_id = supersede_by_manifest(
                self.intake, job_id, manifest=manifest, principal=self.principal
            )
        else:
            by_job_id = supersede_by_job(self.intake, job_id, by_job_id=by, principal=self.principal)
        answer = self._ended(job_id)
        sentence = (
            f"{job_id} is replaced by {by_job_id}: {len(answer['stopped'])} items were given up "
            f"({', '.join(answer['stopped']) or 'none'}), {len(answer['stands'])} finished ones stay readable"
        )
        return answer | {"abandoned": answer["stopped"], "replaced_by": by_job_id, "sentence": sentence}

    def preview_retry(self, job_id: str, *, cutoff: dt.datetime | None = None) -> dict[str, Any]:
        """Return which items a retry would touch and which it leaves; nothing is written."""
        return preview_retry(self.intake, job_id, principal=self.principal, cutoff=cutoff).as_document()

    def retry(self, job_id: str, *, cutoff: dt.datetime | None = None) -> dict[str, Any]:
        """Accept a child job over what a closed job left, or join the one that is there (R114, R115)."""
        return retry_unresolved(self.intake, job_id, principal=self.principal, cutoff=cutoff)

    def requeue(self, job_id: str) -> dict[str, Any]:
        """Give a running job back to the queue and say what that did.

        Raises:
            NotAllowed: the job is closed or held; the reason says what to do instead.
        """
        point("requeue.before")
        with self.ledger.transaction() as tx:
            require(self.principal, Role.OPERATOR, record=read_job(tx, job_id))
            did = requeue_job(tx, job_id=job_id, actor=self.settings.caller)
        point("requeue.after")
        return self.status(job_id) | {
            "changed": did.changed,
            "fenced": did.fenced,
            "lease_epoch": {"before": did.epoch_before, "now": did.epoch},
            "sentence": _sentence(did),
        }

    # Who may act.

    def grants(self) -> list[dict[str, Any]]:
        """Return the tenant's grants, oldest first."""
        require(self.principal, Role.OPERATOR)
        with self.ledger.reading() as tx:
            return list_grants(tx, tenant=self.settings.tenant)

    def give_grant(self, caller: str, *, roles: Collection[str], days: float | None) -> int:
        """Let a caller act in these roles from now on, for so many days; returns the grant's number."""
        require(self.principal, Role.OPERATOR)
        if not NAME.fullmatch(caller):
            raise InputRefused(FIELD_INVALID, pointer="CALLER", expected=NAME.pattern)
        if not roles or not set(roles) <= set(Role):
            raise InputRefused(FIELD_INVALID, pointer="--roles", allowed=", ".join(Role))
        if days is not None and not 0 < days <= 36_500:
            raise InputRefused(FIELD_INVALID, pointer="--days", expected="more than 0, at most 36500")
        with self.ledger.transaction() as tx:
            return give_grant(
                tx,
                tenant=self.settings.tenant,
                caller=caller,
                roles=roles,
                actor=self.settings.caller,
                lasts_s=None if days is None else days * DAY_S,
            )

    def revoke_grant(self, caller: str) -> int:
        """Revoke what a caller may do; returns how many of his open jobs keep their scope (R042)."""
        require(self.principal, Role.OPERATOR)
        if not NAME.fullmatch(caller):
            raise InputRefused(FIELD_INVALID, pointer="CALLER", expected=NAME.pattern)
        with self.ledger.transaction() as tx:
            return revoke_grant(tx, tenant=self.settings.tenant, caller=caller, actor=self.settings.caller)


def _sentence(did: Requeued) -> str:
    if not did.changed:
        return f"{did.job_id} waits for its first claim and nobody holds it: nothing was changed"
    whom = f"{did.fenced} is fenced and can write nothing any more" if did.fenced else "nobody held it"
    return (
        f"{did.job_id} is ready again under the next epoch ({did.epoch_before} -> {did.epoch}): {whom}; "
        "finished items stay, no attempt was charged"
    )
