"""What delivery needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.effects.channels import Channel
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.objects.store import ObjectStore


@dataclass(frozen=True, slots=True)
class EffectContext:
    """Ledger, objects, channel and limits of the effects; `outbox_root` holds every tenant's outbox."""

    ledger: Ledger
    objects: ObjectStore
    channel: Channel
    outbox_root: Path
    limits: Limits
