"""What a job says of an item beside its bytes: when it was accepted, and the items before it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EarlierItem:
    """An item of the same job and a lower ordinal, its outcome committed; fields and print as plain JSON."""

    item_id: str
    fields: Mapping[str, Any]
    scan_print: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Submitted:
    """The circumstances of one item, all of them frozen when it is judged.

    Attributes:
        accepted_at: when the job was accepted, by the ledger; None for a scan without a job.
        earlier: the items before it in the accepted order that left a print, in that order.
    """

    accepted_at: dt.datetime | None = None
    earlier: tuple[EarlierItem, ...] = ()


ALONE = Submitted()
