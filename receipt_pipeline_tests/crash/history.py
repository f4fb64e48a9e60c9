"""Reads the journal as evidence: what the events of a ledger must show, whoever wrote them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]
# What only the holder of the lease may write; each carries the epoch under which it was written.
FENCED = frozenset({"item_finished", "result_intended"})


def violations(events: Iterable[Event]) -> list[str]:
    """Return every promise that the journal shows as broken; events come in order of `seq`."""
    by_job: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["job_id"] is not None:
            by_job[event["job_id"]].append(event)
    return [
        f"{job_id}: {fault}"
        for job_id, story in by_job.items()
        for rule in (_epochs, _once, _acted)
        for fault in rule(story)
    ]


def _epochs(story: Sequence[Event]) -> list[str]:
    """Claims rise strictly; nothing is written but by the claim that is open at that moment."""
    faults: list[str] = []
    newest, held = 0, None
    for event in story:
        epoch = event["lease_epoch"]
        if event["kind"] == "claimed":
            if epoch <= newest:
                faults.append(f"claim {epoch} after {newest} (seq {event['seq']})")
            if held is not None:
                faults.append(f"claim {epoch} while {held} is open (seq {event['seq']})")
            newest = held = epoch
        elif event["kind"] in FENCED and epoch != held:
            faults.append(f"{event['kind']} under {epoch}, held by {held} (seq {event['seq']})")
        elif event["kind"] == "attempt_closed":
            if epoch != held:
                faults.append(f"attempt {epoch} closed, held by {held} (seq {event['seq']})")
            held = None
        elif event["kind"] == "terminal" and epoch < newest:
            faults.append(f"terminal under {epoch} after claim {newest} (seq {event['seq']})")
    return faults


def _once(story: Sequence[Event]) -> list[str]:
    """One acceptance, at most one terminal record, one outcome an item, one message."""
    kinds = Counter(event["kind"] for event in story)
    faults = [
        f"{kinds[kind]} events of {kind}"
        for kind in ("accepted", "terminal", "message_created")
        if kinds[kind] > 1
    ]
    outcomes = Counter(event["data"]["ordinal"] for event in story if event["kind"] == "item_finished")
    faults += [f"item {ordinal} finished {count} times" for ordinal, count in outcomes.items() if count > 1]
    ended = next((index for index, event in enumerate(story) if event["kind"] == "terminal"), len(story))
    late = [event["kind"] for event in story[ended:] if event["kind"] in FENCED | {"claimed"}]
    return faults + [f"{kind} after the terminal record" for kind in late]


def _acted(story: Sequence[Event]) -> list[str]:
    """The decisions of a job were acted upon once, and only for a success."""
    acted = [event for event in story if event["kind"] == "consumed" and event["data"]["outcome"] == "acted"]
    states = [event["data"]["state"] for event in story if event["kind"] == "terminal"]
    wanted = 1 if states == ["succeeded"] else 0
    return [] if len(acted) == wanted else [f"acted {len(acted)} times on {states}"]


def tally(events: Iterable[Event]) -> dict[str, int]:
    """Count what the journal tells of takeovers, refusals and repeats."""
    counts: Counter[str] = Counter()
    for event in events:
        data = event["data"]
        counts["takeovers"] += event["kind"] == "attempt_closed" and data["outcome"] == "lost"
        counts["refused_stale_writes"] += event["kind"] == "write_refused"
        counts["attempts"] += event["kind"] == "claimed"
        counts["terminal"] += event["kind"] == "terminal"
        counts["duplicate_deliveries"] += event["kind"] == "consumed" and data["outcome"] == "duplicate"
        counts["tasks_made"] += data.get("tasks_made", 0) if event["kind"] == "consumed" else 0
    return dict(counts)
