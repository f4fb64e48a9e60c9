"""What reconciliation needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from receipt_pipeline.core.alerts import AlertThresholds
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.invariants.invariant import Bounds
from receipt_pipeline.objects.store import ObjectStore

JOBS_BATCH_MAX = 500
OBJECTS_BATCH_MAX = 400


@dataclass(frozen=True, slots=True)
class ReconciliationContext:
    """Ledger, objects and limits of every comparison and every repair.

    Attributes:
        thresholds: reads when operators are warned, each time again: the file may have changed.
    """

    ledger: Ledger
    objects: ObjectStore
    limits: Limits
    thresholds: Callable[[], AlertThresholds] = AlertThresholds

    def bounds(self) -> Bounds:
        """Return what invariants are measured against now."""
        return Bounds(self.limits, self.thresholds())
