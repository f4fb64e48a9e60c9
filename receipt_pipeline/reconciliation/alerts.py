"""Compares what is worth a warning with the alerts that stand: raised once, resolved by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from receipt_pipeline.core.alerts import AlertThresholds
from receipt_pipeline.ledger.alerts import open_alerts, record_alerts
from receipt_pipeline.ledger.findings_alerts import QUICK_KINDS, SWEPT_KINDS, find_alerts
from receipt_pipeline.reconciliation.services import Reconciler


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
