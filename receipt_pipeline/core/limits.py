"""Limits, deadlines, owners and the rollout stage, as frozen records that the settings build."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DEFAULT_ROTA: Mapping[str, str] = {"default": "operations"}


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """Leases, attempts and waves. A wave reserves ready jobs for one run."""

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
    worker_ttl_s: float = 120.0
    overrun_grace_s: float = 60.0
    pass_bound_s: float = 20.0


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """Acceptance and the inbox.

    Attributes:
        cutoff_margin_s: time kept between a job's deadlines and the cutoff that it names.
        debounce_s: how long a dropped file must stay unchanged before it is read.
        arrival_timeout_s: how long a manifest waits for the scans that it names.
    """

    cutoff_margin_s: int = 900
    debounce_s: float = 10.0
    arrival_timeout_s: float = 900.0


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Deliveries, and when all effects of a closed job must be committed."""

    effect_deadline_s: float = 900.0
    delivery_attempts_max: int = 3
    delivery_retry_s: float = 5.0
    retry_cap_s: float = 300.0
    send_ttl_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long unreferenced objects, copied scans and diagnostics are kept."""

    orphan_grace_s: float = 3600.0
    copy_hold_s: float = 86_400.0
    diagnostics_retention_s: float = 604_800.0


@dataclass(frozen=True, slots=True)
class Staffing:
    """Who owns investigations, until when, and who takes over.

    Attributes:
        rota: owner by investigation kind, with a `default`.
        principals: everyone who can own an investigation.
    """

    investigation_deadline_s: float = 86_400.0
    rota: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_ROTA))
    escalation: str = "operations-lead"
    principals: frozenset[str] = frozenset({"operations", "operations-lead"})

    def owner_of(self, kind: str) -> str:
        """Return the rota's owner for an investigation kind."""
        return self.rota.get(kind, self.rota["default"])


@dataclass(frozen=True, slots=True)
class Limits:
    """Every limit of an instance, by subject, and the zone whose midnight ends a day of the report."""

    work: WorkLimits = WorkLimits()
    intake: IntakeLimits = IntakeLimits()
    delivery: DeliveryLimits = DeliveryLimits()
    retention: Retention = Retention()
    staffing: Staffing = field(default_factory=Staffing)
    time_zone: str = "UTC"

    def replace(self, **numbers: float) -> Limits:
        """Return a copy with the named numbers, each in every part that has a field of this name."""
        names = ("work", "intake", "delivery", "retention", "staffing")
        parts = {name: getattr(self, name) for name in names}
        known = {entry.name for part in parts.values() for entry in dataclasses.fields(part)}
        assert known.issuperset(numbers), f"unknown limits: {sorted(numbers.keys() - known)}"
        for name, part in parts.items():
            mine = {entry.name for entry in dataclasses.fields(part)} & numbers.keys()
            parts[name] = dataclasses.replace(part, **{key: numbers[key] for key in mine})
        return dataclasses.replace(self, **parts)


class RolloutStage(StrEnum):
    """The stages, in order; going back a stage changes nothing that was accepted before."""

    SHADOW = "shadow"
    COHORT = "cohort"
    TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class Rollout:
    """The rollout stage of this instance.

    Attributes:
        cohort: callers who are served in the stage `cohort`; the jobs of all others are shadows.
    """

    stage: RolloutStage = RolloutStage.TRUTH
    cohort: frozenset[str] = frozenset()

    def is_shadow(self, caller: str) -> bool:
        """Return whether a caller's job is processed and compared without sending anything."""
        if self.stage is RolloutStage.COHORT:
            return caller not in self.cohort
        return self.stage is RolloutStage.SHADOW


SERVES_ALL = Rollout()
