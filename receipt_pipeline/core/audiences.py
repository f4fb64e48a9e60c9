"""Customer, support and engineering views of a status document."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from receipt_pipeline.core.items import KEPT_CLASSES
from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction
from receipt_pipeline.core.principals import Role
from receipt_pipeline.core.status_document import JobFacts, reason_document, status_document

SAMPLES_MAX = 20
SOURCE_DIGITS = 12


class Audience(StrEnum):
    """Who reads a receipt."""

    CUSTOMER = "customer"
    SUPPORT = "support"
    ENGINEERING = "engineering"


# Which roles may read which view; all may read the customer view.
ROLES_OF_AUDIENCE: Mapping[Audience, frozenset[Role]] = {
    Audience.CUSTOMER: frozenset(Role),
    Audience.SUPPORT: frozenset({Role.OPERATOR, Role.REVIEWER, Role.ANALYST}),
    Audience.ENGINEERING: frozenset({Role.OPERATOR}),
}

# Every field of every view, and what it is for; `docs/completion.md` is generated from it.
FIELDS: Mapping[Audience, Mapping[str, str]] = {
    Audience.CUSTOMER: {
        "contract": "version of this document",
        "job_id": "identity",
        "operation_class": "identity",
        "fingerprint": "identity: digest of the request as written",
        "seq": "freshness: number of the newest event that is shown",
        "state": "phase",
        "phase": "phase",
        "terminal_class": "terminal summary",
        "reason": "terminal summary: code, meaning, next step",
        "items": "accepted scope and its classes",
        "item_reasons": "terminal summary: why items are not in the result, counted by code",
        "progress": "freshness: accepted items, durable checkpoint, when it was observed",
        "completion": "effects that were promised before and after closing",
        "result": "terminal summary: digest, size, whether it was verified",
        "pins": "identity: the release that processes the job",
        "times": "phase: when it changed, and its deadlines",
        "attempts": "terminal summary: number of attempts",
        "notifications": "optional effects, counted separately",
        "investigations": "open investigations by id",
        "cancel_available": "cancellation",
        "warnings": "accepted scope: what was unusual about the request",
        "links": "identity: parent, children, replaced and replacing jobs",
        "next_action": "recovery: the one safe next action",
    },
    Audience.SUPPORT: {
        "asked": "the request in short: what, how many, when",
        "stands": "the outcome: state, class, reason, totals, result",
        "safe_now": "recovery: the one safe next action with its command, and cancellation",
        "promised": "required and best-effort effects",
        "item_reasons": "why items are not in the result, counted by code",
        "decision_reasons": "why items were sent to review, counted by code",
        "investigations": "investigations with suspected effect and allowed repair",
        "effects": "which effects are committed, by kind",
        "evidence": "messages, deliveries, processing and closed effects, counted separately",
        "samples": "some items that are not in the result, without names and contents",
        "secondary": "phase, progress, attempts",
        "ids": "identity, last: job, fingerprint, related jobs, the run that processed it",
    },
    Audience.ENGINEERING: {
        "status": "the customer's view",
        "lease": "epoch, owner and deadline of ownership",
        "attempts": "every attempt with its class, cost and facts",
        "checkpoints": "durable marks in order",
        "effects": "intents with provider references",
        "deliveries": "delivery attempts",
        "evidence": "messages, deliveries, processing and closed effects, counted separately",
        "samples": "some items that are not in the result, without names and contents",
        "trail": "the events in order",
        "queries": "runnable queries for reconciliation",
    },
}

# The four kinds of evidence; each has its own event in the journal.
EVIDENCE: Mapping[str, str] = {
    "created": "message_created",
    "delivery": "delivery",
    "processing": "consumed",
    "settlement": "settled",
}
# Notes that people write are not part of a receipt.
_LEFT_OUT = frozenset({"resolution", "note"})


def support_document(facts: JobFacts) -> dict[str, Any]:
    """Return the support view: request, outcome, safe next action; then the evidence; ids come last."""
    public = status_document(facts)
    action = ACTION_TEXTS[NextAction(public["next_action"])]
    return {
        "asked": {
            "operation_class": public["operation_class"],
            "items": public["items"]["requested"],
            "submitted_at": public["times"]["submitted_at"],
        },
        "stands": {name: public[name] for name in ("state", "terminal_class", "reason", "items", "result")},
        "safe_now": {
            "next_action": public["next_action"],
            "meaning": action.meaning,
            "command": action.command,
            "cancel_available": public["cancel_available"],
        },
        "promised": public["completion"],
        "item_reasons": public["item_reasons"],
        "decision_reasons": _decision_reasons(facts.items),
        "investigations": [_investigation(row) for row in facts.investigations],
        "effects": [
            {name: row[name] for name in ("kind", "required", "state", "reason_code")} for row in facts.effects
        ],
        "evidence": evidence_of(facts.events),
        "samples": redacted_samples(facts.items),
        "secondary": {name: public[name] for name in ("phase", "progress", "attempts")},
        "ids": {
            "job_id": public["job_id"],
            "fingerprint": public["fingerprint"],
            "links": public["links"],
            "run_path": run_path(facts.attempts),
        },
    }


def _investigation(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = ("kind", "state", "owner", "suspected_effect", "allowed_repair", "last_safe_checkpoint")
    dated = {"deadline_at": _iso(row["deadline_at"]), "investigation_id": row["investigation_id"]}
    return {name: row[name] for name in shown} | dated


def run_path(attempts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the path of the run that processed the job last in the web UI, None if no run did."""
    runs = [row["run_id"] for row in attempts if row.get("run_id")]
    return f"/runs/{runs[-1]}" if runs else None


def engineering_document(facts: JobFacts) -> dict[str, Any]:
    """Return the internal projection: epochs, attempts, checkpoints, effect references, queries."""
    job = facts.job
    return {
        "status": status_document(facts),
        "lease": {
            "epoch": job["lease_epoch"],
            "owner": job["lease_owner"],
            "expires_at": _iso(job["lease_expires_at"]),
            "retry_at": _iso(job["retry_at"]),
            "wave_id": job["wave_id"],
        },
        "attempts": [_plain(row) for row in facts.attempts],
        "checkpoints": [
            {"at": _iso(row["at"]), "lease_epoch": row["lease_epoch"], "items": row["data"]["ordinal"] + 1}
            for row in facts.events
            if row["kind"] == "item_finished"
        ],
        "effects": [_plain(row) for row in facts.effects],
        "deliveries": [_plain(row) for row in facts.deliveries],
        "evidence": evidence_of(facts.events),
        "samples": redacted_samples(facts.items),
        "trail": [_event(row) for row in facts.events],
        "queries": reconciliation_queries(job["job_id"]),
    }


DOCUMENTS: Mapping[Audience, Callable[[JobFacts], dict[str, Any]]] = {
    Audience.CUSTOMER: status_document,
    Audience.SUPPORT: support_document,
    Audience.ENGINEERING: engineering_document,
}


def evidence_of(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count messages, deliveries, processing and closed effects separately; none implies another."""
    kinds = Counter(str(row["kind"]) for row in events)
    return {name: kinds[kind] for name, kind in EVIDENCE.items()}


def redacted_samples(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return some items that are not in the result: place, class and code; no name, id or content."""
    left = [row for row in items if row["item_class"] and row["item_class"] not in KEPT_CLASSES]
    return [
        {
            "ordinal": row["ordinal"],
            "source": str(row["sha256"]).removeprefix("sha256:")[:SOURCE_DIGITS],
            "class": row["item_class"],
            "reason": reason_document(row["reason_code"]),
            "losses": row["losses"],
        }
        for row in left[:SAMPLES_MAX]
    ]


def _decision_reasons(items: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    counted = Counter(code for row in items for code in (row["reasons"] or ()))
    return [{"count": counted[code]} | (reason_document(code) or {}) for code in sorted(counted)]


def reconciliation_queries(job_id: str) -> dict[str, str]:
    """Return queries that an operator can run on the ledger, by what they show."""
    one = f"WHERE job_id = '{job_id}'"
    return {
        "events": f"SELECT * FROM events {one} ORDER BY seq",
        "balance": f"SELECT item_class, count(*) FROM items {one} GROUP BY item_class",
        "attempts": f"SELECT * FROM attempts {one} ORDER BY lease_epoch",
        "effects": f"SELECT kind, required, state, idempotency_key, provider_reference FROM effects {one}",
        "deliveries": f"SELECT * FROM deliveries {one} ORDER BY send_no",
        "questions": f"SELECT * FROM investigations {one} ORDER BY opened_at",
    }


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in row["data"].items() if name not in _LEFT_OUT}
    return {
        "seq": row["seq"],
        "at": _iso(row["at"]),
        "kind": row["kind"],
        "lease_epoch": row["lease_epoch"],
        "data": data,
    }


def _iso(value: dt.datetime | None) -> str | None:
    return value.isoformat() if value is not None else None


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in row.items()}
