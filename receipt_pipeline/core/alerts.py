"""What operators are warned of: the kinds, what each means and asks for, and the thresholds by name."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import SETTING_INVALID


class AlertKind(StrEnum):
    """What an alert is about."""

    PHASE_AGE = "phase_age"
    LEASE_EXPIRED = "lease_expired"
    OWNER_CHANGES = "owner_changes"
    CHECKPOINT_STALE = "checkpoint_stale"
    BUDGET_EXHAUSTED = "budget_exhausted"
    EFFECT_GAP = "effect_gap"
    UNBALANCED_TOTALS = "unbalanced_totals"
    QUEUE_AGE = "queue_age"
    CAPACITY = "capacity"
    DAEMON_SILENT = "daemon_silent"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertMeaning:
    """What an alert of one kind says, and the one thing to do first."""

    meaning: str
    next_step: str


MEANINGS: Mapping[AlertKind, AlertMeaning] = {
    AlertKind.PHASE_AGE: AlertMeaning(
        "an open job stands in one phase for longer than the phase's limit",
        "receipts status JOB --audience support",
    ),
    AlertKind.LEASE_EXPIRED: AlertMeaning(
        "a worker's lease ended and nobody took the job over",
        "see that the sensor `reconcile` ticks; it takes expired leases away",
    ),
    AlertKind.OWNER_CHANGES: AlertMeaning(
        "workers are lost at this job again and again",
        "receipts status JOB --audience engineering, and look at the runs of its attempts",
    ),
    AlertKind.CHECKPOINT_STALE: AlertMeaning(
        "a worker is alive and finishes nothing",
        "look at the wave's run; the watchdog ends a worker without progress",
    ),
    AlertKind.BUDGET_EXHAUSTED: AlertMeaning(
        "a job has used up its attempts",
        "receipts investigations list, then retry what is unresolved",
    ),
    AlertKind.EFFECT_GAP: AlertMeaning(
        "an effect and its ledger row do not agree",
        "run the asset check `effects_have_no_gaps` and answer its question",
    ),
    AlertKind.UNBALANCED_TOTALS: AlertMeaning(
        "the items of a closed job do not add up to what was accepted",
        "run the asset check `items_balance_to_accepted` and answer its question",
    ),
    AlertKind.QUEUE_AGE: AlertMeaning(
        "accepted jobs wait for their first claim longer than the limit",
        "add workers, or move cutoffs, before jobs expire",
    ),
    AlertKind.CAPACITY: AlertMeaning(
        "at the present rate the queue is not worked off before the next deadline in it",
        "add workers, or take submitters back to smaller quotas",
    ),
    AlertKind.DAEMON_SILENT: AlertMeaning(
        "work is open and no code location has ticked for longer than the limit",
        "start `receipts up` again; accepted work goes on from the ledger",
    ),
    AlertKind.TEST: AlertMeaning("somebody tries the channel", "nothing; it is resolved already"),
}

DEFAULT_PHASE_S: Mapping[str, float] = {
    "queued": 3_600.0,
    "working": 1_800.0,
    "retry_wait": 1_800.0,
    "publishing": 300.0,
    "closing": 300.0,
    "no_capable_worker": 300.0,
    "reconciling": 900.0,
    "quarantined": 86_400.0,
}


@dataclass(frozen=True, slots=True)
class AlertThresholds:
    """When an alert is raised. Seconds and counts; `phase_s` is per phase, others never alert by age.

    `item_s` is the cost of an item that is assumed until some were finished; `test_valid_s` is how
    long a delivered test alert proves that a channel works.
    """

    phase_s: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_PHASE_S))
    lease_expired_s: float = 15.0
    owner_changes: int = 3
    owner_changes_within_s: float = 86_400.0
    checkpoint_stale_s: float = 180.0
    budget_window_s: float = 86_400.0
    queue_age_s: float = 1_800.0
    item_s: float = 3.0
    daemon_silent_s: float = 120.0
    test_valid_s: float = 86_400.0


def read_thresholds(text: str, *, name: str) -> AlertThresholds:
    """Read thresholds from TOML; what is not named keeps its default, a table `phase_s` is merged.

    Args:
        text: the file's text; `name` is the file's name, for the error.
    Raises:
        InputRefused: SETTING.INVALID.v1 with the name of what is unknown or no positive number.
    """
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputRefused(SETTING_INVALID, variable=name, detail=str(error)) from error
    known = {entry.name for entry in dataclasses.fields(AlertThresholds)}
    for key, value in given.items():
        if key not in known or (key == "phase_s") != isinstance(value, dict):
            raise InputRefused(SETTING_INVALID, variable=f"{name}: {key}")
        if key == "phase_s" and not set(value) <= set(DEFAULT_PHASE_S):
            raise InputRefused(SETTING_INVALID, variable=f"{name}: {key}", allowed=sorted(DEFAULT_PHASE_S))
        for inner, number in value.items() if isinstance(value, dict) else [(key, value)]:
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
                raise InputRefused(SETTING_INVALID, variable=f"{name}: {inner}")
    phases = {**DEFAULT_PHASE_S, **given.pop("phase_s", {})}
    return AlertThresholds(phase_s=phases, **given)
