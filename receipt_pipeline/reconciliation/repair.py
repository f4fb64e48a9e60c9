"""One guarded repair per finding, and the decisions of people."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.reasons import FACT_STANDS
from receipt_pipeline.ledger.effects.objects import expected_results
from receipt_pipeline.ledger.investigations import OBJECT_KINDS, OPEN, read_investigation, resolve_investigation
from receipt_pipeline.ledger.jobs.quarantine import withdraw_result
from receipt_pipeline.reconciliation.compare import Depth, observe_result
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline.reconciliation.expire import (
    close_retired,
    close_waves_and_mark_waiting,
    expire_overdue,
    take_over_overrunning,
)
from receipt_pipeline.reconciliation.investigate import investigate_all, investigate_open_jobs, is_still_violated
from receipt_pipeline.reconciliation.quarantine import hold_divergence
from receipt_pipeline.reconciliation.sweep import SweepSummary, record_observations
from receipt_pipeline.reconciliation.sweep import sweep_objects as sweep_store
from receipt_pipeline.reconciliation.take_over import (
    abandon_decided_messages,
    look_up_uploads,
    take_over_expired_leases,
)


@dataclass(frozen=True, slots=True)
class ReconcileSummary:
    """What one pass changed: ids of jobs, waves, uploads and messages; counts of investigations and objects.

    The names are keys of `receipts reconcile --json`.

    Attributes:
        objects: None when objects were not looked at.
    """

    expired: tuple[str, ...] = ()
    taken_over: tuple[str, ...] = ()
    overrun: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    uploads_decided: tuple[str, ...] = ()
    uploads_unanswered: tuple[str, ...] = ()
    messages_settled: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    waves_closed: tuple[str, ...] = ()
    without_worker: tuple[str, ...] = ()
    questions_opened: int = 0
    questions_healed: int = 0
    objects: SweepSummary | None = None

    @property
    def changed(self) -> bool:
        """Return whether the pass changed anything."""
        changes = [getattr(self, field.name) for field in fields(self) if field.name not in _NO_CHANGE]
        return any(changes) or bool(self.objects and self.objects.newly_recorded)


_NO_CHANGE = frozenset({"objects", "uploads_unanswered"})


def reconcile_ledger(context: ReconciliationContext, *, granted: bool = False) -> ReconcileSummary:
    """Repair what needs no sweep: expiry, leases, overrun, holds, waves, stuck jobs; for a sensor.

    Only open jobs, recent divergence and held uploads are looked at, each list bounded.

    Args:
        granted: a person requested it, so held jobs whose closing bound is spent get a new one.
    """
    expired = expire_overdue(context)
    taken_over = take_over_expired_leases(context)
    overrun = take_over_overrunning(context)
    retired = close_retired(context)
    uploads = look_up_uploads(context, granted=granted)
    abandoned = abandon_decided_messages(context)
    quarantined = hold_divergence(context)
    waves_closed, without_worker = close_waves_and_mark_waiting(context)
    investigated = investigate_open_jobs(context)
    return ReconcileSummary(
        expired=tuple(expired),
        taken_over=tuple(taken_over),
        overrun=tuple(overrun),
        retired=tuple(retired),
        released=uploads.released,
        uploads_decided=uploads.decided,
        uploads_unanswered=uploads.unanswered,
        messages_settled=tuple(abandoned),
        quarantined=tuple(quarantined),
        waves_closed=tuple(waves_closed),
        without_worker=tuple(without_worker),
        questions_opened=investigated.opened,
        questions_healed=investigated.resolved,
    )


def sweep_objects(context: ReconciliationContext) -> ReconcileSummary:
    """Look at every object and at the whole ledger, and investigate what disagrees; for a run."""
    objects = sweep_store(context)
    investigated = investigate_all(context)
    return ReconcileSummary(
        questions_opened=investigated.opened, questions_healed=investigated.resolved, objects=objects
    )


def reconcile(context: ReconciliationContext, *, granted: bool = False) -> ReconcileSummary:
    """Repair the ledger, sweep the objects, investigate what is left; doing it twice changes nothing."""
    first = reconcile_ledger(context, granted=granted)
    then = sweep_objects(context)
    return replace(
        first,
        questions_opened=first.questions_opened + then.questions_opened,
        questions_healed=first.questions_healed + then.questions_healed,
        objects=then.objects,
    )


WITHDRAW = "withdraw"


def decide_investigation(
    context: ReconciliationContext, investigation_id: str, *, note: str, actor: str, withdraw: bool = False
) -> None:
    """Resolve an investigation by a note, or withdraw the lost result; repeating it changes nothing.

    Args:
        withdraw: the missing or altered result is withdrawn; only for investigations about objects.
    Raises:
        NotFound: no such investigation. NotAllowed: INVESTIGATION.CLOSED.v1 when it was decided otherwise;
            INVESTIGATION.FACT_STANDS.v1 while ledger and objects still show what it is about.
    """
    with context.ledger.reading() as tx:
        row = read_investigation(tx, investigation_id)
    resolution = f"{WITHDRAW}: {note}" if withdraw and note else WITHDRAW if withdraw else note
    if row.state == OPEN and row.kind in OBJECT_KINDS:
        _observe_again(context, row.job_id)
    with context.ledger.transaction() as tx:
        row = read_investigation(tx, investigation_id)
        if row.state == OPEN:
            if withdraw:
                assert row.kind in OBJECT_KINDS, row.kind
                assert row.job_id is not None, row
                withdraw_result(tx, job_id=row.job_id, actor=actor)
            elif is_still_violated(tx, row, bounds=context.bounds()):
                repair = row.allowed_repair
                raise NotAllowed(FACT_STANDS, investigation_id=investigation_id, allowed_repair=repair)
        resolve_investigation(tx, investigation_id, resolution=resolution, actor=actor)


def _observe_again(context: ReconciliationContext, job_id: str | None) -> None:
    """Look at the object now: it may have been restored since the last sweep."""
    with context.ledger.reading() as tx:
        expected = expected_results(tx, job_ids=[job_id] if job_id else [])
    record_observations(context, [observe_result(context, result, depth=Depth.CONTENT) for result in expected])
