"""Counts a drill's account once more from its journal, with nothing but Python's sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

ENDINGS = ("succeeded", "failed", "expired", "canceled")


def recount(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures that the events of a whole ledger add up to, by their names in the report.

    Args:
        records: every event in order: `job_id`, `kind`, `lease_epoch`, `data`.
    """
    told = list(records)

    def jobs_with(kind: str, **facts: Any) -> set[str]:
        return {
            str(event["job_id"])
            for event in told
            if event["kind"] == kind and all(event["data"].get(name) == value for name, value in facts.items())
        }

    accepted = jobs_with("accepted")
    ended = {state: jobs_with("terminal", state=state) for state in ENDINGS}
    terminal = set().union(*ended.values())
    divergent = jobs_with("quarantined") - jobs_with("quarantine_resolved")
    without_object = jobs_with("object_fault", outcome="missing")
    return {
        "accepted": len(accepted),
        "terminal": len(terminal),
        **{state: len(ids) for state, ids in ended.items()},
        "verified_succeeded": len(ended["succeeded"] - without_object - divergent),
        "retried": len(_tried_again(told)),
        "attempts": _closed_attempts(told),
        "unresolved": len(accepted - terminal),
        "missing_terminal": sorted(accepted - terminal),
        "orphan_terminal": sorted(terminal - accepted),
        "overlapping": sorted(id_ for id_, n in Counter(_ends(told)).items() if n > 1),
        "success_without_object": sorted(without_object & ended["succeeded"]),
        "divergent": sorted(divergent),
        "notifications": {
            "delivered": len(jobs_with("delivery", outcome="delivered")),
            "dropped": len(jobs_with("delivery", outcome="dropped")),
            "late": len(jobs_with("consumed", outcome="late")),
            "duplicate": _received(told, "duplicate"),
        },
        "consumer": {
            "review_tasks": sum(event["data"]["tasks_made"] for event in told if event["kind"] == "consumed"),
            "duplicates": _received(told, "duplicate"),
            "conflicts": _received(told, "conflict"),
        },
        "asked": sorted(_questions(told)),
    }


def _ends(told: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(event["job_id"]) for event in told if event["kind"] == "terminal"]


def _received(told: Iterable[Mapping[str, Any]], outcome: str) -> int:
    return sum(event["kind"] == "consumed" and event["data"]["outcome"] == outcome for event in told)


def _closed_attempts(told: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter({"committed": 0, "failed": 0, "lost": 0, "yielded": 0})
    counts.update(event["data"]["outcome"] for event in told if event["kind"] == "attempt_closed")
    return dict(sorted(counts.items()))


def _tried_again(told: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the jobs that were claimed again after an attempt had failed or was lost."""
    failed: set[str] = set()
    again: set[str] = set()
    for event in told:
        job_id = str(event["job_id"])
        if event["kind"] == "attempt_closed" and event["data"]["outcome"] in ("failed", "lost"):
            failed.add(job_id)
        if event["kind"] == "claimed" and job_id in failed:
            again.add(job_id)
    return again


def _questions(told: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Return id, kind and state of every question that the journal knows of."""
    opened = {
        event["data"]["investigation_id"]: event["data"]["investigation_kind"]
        for event in told
        if event["kind"] == "investigation_opened"
    }
    closed = {event["data"]["investigation_id"] for event in told if event["kind"] == "investigation_resolved"}
    return {(id_, kind, "resolved" if id_ in closed else "open") for id_, kind in opened.items()}
