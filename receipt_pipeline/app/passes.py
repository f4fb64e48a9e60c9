"""What sensors, runs and rounds do in one home: bounded passes and the steps of a wave."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from receipt_pipeline.app.context import Rooms
from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.receipt_text import kept_items_text
from receipt_pipeline.effects.consume import consume_due
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.effects.status_documents import restore_status_documents, send_status_documents
from receipt_pipeline.intake.inbox.sweep import sweep_inbox
from receipt_pipeline.intake.submit import is_manifest
from receipt_pipeline.ledger.grants import acting_under_grant, authority_fault
from receipt_pipeline.ledger.jobs.waves import close_wave, extend_wave, renew_wave, wave_jobs
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline.reconciliation.repair import (
    ReconcileSummary,
    reconcile,
    reconcile_ledger,
    sweep_objects,
)
from receipt_pipeline.reconciliation.retention import expire_diagnostics, expire_results, sweep_scans
from receipt_pipeline.worker.context import JobResult
from receipt_pipeline.worker.dispatch import Dispatched, await_ready, dispatch_waves, plan_groups
from receipt_pipeline.worker.loop import work_group

PASS_ITEMS_MAX = 500
CONTINUE_ITEMS_MAX = 8
RECENT_S = 86_400.0

# When each wave of this process must stop taking up work, in monotonic seconds.
_wave_ends_at: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class PassSummary:
    """What one bounded pass did: a sentence for people, and its counts."""

    sentence: str
    counts: Mapping[str, int]


def _summary(word: str, counts: Mapping[str, int]) -> PassSummary:
    done = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
    return PassSummary(f"{word}: {done or 'nothing to do'}", counts)


def _counts(summary: ReconcileSummary) -> dict[str, int]:
    """Return what a reconciliation changed as counts."""
    counts: dict[str, int] = {}
    for field in fields(summary):
        value = getattr(summary, field.name)
        if isinstance(value, tuple):
            counts[field.name] = len(value)
        elif isinstance(value, int):
            counts[field.name] = value
        elif value is not None:
            counts |= {inner.name: int(getattr(value, inner.name)) for inner in fields(value)}
    return counts


class Passes(Rooms):
    """Passes over inbox, ledger, effects and objects, and the steps of a wave's run."""

    @property
    def principal(self) -> Principal:
        """Return whom the settings let this process act for (D14), in the roles that his grant has left.

        Raises:
            NotAllowed: AUTHORITY.EXPIRED.v1 or AUTHORITY.REVOKED.v1.
        """
        named = Principal(self.settings.tenant, self.settings.caller, self.settings.roles)
        with self.ledger.reading() as tx:
            return acting_under_grant(tx, named)

    def sweep_inbox(self) -> PassSummary:
        """Accept what was dropped, within the pass's time bound; without authority it is left where it is."""
        with self.ledger.reading() as tx:
            fault = authority_fault(
                tx, tenant=self.settings.tenant, caller=self.settings.caller, role=Role.SUBMITTER
            )
        if fault is not None:
            return PassSummary(f"inbox: left as it is, {fault.code}", {})
        summary = sweep_inbox(self.intake, time_bound_s=self.settings.limits.work.pass_bound_s)
        return _summary("inbox", summary.counts)

    def inbox_waiting(self) -> bool:
        """Tell whether the inbox still holds a manifest that was not answered."""
        folder = self.settings.inbox / self.settings.tenant
        return any(is_manifest(path) for path in folder.glob("*"))

    def dispatch(self, *, wait_s: float = 0.0) -> Dispatched:
        """Reserve ready jobs for waves, after waiting up to `wait_s` for them to stop growing."""
        if wait_s:
            await_ready(self.ledger, wait_s=wait_s, limits=self.settings.limits)
        return dispatch_waves(
            self.ledger,
            worker_id=self.worker_id,
            release_ids=self.carried_releases(),
            limits=self.settings.limits,
        )

    def deliver_and_consume(self, *, job_id: str | None = None) -> PassSummary:
        """Send due messages and status documents, and let the review consumer take in results."""
        bound_s = self.settings.limits.work.pass_bound_s / 2
        delivered = deliver(self.effects, limit=PASS_ITEMS_MAX, time_bound_s=bound_s, job_id=job_id)
        consumed = consume_due(self.effects, limit=PASS_ITEMS_MAX, time_bound_s=bound_s, job_id=job_id)
        written = send_status_documents(self.effects, limit=PASS_ITEMS_MAX, job_id=job_id)
        counts = {"delivered": delivered.delivered, "dropped": delivered.dropped, "failed": delivered.failed}
        counts |= {"review_tasks_made": consumed.tasks_made, "status_documents": written}
        return _summary("effects", counts | dict(consumed.outcomes))

    def reconcile_ledger(self) -> PassSummary:
        """Compare and repair what the ledger alone shows: expiry, leases, waves, investigations."""
        return _summary("reconciled", _counts(reconcile_ledger(self.reconciler)))

    def sweep_objects(self) -> PassSummary:
        """Compare stored objects with the ledger in both directions and own what is found."""
        return _summary("swept", _counts(sweep_objects(self.reconciler)))

    def reconcile_everything(self, *, by_person: bool = False) -> dict[str, int]:
        """Run every comparison and repair once, the sweep of scans, then deliveries and consumption.

        Args:
            by_person: an operator asked, which gives held jobs whose closing bound is spent a new one (R112).
        """
        if by_person:
            require(self.principal, Role.OPERATOR)
        counts = _counts(reconcile(self.reconciler, granted=by_person))
        scans = sweep_scans(self.reconciler)
        counts |= {"scans_marked": scans.marked, "scans_removed": len(scans.removed)}
        counts["copy_holds_released"] = scans.holds_released
        counts |= dict(self.deliver_and_consume().counts)
        restore_status_documents(self.effects, limit=PASS_ITEMS_MAX, recent_s=RECENT_S)
        return counts

    def purge_results(self) -> int:
        """Purge what is past its retention, and scans that nobody holds; returns how many jobs."""
        purged = expire_results(self.reconciler)
        expire_diagnostics(self.reconciler)
        sweep_scans(self.reconciler)
        self.ledger.overwrite_deleted()
        return len(purged)

    # Waves: what the steps of a wave's run do.

    def begin_wave(self, wave_id: str, *, run_id: str, items_per_group: int) -> list[list[str]]:
        """Keep the wave alive, warm the reader up before any claim, and return its jobs in groups."""
        with self.ledger.transaction() as tx:
            if not renew_wave(tx, wave_id, run_id=run_id):
                return []
        self.chains.warm_up()
        with self.ledger.transaction() as tx:
            renew_wave(tx, wave_id, run_id=run_id)
            rows = wave_jobs(tx, wave_id)
        sized = [(row["job_id"], row["items_requested"]) for row in rows]
        _wave_ends_at[wave_id] = time.monotonic() + self.settings.limits.work.wave_slice_s
        return plan_groups(sized, items_per_group=items_per_group)

    def work_group(self, wave_id: str, job_ids: Sequence[str], *, run_id: str) -> list[JobResult]:
        """Work the jobs of one group; the wave's slice bounds all its groups together."""
        worker = self.worker(run_id=run_id, ends_at=_wave_ends_at.get(wave_id, 0.0))
        return work_group(worker, wave_id=wave_id, job_ids=job_ids)

    def consequences(self, job_ids: Sequence[str]) -> list[dict[str, str]]:
        """Return per job what stands, what is safe now and what was asked; its id comes last (R148)."""
        with self.ledger.reading() as tx:
            documents = [read_status(tx, job_id) for job_id in job_ids]
        return [
            {
                "stands": kept_items_text(document),
                "safe_now": ACTION_TEXTS[NextAction(document["next_action"])].meaning,
                "asked": f"{document['operation_class']} of {document['items']['requested']} items",
                "in_full": f"receipts status {document['job_id']} --audience support",
                "job_id": document["job_id"],
            }
            for document in documents
        ]

    def continue_wave(self, wave_id: str, *, run_id: str) -> list[JobResult]:
        """Take up what became ready while the wave ran, until its slice is used up or nothing is ready."""
        lines: list[JobResult] = []
        while time.monotonic() < _wave_ends_at.get(wave_id, 0.0):
            with self.ledger.transaction() as tx:
                job_ids = extend_wave(
                    tx,
                    wave_id,
                    items_max=CONTINUE_ITEMS_MAX,
                    worker_ttl_s=self.settings.limits.work.worker_ttl_s,
                )
            if not job_ids:
                break
            lines += self.work_group(wave_id, job_ids, run_id=run_id)
        return lines

    def close_wave(self, wave_id: str) -> int:
        """Close a wave; returns how many jobs it still reserved."""
        with self.ledger.transaction() as tx:
            return close_wave(tx, wave_id)
