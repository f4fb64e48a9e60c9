"""The registry: every invariant that checks, reconciliation, alerts, the account and the docs read."""

from __future__ import annotations

from receipt_pipeline.ledger.invariants.alerts import ALERT_CONDITIONS, NO_ACTIVE_ALERT
from receipt_pipeline.ledger.invariants.effects import (
    EFFECTS_HAVE_NO_GAPS,
    EVERY_NOTIFICATION_EXPLAINED,
    ONE_TASK_PER_DECISION,
)
from receipt_pipeline.ledger.invariants.invariant import Invariant
from receipt_pipeline.ledger.invariants.objects import (
    DIVERGENCE_IS_HELD,
    NO_DIVERGENCE_SERVED,
    NO_OBJECT_WITHOUT_SUCCESS,
    NO_OPEN_QUARANTINE,
    OBJECTS_MATCH,
    RESULTS_STATE_PINS,
    SUCCESS_HAS_OBJECT,
)
from receipt_pipeline.ledger.invariants.records import (
    EVERY_INVESTIGATION_IS_OWNED,
    EVERY_JOB_IS_OWNED,
    ITEMS_BALANCE,
    NO_MISSING_TERMINAL,
    NO_ORPHAN_TERMINALS,
    ONE_TERMINAL_RECORD,
)
from receipt_pipeline.ledger.invariants.work import (
    ATTEMPTS_WITHIN_BUDGET,
    NO_ABANDONED_LEASE,
    QUEUE_AGE_WITHIN_CAPACITY,
)

INVARIANTS: tuple[Invariant, ...] = (
    ONE_TERMINAL_RECORD,
    ITEMS_BALANCE,
    NO_ORPHAN_TERMINALS,
    NO_MISSING_TERMINAL,
    EVERY_JOB_IS_OWNED,
    EVERY_INVESTIGATION_IS_OWNED,
    ATTEMPTS_WITHIN_BUDGET,
    NO_ABANDONED_LEASE,
    EFFECTS_HAVE_NO_GAPS,
    QUEUE_AGE_WITHIN_CAPACITY,
    NO_ACTIVE_ALERT,
    SUCCESS_HAS_OBJECT,
    OBJECTS_MATCH,
    NO_OBJECT_WITHOUT_SUCCESS,
    RESULTS_STATE_PINS,
    EVERY_NOTIFICATION_EXPLAINED,
    ONE_TASK_PER_DECISION,
    NO_DIVERGENCE_SERVED,
    DIVERGENCE_IS_HELD,
    NO_OPEN_QUARANTINE,
    *ALERT_CONDITIONS,
)
CHECKED: dict[str, Invariant] = {invariant.name: invariant for invariant in INVARIANTS if invariant.asset}
