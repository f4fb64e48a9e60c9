"""One guarded repair per finding, and resolutions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.reasons import FACT_STANDS
from receipt_pipeline.ledger.effects.objects import results_to_check
from receipt_pipeline.ledger.investigations import (
    OBJECT_KINDS,
    OPEN,
    read_investigation,
    resolve_investigation,
)
from receipt_pipeline.ledger.jobs.quarantine import withdraw_result
from receipt_pipeline.reconciliation.compare import Depth, look_at_result
from receipt_pipeline.reconciliation.context import Reconciler
from receipt_pipeline.reconciliation.expire import close_retired, expire_overdue, free_waiting, overrun_late
from receipt_pipeline.reconciliation.investigate import (
    investigate_all,
    investigate_open_jobs,
    is_still_violated,
)
from receipt_pipeline.reconciliation.quarantine import hold_divergence
from receipt_pipeline.reconciliation.sweep import SweepSummary, record_sightings
from receipt_pipeline.reconciliation.sweep import sweep_objects as look_at_objects
from receipt_pipeline.reconciliation.take_over import (
    look_up_uploads,
    settle_answered_messages,
    take_expired_leases,
)


@dataclass(frozen=True, slots=True)
class ReconcileSummary:
    """What one pass changed: ids of jobs, waves and uploads, and counts of questions and objects.

    Attributes:
        faults: objects that are at fault now, newly or not; None when objects were not looked at.
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
        """Tell whether the pass changed anything at all."""
        lists = [getattr(self, name.name) for name in fields(self) if name.name not in _NO_CHANGE]
        recorded = self.objects.newly_recorded if self.objects else 0
        return any(lists) or bool(recorded)


_NO_CHANGE = frozenset({"objects", "uploads_unanswered"})


def reconcile_ledger(services: Reconciler, *, granted: bool = False) -> ReconcileSummary:
    """Repair what needs no sweep: expiry, leases, overrun, holds, waves, stuck jobs; for a sensor.

    Only open jobs, recent divergence and held uploads are looked at, each list bounded.

    Args:
        granted: a person asked, so held jobs whose closing bound is spent get a new one.
    """
    expired = expire_overdue(services)
    taken = take_expired_leases(services)
    overrun = overrun_late(services)
    retired = close_retired(services)
    uploads = look_up_uploads(services, granted=granted)
    settled = settle_answered_messages(services)
    quarantined = hold_divergence(services)
    silent, stranded = free_waiting(services)
    investigated = investigate_open_jobs(services)
    return ReconcileSummary(
        expired=tuple(expired),
        taken_over=tuple(taken),
        overrun=tuple(overrun),
        retired=tuple(retired),
        released=uploads.released,
        uploads_decided=uploads.decided,
        uploads_unanswered=uploads.unanswered,
        messages_settled=tuple(settled),
        quarantined=tuple(quarantined),
        waves_closed=tuple(silent),
        without_worker=tuple(stranded),
        questions_opened=investigated.opened,
        questions_healed=investigated.resolved,
    )


def sweep_objects(services: Reconciler) -> ReconcileSummary:
    """Look at every object and at the whole ledger, and ask about what disagrees; for a run."""
    objects = look_at_objects(services)
    investigated = investigate_all(services)
    return ReconcileSummary(
        questions_opened=investigated.opened, questions_healed=investigated.resolved, objects=objects
    )


def reconcile(services: Reconciler, *, granted: bool = False) -> ReconcileSummary:
    """Repair the ledger, sweep the objects, ask what is left; doing it twice changes nothing (R158)."""
    first = reconcile_ledger(services, granted=granted)
    then = sweep_objects(services)
    kept = {name.name: getattr(first, name.name) for name in fields(first)}
    return ReconcileSummary(
        **kept
        | {
            "questions_opened": first.questions_opened + then.questions_opened,
            "questions_healed": first.questions_healed + then.questions_healed,
            "objects": then.objects,
        }
    )


WITHDRAW = "withdraw"


def answer_question(
    services: Reconciler, investigation_id: str, *, note: str, actor: str, withdraw: bool = False
) -> None:
    """Resolve a question by a note, or give the lost result up; the same answer again changes nothing.

    Args:
        withdraw: the result that is missing or altered is given up; only for questions about objects.
    Raises:
        NotFound: no such question. NotAllowed: INVESTIGATION.CLOSED.v1 when it was answered otherwise;
            INVESTIGATION.FACT_STANDS.v1 while what it asks about is still so.
    """
    with services.ledger.reading() as tx:
        question = read_investigation(tx, investigation_id)
    answer = f"{WITHDRAW}: {note}" if withdraw and note else WITHDRAW if withdraw else note
    if question["state"] == OPEN and question["kind"] in OBJECT_KINDS:
        _look_again(services, question)
    with services.ledger.transaction() as tx:
        question = read_investigation(tx, investigation_id)
        if question["state"] == OPEN:
            if withdraw:
                assert question["kind"] in OBJECT_KINDS, question["kind"]
                withdraw_result(tx, job_id=question["job_id"], actor=actor)
            elif is_still_violated(tx, question, bounds=services.bounds()):
                repair = question["allowed_repair"]
                raise NotAllowed(FACT_STANDS, investigation_id=investigation_id, allowed_repair=repair)
        resolve_investigation(tx, investigation_id, resolution=answer, actor=actor)


def _look_again(services: Reconciler, question: dict[str, Any]) -> None:
    """Look at the object now: it may have been restored since the last sweep."""
    with services.ledger.reading() as tx:
        rows = results_to_check(tx, job_ids=[question["job_id"]])
    sightings = [look_at_result(services, row, depth=Depth.CONTENT) for row in rows]
    record_sightings(services, sightings)
