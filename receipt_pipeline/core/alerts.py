"""Alert kinds, their meanings, and the thresholds by name."""

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
    """What an alert of one kind means, and what to do first, as sentences."""

    meaning: str
    next_step: str


MEANINGS: Mapping[AlertKind, AlertMeaning] = {
    AlertKind.PHASE_AGE: AlertMeaning(
        "An open job stays in one phase longer than the limit of that phase.",
        "Read `receipts status JOB --audience support`.",
    ),
    AlertKind.LEASE_EXPIRED: AlertMeaning(
        "A worker's lease expired and no other worker claimed the job.",
        "Check that the sensor `reconcile` ticks: it releases expired leases.",
    ),
    AlertKind.OWNER_CHANGES: AlertMeaning(
        "Several workers were lost on this job.",
        "Read `receipts status JOB --audience engineering` and the runs of its attempts.",
    ),
    AlertKind.CHECKPOINT_STALE: AlertMeaning(
        "A worker is alive but finishes no items.",
        "Look at the run of the wave. The watchdog stops a worker without progress.",
    ),
    AlertKind.BUDGET_EXHAUSTED: AlertMeaning(
        "A job has used all its attempts.", "Read `receipts investigations list`, then `receipts retry JOB`."
    ),
    AlertKind.EFFECT_GAP: AlertMeaning(
        "An effect and its ledger row do not agree.",
        "Run the asset check `effects_have_no_gaps` and resolve its investigation.",
    ),
    AlertKind.UNBALANCED_TOTALS: AlertMeaning(
        "The items of a closed job do not add up to its accepted items.",
        "Run the asset check `items_balance_to_accepted` and resolve its investigation.",
    ),
    AlertKind.QUEUE_AGE: AlertMeaning(
        "Accepted jobs wait for their first claim longer than the limit.",
        "Add workers or move cutoffs before jobs expire.",
    ),
    AlertKind.CAPACITY: AlertMeaning(
        "At the current rate the queue is not finished before its next deadline.",
        "Add workers or lower the quotas of submitters.",
    ),
    AlertKind.DAEMON_SILENT: AlertMeaning(
        "Jobs are open, and no code location has ticked for longer than the limit.",
        "Start `receipts up` again. Accepted jobs continue.",
    ),
    AlertKind.TEST: AlertMeaning("This is a test of the channel.", "Nothing to do. It is already resolved."),
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
    """Read thresholds from TOML; what is not named keeps its default, and a table `phase_s` is merged.

    Args:
        text: the file's text; `name` is the file's name, for the error.
    Raises:
        InputRefused: SETTING.INVALID.v1 naming what is unknown or not a positive number.
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
