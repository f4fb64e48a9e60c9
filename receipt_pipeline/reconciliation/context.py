"""What reconciliation needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from receipt_pipeline.core.alerts import AlertThresholds
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.objects.store import ObjectStore

JOBS_BATCH_MAX = 500
OBJECTS_BATCH_MAX = 400


@dataclass(frozen=True, slots=True)
class Reconciler:
    """The services that every comparison and every repair is handed.

    Attributes:
        thresholds: reads when operators are warned, each time anew: the file may have changed.
    """

    ledger: Ledger
    objects: ObjectStore
    limits: Limits
    thresholds: Callable[[], AlertThresholds] = AlertThresholds
