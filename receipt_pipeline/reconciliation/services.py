"""What reconciliation works with: the ledger, the objects and the bounds."""

from __future__ import annotations

from dataclasses import dataclass

from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.objects.store import ObjectStore

JOBS_BATCH_MAX = 500
OBJECTS_BATCH_MAX = 400


@dataclass(frozen=True, slots=True)
class Reconciler:
    """The services that every comparison and every repair is handed."""

    ledger: Ledger
    objects: ObjectStore
    limits: ServiceLimits
