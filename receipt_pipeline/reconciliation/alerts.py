"""Compares what is worth a warning with the alerts that stand: raised once, resolved by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from receipt_pipeline.core.alerts import AlertThresholds
from receipt_pipeline.ledger.alerts import record_alerts
from receipt_pipeline.ledger.findings_alerts import find_alerts
from receipt_pipeline.reconciliation.services import Reconciler


@dataclass(frozen=True, slots=True)
class AlertSummary:
    """What one look changed: ids of the alerts raised and of those resolved."""

    raised: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()


def review_alerts(services: Reconciler, thresholds: AlertThresholds) -> AlertSummary:
    """Look once; nothing is written while nothing changed, and looking twice changes nothing."""
    with services.ledger.reading() as tx:
        found = find_alerts(tx, limits=services.limits, thresholds=thresholds)
    try:
        with services.ledger.transaction() as tx:
            raised, resolved = record_alerts(tx, found)
    except IntegrityError:
        # Another look raised the same at this moment; the database let only one of them in.
        return AlertSummary()
    return AlertSummary(tuple(raised), tuple(resolved))
