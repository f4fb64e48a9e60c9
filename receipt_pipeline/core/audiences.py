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


# Which roles may read which view (R127). The customer's is everybody's.
ROLES_OF_AUDIENCE: Mapping[Audience, frozenset[Role]] = {
    Audience.CUSTOMER: frozenset(Role),
    Audience.SUPPORT: frozenset({Role.OPERATOR, Role.REVIEWER, Role.ANALYST}),
    Audience.ENGINEERING: frozenset({Role.OPERATOR}),
}

# Every field of every view, and what it is for (R122, R123, R127). `docs/completion.md` is written from it.
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
        "items": "accepted scope and what became of it",
        "item_reasons": "terminal summary: why items are not in the result, counted by code",
        "progress": "freshness: denominator, durable checkpoint, when it was seen",
        "completion": "what was promised to be done before and after the ending",
        "result": "terminal summary: digest, size, whether it was verified",
        "pins": "identity: what the job is worked with",
        "times": "phase: when what happened and what the deadlines are",
        "attempts": "terminal summary: how often it was tried",
        "notifications": "optional effects, in totals of their own",
        "investigations": "open questions by id",
        "cancel_available": "cancellation",
        "warnings": "accepted scope: what was odd about the request",
        "links": "identity: parent, children, replaced and replacing jobs",
        "next_action": "recovery: the one safe next action",
    },
    Audience.SUPPORT: {
        "asked": "the request in a sentence's worth: what, how many, when",
        "stands": "the consequence: state, class, reason, totals, result",
        "safe_now": "recovery: the one safe next action with its command, and cancellation",
        "promised": "required and best-effort effects",
        "item_reasons": "why items are not in the result, counted by code",
        "decision_reasons": "why items were sent to review, counted by code",
        "investigations": "owned questions with suspected effect and allowed repair",
        "effects": "which effects are committed, by kind",
        "evidence": "message, delivery, processing and settlement, counted apart",
        "samples": "some items that are not in the result, without names and contents",
        "secondary": "phase, progress, attempts",
        "ids": "identity, last: job, fingerprint, family, the run that worked it",
    },
    Audience.ENGINEERING: {
        "status": "the customer's view",
        "lease": "epoch, owner and deadline of ownership",
        "attempts": "every try with its class, cost and facts",
        "checkpoints": "durable marks in order",
        "effects": "intents with provider references",
        "deliveries": "tries at sending",
        "evidence": "message, delivery, processing and settlement, counted apart",
        "samples": "some items that are not in the result, without names and contents",
        "trail": "the events in order",
        "queries": "runnable queries for reconciliation",
    },
}

# The four kinds of evidence, each an event of its own in the journal (R151).
EVIDENCE: Mapping[str, str] = {
    "created": "message_created",
    "delivery": "delivery",
    "processing": "consumed",
    "settlement": "settled",
}
# A person's free words are no part of a receipt.
_NOT_TOLD = frozenset({"resolution", "note"})


def support_document(facts: JobFacts) -> dict[str, Any]:
    """Return the support view: asked, stands, safe now; then the evidence; ids come last (R148)."""
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
        "investigations": [_question(row) for row in facts.investigations],
        "effects": [
            {name: row[name] for name in ("kind", "required", "state", "reason_code")}
            for row in facts.effects
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


def _question(row: Mapping[str, Any]) -> dict[str, Any]:
    told = ("kind", "state", "owner", "suspected_effect", "allowed_repair", "last_safe_checkpoint")
    dated = {"deadline_at": _iso(row["deadline_at"]), "investigation_id": row["investigation_id"]}
    return {name: row[name] for name in told} | dated


def run_path(attempts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return where the web UI shows the run that worked the job last, None where no run did."""
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
        "trail": [_told(row) for row in facts.events],
        "queries": reconciliation_queries(job["job_id"]),
    }


DOCUMENTS: Mapping[Audience, Callable[[JobFacts], dict[str, Any]]] = {
    Audience.CUSTOMER: status_document,
    Audience.SUPPORT: support_document,
    Audience.ENGINEERING: engineering_document,
}


def evidence_of(events: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count message creation, delivery, processing and settlement apart: none stands for another (R151)."""
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
    """Return queries that an operator can run on the ledger as they stand, by what they answer."""
    one = f"WHERE job_id = '{job_id}'"
    return {
        "events": f"SELECT * FROM events {one} ORDER BY seq",
        "balance": f"SELECT item_class, count(*) FROM items {one} GROUP BY item_class",
        "attempts": f"SELECT * FROM attempts {one} ORDER BY lease_epoch",
        "effects": f"SELECT kind, required, state, idempotency_key, provider_reference FROM effects {one}",
        "deliveries": f"SELECT * FROM deliveries {one} ORDER BY send_no",
        "questions": f"SELECT * FROM investigations {one} ORDER BY opened_at",
    }


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in row["data"].items() if name not in _NOT_TOLD}
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
    return {
        name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in row.items()
    }
