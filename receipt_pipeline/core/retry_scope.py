"""Which items of a closed job a retry may touch: those without an outcome, and never a finished one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.reasons import INPUT_CHANGED, INPUT_GONE

# Refusals that say nothing about the scan itself: its stored copy was not there as it was accepted.
INFRASTRUCTURE_REJECTIONS = frozenset({INPUT_GONE.code, INPUT_CHANGED.code})
_NO_OUTCOME = frozenset({ItemClass.UNRESOLVED, ItemClass.EXPIRED})


def may_be_retried(item: Mapping[str, Any], *, terminal_class: TerminalClass) -> bool:
    """Tell whether an item of a closed job is left to be done (R114).

    Unresolved and expired items are; so are rejections for the store's sake, and, where the result could
    certainly not be published, the finished items that nobody was given.
    """
    item_class = ItemClass(item["item_class"])
    if item_class in _NO_OUTCOME:
        return True
    if item_class is ItemClass.REJECTED:
        return item["reason_code"] in INFRASTRUCTURE_REJECTIONS
    return item_class in KEPT_CLASSES and terminal_class is TerminalClass.DEPENDENCY_FAILED
