"""The status document of a job and its progress."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from receipt_pipeline.core.completion import COMPLETION_CONTRACTS
from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, DerivedPhase, JobState, Phase, TerminalClass
from receipt_pipeline.core.next_actions import JobSituation, next_action
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.reasons import (
    NO_CAPABLE_WORKER,
    OBJECT_UNREADABLE,
    REASONS,
    RESULT_MISMATCH,
    RESULT_MISSING,
    Reason,
)

STATUS_CONTRACT = "receipt-status/v1"
# What a sweep found under the key of a result; any other value is no fault.
OBJECT_FAULTS: Mapping[str, Reason] = {
    "missing": RESULT_MISSING,
    "mismatch": RESULT_MISMATCH,
    "unreadable": OBJECT_UNREADABLE,
}


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What one snapshot of the ledger says of a job; rows as plain mappings.

    Attributes:
        children: ids of jobs that retry its unresolved items, oldest first.
        supersedes: ids of jobs that this one replaces.
        reasons: how many items are not in the result, by their reason code.
        items, events: whole rows for the views of support and engineering; empty for the customer's.
        withdrawn: a recorded decision withdrew the result.
    """

    job: Mapping[str, Any]
    counts: Mapping[ItemClass, int]
    attempts: Sequence[Mapping[str, Any]]
    effects: Sequence[Mapping[str, Any]]
    deliveries: Sequence[Mapping[str, Any]]
    investigations: Sequence[Mapping[str, Any]]
    quarantined: bool
    object_outcome: str | None
    read_at: dt.datetime
    adjustments: Sequence[Adjustment] = ()
    children: Sequence[str] = ()
    supersedes: Sequence[str] = ()
    withdrawn: bool = False
    reasons: Mapping[str, int] = field(default_factory=dict)
    items: Sequence[Mapping[str, Any]] = ()
    events: Sequence[Mapping[str, Any]] = ()


def status_document(facts: JobFacts) -> dict[str, Any]:
    """Return the public status: identity, scope, phase, freshness, cancellation, terminal summary."""
    job = facts.job
    state = JobState(job["state"])
    return {
        "contract": STATUS_CONTRACT,
        "job_id": job["job_id"],
        "operation_class": job["operation_class"],
        "fingerprint": job["fingerprint"],
        "seq": job["latest_seq"],
        "state": state.value,
        "phase": _phase(facts).value,
        "terminal_class": job["terminal_class"],
        "reason": reason_document(job["reason_code"] or _waiting_code(job)),
        "items": {"requested": job["items_requested"]}
        | {item_class.value: facts.counts.get(item_class, 0) for item_class in ItemClass},
        "item_reasons": [
            {"count": facts.reasons[code]} | (reason_document(code) or {}) for code in sorted(facts.reasons)
        ],
        "progress": item_progress(
            job, facts.counts, facts.adjustments, delayed_for_s=_delayed_for_s(facts), read_at=facts.read_at
        ),
        "completion": COMPLETION_CONTRACTS[job["operation_class"]].as_promised(job),
        "result": _result(facts),
        "pins": Pins.from_document(job).as_document(),
        "times": {
            name: _iso(job[name])
            for name in ("submitted_at", "queue_deadline", "claimed_at", "terminal_at", "settled_at")
        },
        "attempts": len(facts.attempts),
        "notifications": {
            outcome: sum(1 for row in facts.deliveries if row["outcome"] == outcome)
            for outcome in ("delivered", "dropped", "failed", "unconfirmed")
        },
        "investigations": [row["investigation_id"] for row in facts.investigations if row["state"] == "open"],
        "cancel_available": state not in TERMINAL_STATES,
        "warnings": list(job["warnings"]),
        "links": {
            "parent": job["parent_job_id"],
            "children": list(facts.children),
            "supersedes": list(facts.supersedes),
            "superseded_by": job["superseded_by"],
        },
        "next_action": next_action(job_situation(facts)).value,
    }


def job_situation(facts: JobFacts) -> JobSituation:
    """Return what the next action of the job depends on."""
    job = facts.job
    return JobSituation(
        state=JobState(job["state"]),
        shown=_phase(facts),
        terminal_class=TerminalClass(job["terminal_class"]) if job["terminal_class"] else None,
        reason_code=job["reason_code"],
        counts=facts.counts,
        quarantined=facts.quarantined,
        withdrawn=facts.withdrawn,
        purged=job["result_purged_at"] is not None,
        object_fault=OBJECT_FAULTS.get(facts.object_outcome or ""),
        retried=bool(facts.children),
    )


def _iso(value: dt.datetime | None) -> str | None:
    return value.isoformat() if value is not None else None


def _waiting_code(job: Mapping[str, Any]) -> str:
    """Return why an open job waits, where that has a reason of its own."""
    return NO_CAPABLE_WORKER.code if job["phase"] == Phase.NO_CAPABLE_WORKER else ""


def reason_document(code: str) -> dict[str, str] | None:
    """Return a reason code with its meaning and next step; None for no code, and a code is never lost."""
    if not code:
        return None
    known = REASONS.get(code)
    if known is None:  # A code of a later version: say so, keep the code.
        return {"code": code, "meaning": "This version does not know the reason.", "next_step": "Upgrade to read it."}
    return {"code": code, "meaning": known.meaning, "next_step": known.next_step}


def _phase(facts: JobFacts) -> Phase | DerivedPhase:
    """Return the stored phase, or the derived one that is shown past a deadline."""
    job = facts.job
    if job["state"] == JobState.ACCEPTED and job["queue_deadline"] < facts.read_at:
        return DerivedPhase.OVERDUE
    return Phase(job["phase"]) if _delayed_for_s(facts) is None else DerivedPhase.DELAYED


def _delayed_for_s(facts: JobFacts) -> float | None:
    """Return for how long an owned job's lease has been over without a renewal, None while it is not."""
    lease = facts.job["lease_expires_at"]
    if facts.job["state"] != JobState.RUNNING or lease is None or lease >= facts.read_at:
        return None
    return round(float((facts.read_at - lease).total_seconds()), 3)


def _result(facts: JobFacts) -> dict[str, Any] | None:
    job = facts.job
    if job["result_digest"] is None:
        return None
    faulty = facts.object_outcome not in (None, "ok")
    return {
        "digest": job["result_digest"],
        "size_bytes": job["result_size_bytes"],
        "verified": not (faulty or facts.quarantined or facts.withdrawn) and job["result_purged_at"] is None,
        "purged_at": _iso(job["result_purged_at"]),
    }


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Items whose counter moved without a worker's checkpoint, and why."""

    item_class: ItemClass
    reason_code: str
    count: int

    def as_document(self) -> dict[str, Any]:
        """Return class, count, and the reason with its meaning."""
        known = REASONS.get(self.reason_code)
        return {
            "class": self.item_class.value,
            "count": self.count,
            "reason": self.reason_code,
            "meaning": known.meaning if known else "",
        }


def item_progress(
    job: Mapping[str, Any],
    counts: Mapping[ItemClass, int],
    adjustments: Iterable[Adjustment],
    *,
    delayed_for_s: float | None,
    read_at: dt.datetime,
) -> dict[str, Any]:
    """Return the progress of an accepted job, whose number of items never changes.

    `finished` counts what workers committed at checkpoints; `adjustments` is everything else that has a
    class, so that both together are the sum of the classes. It predicts nothing.
    """
    listed = list(adjustments)
    classed = sum(counts.values())
    checkpoint_at = job["checkpoint_at"]
    return {
        "scope": "fixed",
        "denominator": job["items_requested"],
        "checkpoint": job["checkpoint"],
        "finished": classed - sum(entry.count for entry in listed),
        "adjustments": [entry.as_document() for entry in listed],
        "observed_at": read_at.isoformat(),
        "checkpoint_at": checkpoint_at.isoformat() if checkpoint_at else None,
        "checkpoint_age_s": round((read_at - checkpoint_at).total_seconds(), 3) if checkpoint_at else None,
        "delayed": delayed_for_s is not None,
        "delayed_for_s": delayed_for_s,
    }


def discovered_progress(*, decided: int, phase: str, total: int | None, read_at: dt.datetime) -> dict[str, Any]:
    """Return the progress of work whose scope is not known yet: a count and a phase.

    Args:
        total: the number of rows once the whole delivery was read, None while it is not known; then no
            share is shown.
    """
    shown: dict[str, Any] = {"scope": "discovered" if total is None else "fixed", "phase": phase}
    if total is not None:
        shown["denominator"] = total
    return shown | {"decided": decided, "observed_at": read_at.isoformat()}
