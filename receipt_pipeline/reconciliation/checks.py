"""Run one invariant; raise and resolve alerts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError

from receipt_pipeline.core.alerts import AlertKind, AlertThresholds
from receipt_pipeline.ledger.effects.alerts import AlertFinding, open_alerts, record_alerts
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.invariants import CHECKED, INVARIANTS
from receipt_pipeline.ledger.invariants.invariant import Bounds, CheckOutcome, Observe, find, query_text
from receipt_pipeline.reconciliation.compare import Depth
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline.reconciliation.sweep import sweep_orphans, sweep_results


def run_check(context: ReconciliationContext, name: str) -> CheckOutcome:
    """Run the check of one invariant.

    What must be observed is observed and recorded first, so that the query finds what the check found.
    """
    invariant = CHECKED[name]
    observe(context, invariant.observe)
    with context.ledger.reading() as tx:
        finding = find(tx, invariant, context.bounds())
        text = query_text(finding.query, tx)
    count = len(finding.rows)
    counted = "1 violation" if count == 1 else f"{count or 'No'} violations"
    return CheckOutcome(
        passed=not count,
        description=f"{counted}: {invariant.meaning[0].lower()}{invariant.meaning[1:]}",
        violations=tuple(finding.rows),
        query_text=text,
        repair=invariant.repair.format_map(finding.rows[0]) if count else "",
    )


def observe(context: ReconciliationContext, what: Observe) -> None:
    """Look at the object store and record what is there."""
    if what is Observe.OBJECT_PRESENCE:
        sweep_results(context, depth=Depth.PRESENCE)
    elif what is Observe.OBJECT_CONTENT:
        sweep_results(context, depth=Depth.CONTENT)
    elif what is Observe.STORED_KEYS:
        sweep_orphans(context)


@dataclass(frozen=True, slots=True)
class AlertSummary:
    """What one review changed: ids of the alerts raised and of those resolved."""

    raised: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()


def review_alerts(context: ReconciliationContext, thresholds: AlertThresholds, *, whole: bool) -> AlertSummary:
    """Raise and resolve alerts; repeating it changes nothing.

    Args:
        whole: also look for what only the whole ledger shows; without it, those alerts stay as they are.
    """
    kinds = {line.alert for line in INVARIANTS if line.alert is not None and (whole or not line.whole_ledger)}
    with context.ledger.reading() as tx:
        found = find_alerts(tx, kinds=kinds, bounds=Bounds(context.limits, thresholds))
        active = {(row["kind"], row["subject"]) for row in open_alerts(tx) if row["kind"] in kinds}
    if active == {(line.kind.value, line.subject) for line in found}:
        return AlertSummary()
    try:
        with context.ledger.transaction() as tx:
            raised, resolved = record_alerts(tx, found, kinds=kinds)
    except IntegrityError:
        # Another review raised the same at this moment; the database let only one of them in.
        return AlertSummary()
    return AlertSummary(tuple(raised), tuple(resolved))


def find_alerts(tx: LedgerTransaction, *, kinds: Collection[AlertKind], bounds: Bounds) -> list[AlertFinding]:
    """Return what is worth an alert of these kinds right now, one per kind and subject, in their order."""
    once: dict[tuple[AlertKind, str], AlertFinding] = {}
    for invariant in INVARIANTS:
        if invariant.alert is not None and invariant.alert in kinds:
            for row in find(tx, invariant, bounds).rows:
                subject = str(row.get("subject") or row["job_id"])
                once[invariant.alert, subject] = AlertFinding(invariant.alert, subject, row.get("job_id"), _plain(row))
    return [once[name] for name in sorted(once)]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a row as plain JSON."""
    kept = {name: value for name, value in row.items() if name not in ("job_id", "subject")}
    return {name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in kept.items()}
