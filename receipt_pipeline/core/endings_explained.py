"""What a cancellation or replacement stopped, what stands, what remains, and whether anything undoes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from receipt_pipeline.core.effect_lifecycle import EffectKind, EffectState
from receipt_pipeline.core.item_classes import ItemClass

_STOPPED = frozenset({ItemClass.CANCELLED, ItemClass.SUPERSEDED})
_NOT_SENT_ON = "none is needed: nothing of the job was sent on but the notice of its ending"
_SENT_ON = "none undoes what reviewers were given: they close its tasks by hand"


def ending_explained(
    items: Iterable[Mapping[str, Any]], effects: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return, for a job that was ended on request, item ids and effects by what became of each (R058, R059).

    Every item of the accepted scope is in one of `stopped`, `stands` and `unresolved`, so that the three
    add up to `requested`.

    Args:
        items: every item row of the closed job.
        effects: its effect rows; uploads whose end is not known are looked up by reconciliation.
    """
    rows, followed = list(items), list(effects)
    stopped = [row["item_id"] for row in rows if row["item_class"] in _STOPPED]
    unresolved = [row["item_id"] for row in rows if row["item_class"] == ItemClass.UNRESOLVED]
    stands = [row["item_id"] for row in rows if row["item_id"] not in {*stopped, *unresolved}]
    open_states = (EffectState.INTENDED, EffectState.UNKNOWN)
    remains = [
        {
            "effect": row["kind"],
            "state": row["state"],
            "what": _WHAT_REMAINS.get(row["kind"], _BY_ITSELF),
        }
        for row in followed
        if row["state"] in open_states
    ]
    return {
        "requested": len(rows),
        "stopped": stopped,
        "stands": stands,
        "unresolved": unresolved,
        "remains": remains,
        "compensating_action": compensation(followed),
    }


_BY_ITSELF = "the product finishes or settles it by itself"
_WHAT_REMAINS: Mapping[str, str] = {
    EffectKind.RESULT_OBJECT: "an upload that may have happened is looked up; it is served to nobody",
    EffectKind.NOTIFICATION: "the notice of this ending is sent",
    EffectKind.REVIEW_TASKS: "review tasks are made once, as decided",
}


def compensation(effects: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return whether an action exists that undoes what was sent on; nothing here pretends to."""
    sent = any(
        row["kind"] == EffectKind.REVIEW_TASKS and row["state"] == EffectState.COMMITTED for row in effects
    )
    return {"exists": False, "what": _SENT_ON if sent else _NOT_SENT_ON}
