"""How an attempt ends: the one list, for the ledger that closes it and the account that counts it."""

from __future__ import annotations

from enum import StrEnum


class AttemptOutcome(StrEnum):
    """What became of one attempt; its row is closed with it once."""

    COMMITTED = "committed"
    FAILED = "failed"
    LOST = "lost"
    YIELDED = "yielded"
    HELD = "held"
    OVERRUN = "overrun"
    QUARANTINED = "quarantined"
    REQUEUED = "requeued"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"
