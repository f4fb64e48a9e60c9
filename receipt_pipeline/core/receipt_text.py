"""Receipts and cancellations as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction

DIGEST_DIGITS = 12


def render_receipt(document: Mapping[str, Any], *, lease_epoch: int | None = None) -> str:
    """Return a status document as a receipt of three parts.

    Args:
        document: the customer's view.
        lease_epoch: shown to engineering alone.
    """
    parts = (_operation(document), _execution(document, lease_epoch), _completion(document))
    return "\n".join(line for part in parts for line in part)


def render_consequence(document: Mapping[str, Any]) -> str:
    """Return what a reader needs first: the request, its outcome, and the safe next action.

    Args:
        document: the customer's view.
    """
    items, action = document["items"], ACTION_TEXTS[NextAction(document["next_action"])]
    return "\n".join(
        (
            f"asked: {document['operation_class']} of {counted(items['requested'], 'item')},"
            f" {_time(document['times']['submitted_at'])}",
            f"result: {kept_items_text(document)}",
            f"next: {action.meaning} (`{action.command}`)",
        )
    )


def kept_items_text(document: Mapping[str, Any]) -> str:
    """Return a job's outcome in one line: its state and its result."""
    items, result = document["items"], document["result"]
    ended = f"{document['state']} / {document['terminal_class']}"
    kept = items[ItemClass.CLASSIFIED.value] + items[ItemClass.UNCHANGED.value]
    if document["terminal_class"] is None:
        return f"{document['state']}, {document['phase'].replace('_', ' ')}; not closed yet"
    if result is None:
        return f"{ended}; there is no result"
    worth = "the verified result" if result["verified"] else "a result that is NOT verified"
    return f"{ended}; {_count(kept)} of {counted(items['requested'], 'item')} in {worth}"


def _operation(document: Mapping[str, Any]) -> list[str]:
    times, completion = document["times"], document["completion"]
    cancel = "can be canceled" if document["cancel_available"] else "can no longer be canceled"
    return [
        "# operation",
        f"job {document['job_id']} / fp {_short(document['fingerprint'])} / {completion['contract']}",
        f"accepted {_time(times['submitted_at'])};"
        f" {counted(document['items']['requested'], 'item')} requested; {cancel}",
    ]


def _execution(document: Mapping[str, Any], lease_epoch: int | None) -> list[str]:
    progress = document["progress"]
    lease = f" / lease {lease_epoch}" if lease_epoch is not None else ""
    seen = f"observed {_time(progress['observed_at'])}"
    age = progress["checkpoint_age_s"]
    if age is not None:
        seen += f", checkpoint {age:,.0f} s before"
    return [
        "# execution",
        f"attempts {document['attempts']}{lease} / checkpoint {_count(progress['checkpoint'])}"
        f" of {_count(progress['denominator'])}",
        f"{document['state']}, phase {document['phase']}; {seen}",
    ]


def _completion(document: Mapping[str, Any]) -> list[str]:
    items = document["items"]
    classes = [(name.value, items[name.value]) for name in ItemClass]
    always = (ItemClass.CLASSIFIED, ItemClass.REJECTED, ItemClass.UNRESOLVED)
    shown = [(name, count) for name, count in classes if count or name in always]
    total = sum(count for _, count in classes)
    lines = ["# completion", " / ".join(f"{_count(count)} {name}" for name, count in shown)]
    terms = " + ".join(_count(count) for _, count in shown)
    rest = items["requested"] - total
    lines.append(f"{terms} = {_count(total)}" + (f"; {_count(rest)} not finished" if rest else ", the accepted scope"))
    lines += _reasons(document)
    if document["terminal_class"] is None:
        return [*lines, "not closed: no result is final yet"]
    return [*lines, _result(document), _closed(document)]


def _reasons(document: Mapping[str, Any]) -> list[str]:
    listed = [*document["item_reasons"]]
    if document["reason"]:
        listed.insert(0, {"count": None} | document["reason"])
    return [
        (f"{_count(entry['count'])} x " if entry["count"] is not None else "") + f"{entry['code']}: {entry['meaning']}"
        for entry in listed
    ]


def _result(document: Mapping[str, Any]) -> str:
    result = document["result"]
    if result is None:
        return "no result object"
    if result["purged_at"]:
        return f"object {_short(result['digest'])} deleted {_time(result['purged_at'])} after its retention"
    return f"object {_short(result['digest'])} {'verified' if result['verified'] else 'NOT verified'}"


def _closed(document: Mapping[str, Any]) -> str:
    sent = ", ".join(f"{count} {name}" for name, count in document["notifications"].items() if count)
    times = document["times"]
    effects = f"all effects committed {_time(times['settled_at'])}" if times["settled_at"] else "effects outstanding"
    return (
        f"{document['terminal_class']}, closed {_time(times['terminal_at'])}; notification: {sent or 'none'}; {effects}"
    )


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:DIGEST_DIGITS]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 item", "12,480 items"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _count(number: int) -> str:
    return f"{number:,}"


def _time(text: str) -> str:
    return f"{text[:19]}Z" if text.endswith("+00:00") else text


_STOPPED = frozenset({ItemClass.CANCELLED, ItemClass.SUPERSEDED})
_NOT_SENT_ON = "None is needed: only the notification about closing was sent."
_SENT_ON = "Nothing undoes review tasks that already exist: reviewers close them."


def cancellation_document(items: Iterable[Mapping[str, Any]], effects: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, for a job that was canceled or replaced, its item ids and effects by what happened to them.

    Every item of the accepted scope is in one of `stopped`, `stands` and `unresolved`, so that the three
    add up to `requested`.

    Args:
        items: every item row of the closed job.
        effects: its effect rows; uploads with an unknown end are looked up by reconciliation.
    """
    rows, followed = list(items), list(effects)
    stopped = [row["item_id"] for row in rows if row["item_class"] in _STOPPED]
    unresolved = [row["item_id"] for row in rows if row["item_class"] == ItemClass.UNRESOLVED]
    stands = [row["item_id"] for row in rows if row["item_id"] not in {*stopped, *unresolved}]
    open_states = (EffectState.INTENDED, EffectState.UNKNOWN)
    remains = [
        {"effect": row["kind"], "state": row["state"], "what": _WHAT_REMAINS.get(row["kind"], _BY_ITSELF)}
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


_BY_ITSELF = "It is finished automatically."
_WHAT_REMAINS: Mapping[str, str] = {
    EffectKind.RESULT_OBJECT: "An upload with an unknown end is looked up. It is not served.",
    EffectKind.NOTIFICATION: "The notification about closing is sent.",
    EffectKind.REVIEW_TASKS: "Review tasks are created once, as decided.",
}


def compensation(effects: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return whether an action exists that undoes what was sent; none does."""
    sent = any(row["kind"] == EffectKind.REVIEW_TASKS and row["state"] == EffectState.COMMITTED for row in effects)
    return {"exists": False, "what": _SENT_ON if sent else _NOT_SENT_ON}
