"""Decides how long a delivery waits for scans, by the ledger's clock: until still, or until the limit."""

from __future__ import annotations

import datetime as dt
from typing import Any

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.limits import ServiceLimits
from receipt_pipeline.core.reasons import (
    INBOX_INCOMPLETE,
    SCAN_CHANGING,
    SCAN_DIGEST,
    SCAN_MISSING,
    SCAN_SIZE,
    SCAN_UNREADABLE,
)
from receipt_pipeline.ledger.columns import EPOCH, MICROSECOND

STILL_MAX = 200
MAY_STILL_COME = frozenset({SCAN_MISSING, SCAN_UNREADABLE, SCAN_CHANGING})
MAY_STILL_GROW = frozenset({SCAN_SIZE, SCAN_DIGEST})


class Patience:
    """What one waiting delivery waits for, and since when.

    A scan that is missing, unreadable or changing may come until `missing_scans_s` after the
    delivery. One that is there with other bytes may still be growing; once its size stood still
    for `settle_s`, it is what it is.
    """

    def __init__(self, submission: dict[str, Any], *, now: dt.datetime, limits: ServiceLimits) -> None:
        self._now = now
        self._limits = limits
        self._overdue = now - submission["received_at"] >= dt.timedelta(seconds=limits.missing_scans_s)
        self._before: dict[str, list[int]] = submission["facts"].get("still", {})
        self._still: dict[str, list[int]] = {}
        self.why = "nothing"

    @property
    def facts(self) -> dict[str, Any]:
        """Return what the next pass has to know."""
        return {"still": self._still} if self._still else {}

    def judge(self, refusal: InputRefused) -> InputRefused | None:
        """Return the refusal that stands, or None to look again in a later pass; `why` tells the last one."""
        judged = self._judged(refusal)
        if judged is None:
            self.why = refusal.explain()
        return judged

    def _judged(self, refusal: InputRefused) -> InputRefused | None:
        if refusal.reason in MAY_STILL_COME:
            return self._incomplete(refusal) if self._overdue else None
        if refusal.reason in MAY_STILL_GROW:
            return refusal if self._overdue or self._stands_still(refusal) else None
        return refusal

    def _incomplete(self, refusal: InputRefused) -> InputRefused:
        if refusal.reason is not SCAN_MISSING:
            return refusal
        facts = dict(refusal.facts) | {"waited_s": self._limits.missing_scans_s}
        return InputRefused(INBOX_INCOMPLETE, pointer=refusal.pointer, **facts)

    def _stands_still(self, refusal: InputRefused) -> bool:
        size_bytes = int(refusal.facts["size_bytes"])
        now_us = (self._now - EPOCH) // MICROSECOND
        seen = self._before.get(refusal.pointer)
        since_us = seen[1] if seen is not None and seen[0] == size_bytes else now_us
        if len(self._still) < STILL_MAX:
            self._still[refusal.pointer] = [size_bytes, since_us]
        return now_us - since_us >= self._limits.settle_s * 1_000_000
