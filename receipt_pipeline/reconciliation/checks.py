"""Run one invariant; raise and resolve alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlalchemy.exc import IntegrityError

from receipt_pipeline.core.alerts import AlertThresholds
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.effects.alerts import open_alerts, record_alerts, standing_alerts
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants.alerts import QUICK_KINDS, SWEPT_KINDS, find_alerts
from receipt_pipeline.ledger.invariants.effects import effect_gaps, task_faults, unexplained_notifications
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome
from receipt_pipeline.ledger.invariants.objects import (
    divergent_and_served,
    object_mismatch,
    object_without_success,
    pins_not_stated,
    success_without_object,
)
from receipt_pipeline.ledger.invariants.records import (
    Finding,
    terminal_record_conflicts,
    unbalanced_items,
    unowned_jobs,
)
from receipt_pipeline.ledger.invariants.work import (
    abandoned_leases,
    attempts_beyond_budget,
    queue_age_beyond_capacity,
)
from receipt_pipeline.reconciliation.compare import Depth
from receipt_pipeline.reconciliation.context import Reconciler
from receipt_pipeline.reconciliation.sweep import sweep_orphans, sweep_results

JOB_LEDGER = "job_ledger"
RESULT_OBJECTS = "result_objects"
NOTIFICATIONS = "notifications"
REVIEW_TASKS = "review_tasks"

Finder = Callable[[LedgerTransaction, Limits], Finding]


@dataclass(frozen=True, slots=True)
class CheckDefinition:
    """One check: the asset it belongs to, and the function that answers it."""

    name: str
    asset: str
    run: Callable[[Reconciler], CheckOutcome]


def _answer(services: Reconciler, finder: Finder) -> CheckOutcome:
    with services.ledger.reading() as tx:
        finding = finder(tx, services.limits)
    found = len(finding.rows)
    return CheckOutcome(
        passed=not found,
        description=f"{finding.meaning}: {found} offend" if found else f"{finding.meaning}: none offends",
        offenders=tuple(finding.rows),
        query_text=finding.query_text,
    )


def _from_ledger(name: str, asset: str, finder: Finder) -> CheckDefinition:
    return CheckDefinition(name, asset, lambda services: _answer(services, finder))


def _from_objects(name: str, look: Callable[[Reconciler], object], finder: Finder) -> CheckDefinition:
    """Look at the store first and record what is seen, so that the query finds what the check found."""

    def run(services: Reconciler) -> CheckOutcome:
        look(services)
        return _answer(services, finder)

    return CheckDefinition(name, RESULT_OBJECTS, run)


def _present(services: Reconciler) -> object:
    return sweep_results(services, depth=Depth.PRESENCE)


def _read(services: Reconciler) -> object:
    return sweep_results(services, depth=Depth.CONTENT)


def _queue_age(services: Reconciler) -> CheckOutcome:
    """Hold waiting jobs against the very age at which the alert is raised."""
    queue_age_s = services.thresholds().queue_age_s
    return _answer(services, lambda tx, limits: queue_age_beyond_capacity(tx, queue_age_s=queue_age_s))


_DEFINITIONS = (
    _from_ledger("one_terminal_record_per_job", JOB_LEDGER, lambda tx, limits: terminal_record_conflicts(tx)),
    _from_ledger("items_balance_to_accepted", JOB_LEDGER, lambda tx, limits: unbalanced_items(tx)),
    _from_ledger(
        "every_accepted_job_is_terminal_or_owned",
        JOB_LEDGER,
        lambda tx, limits: unowned_jobs(tx, limits=limits),
    ),
    _from_ledger(
        "attempts_within_budget", JOB_LEDGER, lambda tx, limits: attempts_beyond_budget(tx, limits=limits)
    ),
    _from_ledger("no_abandoned_lease", JOB_LEDGER, lambda tx, limits: abandoned_leases(tx, limits=limits)),
    _from_ledger("effects_have_no_gaps", JOB_LEDGER, lambda tx, limits: effect_gaps(tx)),
    CheckDefinition("queue_age_within_capacity", JOB_LEDGER, _queue_age),
    _from_ledger("no_standing_alert", JOB_LEDGER, lambda tx, limits: standing_alerts(tx)),
    _from_objects("every_success_has_its_object", _present, lambda tx, limits: success_without_object(tx)),
    _from_objects("objects_match_the_ledger", _read, lambda tx, limits: object_mismatch(tx)),
    _from_objects("no_object_without_success", sweep_orphans, lambda tx, limits: object_without_success(tx)),
    _from_objects("results_state_their_pins", _read, lambda tx, limits: pins_not_stated(tx)),
    _from_ledger(
        "every_notification_delivered_or_explained",
        NOTIFICATIONS,
        lambda tx, limits: unexplained_notifications(tx, limits=limits),
    ),
    _from_ledger("one_task_per_decision", REVIEW_TASKS, lambda tx, limits: task_faults(tx)),
    _from_ledger("no_divergent_result_served", REVIEW_TASKS, lambda tx, limits: divergent_and_served(tx)),
)

CHECKS: Mapping[str, CheckDefinition] = MappingProxyType(
    {definition.name: definition for definition in _DEFINITIONS}
)


@dataclass(frozen=True, slots=True)
class AlertSummary:
    """What one look changed: ids of the alerts raised and of those resolved."""

    raised: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()


def review_alerts(services: Reconciler, thresholds: AlertThresholds, *, whole: bool) -> AlertSummary:
    """Look once; looking twice changes nothing.

    Args:
        whole: also look for what only the whole ledger shows; without it, those alerts stand as they are.
    """
    kinds = QUICK_KINDS | SWEPT_KINDS if whole else QUICK_KINDS
    with services.ledger.reading() as tx:
        found = find_alerts(tx, kinds=kinds, limits=services.limits, thresholds=thresholds)
        standing = {(row["kind"], row["subject"]) for row in open_alerts(tx) if row["kind"] in kinds}
    if standing == {(line.kind.value, line.subject) for line in found}:
        return AlertSummary()
    try:
        with services.ledger.transaction() as tx:
            raised, resolved = record_alerts(tx, found, kinds=kinds)
    except IntegrityError:
        # Another look raised the same at this moment; the database let only one of them in.
        return AlertSummary()
    return AlertSummary(tuple(raised), tuple(resolved))
