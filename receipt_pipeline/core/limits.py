"""Limits and rollout settings as frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DEFAULT_ROTA: Mapping[str, str] = {"default": "operations"}


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Named limits of intake, worker, effects and reconciliation. Seconds and counts."""

    lease_ttl_s: float = 30.0
    heartbeat_s: float = 5.0
    item_timeout_s: float = 120.0
    item_losses_max: int = 3
    closing_attempts_max: int = 3
    retry_base_s: float = 5.0
    retry_cap_s: float = 300.0
    wave_items_max: int = 60
    wave_jobs_max: int = 60
    wave_slots: int = 2
    wave_slice_s: float = 300.0
    wave_ttl_s: float = 120.0
    wave_start_s: float = 300.0
    cutoff_margin_s: int = 900
    overrun_grace_s: float = 60.0
    effect_deadline_s: float = 900.0
    orphan_grace_s: float = 3600.0
    copy_hold_s: float = 86_400.0
    diagnostics_retention_s: float = 604_800.0
    investigation_deadline_s: float = 86_400.0
    delivery_attempts_max: int = 3
    delivery_retry_s: float = 5.0
    send_ttl_s: float = 120.0
    settle_s: float = 10.0
    missing_scans_s: float = 900.0
    pass_bound_s: float = 20.0
    worker_ttl_s: float = 120.0
    rota: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_ROTA))
    # The zone whose midnight ends a day of the report.
    time_zone: str = "UTC"
    escalation: str = "operations-lead"
    principals: frozenset[str] = frozenset({"operations", "operations-lead"})

    def owner_of(self, kind: str) -> str:
        """Return the rota's owner for an investigation kind (D13)."""
        return self.rota.get(kind, self.rota["default"])


class RolloutStage(StrEnum):
    """The stages, in order; going back a stage changes nothing that was accepted before."""

    SHADOW = "shadow"
    COHORT = "cohort"
    TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class Rollout:
    """The stage of this installation.

    Attributes:
        cohort: callers who are served in the stage `cohort`; the others' jobs are shadows.
    """

    stage: RolloutStage = RolloutStage.TRUTH
    cohort: frozenset[str] = frozenset()

    def is_shadow(self, caller: str) -> bool:
        """Tell whether a caller's job is worked, recorded and compared, and nothing of it leaves."""
        if self.stage is RolloutStage.COHORT:
            return caller not in self.cohort
        return self.stage is RolloutStage.SHADOW


SERVES_ALL = Rollout()
