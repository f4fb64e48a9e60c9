"""The report document."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, and_, distinct, exists, func, select

from receipt_pipeline.accounting.facts import Accountant, Facts, read_facts
from receipt_pipeline.accounting.figures import FIGURES
from receipt_pipeline.accounting.release_report import Account, account
from receipt_pipeline.core.alerts import MEANINGS, AlertKind
from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.ledger.effects.alerts import open_alerts
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import OPEN
from receipt_pipeline.ledger.legacy_jobs import count_legacy_jobs
from receipt_pipeline.ledger.rows import TenantScope
from receipt_pipeline.ledger.schema.effects import consumed, deliveries, effects, review_tasks
from receipt_pipeline.ledger.schema.jobs import attempts, jobs

MICROS_PER_S = 1_000_000
IDS_BATCH_MAX = 10_000


def report_document(
    accountant: Accountant, *, cutoff: dt.datetime | None = None, tenant: str | None = None
) -> dict[str, Any]:
    """Return the report document as the ledger stands now, evaluated now or at a cutoff.

    Args:
        tenant: whose account it is; None for the account of the whole ledger.
    """
    with accountant.ledger.reading() as tx:
        facts = read_facts(tx, limits=accountant.limits, cutoff=cutoff, tenant=tenant)
        return build_document(tx, facts, active_alerts=open_alerts(tx))


def evaluate_gate(facts: Facts) -> Account:
    """Balance the sets and evaluate the gate."""
    findings = {name: ids for name, ids in facts.listed.items() if name != "object_without_success"}
    unresolved = [line.label for line in facts.open_findings if line.finding == "unresolved_items"]
    return account(
        facts.sets, findings=findings | {"unresolved_items": unresolved}, unowned=facts.unowned, others=facts.others
    )


def build_document(
    tx: LedgerTransaction, facts: Facts, *, active_alerts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the report document of one snapshot; times as ISO text, durations in seconds."""
    verdict = evaluate_gate(facts)
    return {
        "accepted": facts.counts["accepted"],
        "in_flight": facts.counts["in_flight"],
        "terminal": facts.counts["terminal"],
        "succeeded": facts.counts["succeeded"],
        "verified_succeeded": _verified(tx, facts),
        "failed": facts.counts["failed"],
        "expired": facts.counts["expired"],
        "canceled": facts.counts["canceled"],
        "retried": _retried(tx, facts),
        "attempts": _attempts(tx, facts),
        "unresolved": len(facts.unresolved),
        "unresolved_items": facts.unresolved_items,
        "missing_terminal": list(facts.unresolved),
        "effect_gaps": facts.listed["effect_gaps"],
        "orphan_terminal": list(verdict.orphan),
        "overlapping": list(verdict.overlapping),
        "success_without_object": facts.listed["success_without_object"],
        "object_without_success": facts.listed["object_without_success"],
        "object_mismatch": facts.listed["object_mismatch"],
        "divergent": facts.listed["divergent"],
        "notifications": _notifications(tx, facts.scope),
        "consumer": _consumer(tx, facts.scope),
        "time_to_completion_s": _completion(tx, facts),
        "imported": _imported(tx, facts),
        "imported_open": facts.listed["imported_open"],
        "investigations": [_investigation(row) for row in facts.investigations],
        "alerts": [_alert(row) for row in active_alerts],
        "state": verdict.state.value,
        "gate": verdict.gate.value,
        "unowned": list(verdict.unowned),
        "found_by": dict(FIGURES),
        "as_of": facts.snapshot.as_of.isoformat(),
        "cutoff": (facts.snapshot.cutoff or facts.snapshot.as_of).isoformat(),
        "seq": facts.snapshot.seq,
    }


def _imported(tx: LedgerTransaction, facts: Facts) -> dict[str, Any]:
    """Count an older system's jobs: total = terminal + decided + open; none of them is among the accepted.

    `decided` are those whose question a person has answered; `classes` are the older system's word.
    """
    classes: Counter[str] = Counter()
    counts = Counter({"total": 0, "terminal": 0, "decided": 0, "open": 0})
    for row in count_legacy_jobs(tx, facts.scope.tenant):
        counts["total"] += row["jobs"]
        if row["terminal_class"] is not None:
            counts["terminal"] += row["jobs"]
            classes[row["terminal_class"]] += row["jobs"]
        else:
            counts["open" if row["question"] == OPEN else "decided"] += row["jobs"]
    return {**counts, "classes": dict(sorted(classes.items()))}


def _alert(row: Mapping[str, Any]) -> dict[str, Any]:
    alert = MEANINGS[AlertKind(row["kind"])]
    return {
        "id": row["alert_id"],
        "kind": row["kind"],
        "subject": row["subject"],
        "job_id": row["job_id"],
        "meaning": alert.meaning,
        "next_step": alert.next_step,
        "raised_at": row["raised_at"].isoformat(),
    }


def _investigation(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["investigation_id"],
        "job_id": row["job_id"],
        "kind": row["kind"],
        "owner": row["owner"],
        "deadline": row["deadline_at"].isoformat(),
        "state": row["state"],
    }


def _verified(tx: LedgerTransaction, facts: Facts) -> int:
    """Count successes whose object was read back, and against which nothing was found since."""
    published = exists(
        select(effects.c.effect_id)
        .where(effects.c.idempotency_key == jobs.c.result_key)
        .where(effects.c.kind == EffectKind.RESULT_OBJECT)
        .where(effects.c.state == EffectState.COMMITTED)
        .where(effects.c.expected_digest == jobs.c.result_digest)
    )
    doubted = {
        job_id
        for finding in ("success_without_object", "object_mismatch", "divergent")
        for job_id in facts.listed[finding]
    }
    doubted |= set(facts.unresolved)
    query = select(func.count()).select_from(jobs)
    query = query.where(jobs.c.state == JobState.SUCCEEDED, published, _accepted(facts))
    listed = sorted(doubted)
    batches = [listed[start : start + IDS_BATCH_MAX] for start in range(0, len(listed), IDS_BATCH_MAX)]
    return int(tx.scalar(query) or 0) - sum(
        int(tx.scalar(query.where(jobs.c.job_id.in_(batch))) or 0) for batch in batches
    )


def _accepted(facts: Facts) -> ColumnElement[bool]:
    """Return the condition that a job counts in this account."""
    as_of = facts.snapshot.cutoff or facts.snapshot.as_of
    return and_(jobs.c.submitted_at <= as_of, facts.scope.owned(jobs.c.job_id))


def _of_accepted(facts: Facts) -> ColumnElement[bool]:
    """Return the condition that an attempt is one at a job that counts in this account.

    Asked for the few jobs that do not count, a report need not join all attempts with all jobs.
    """
    as_of = facts.snapshot.cutoff or facts.snapshot.as_of
    later = exists(select(jobs.c.job_id).where(jobs.c.job_id == attempts.c.job_id).where(jobs.c.submitted_at > as_of))
    return and_(~later, facts.scope.owned(attempts.c.job_id))


def _retried(tx: LedgerTransaction, facts: Facts) -> int:
    """Count jobs with another attempt after one failed or was lost; a yield is no retry."""
    later = attempts.alias("later")
    again = and_(later.c.job_id == attempts.c.job_id, later.c.lease_epoch > attempts.c.lease_epoch)
    query = (
        select(func.count(distinct(attempts.c.job_id)))
        .select_from(attempts)
        .join(later, again)
        .where(attempts.c.outcome.in_(["failed", "lost"]))
        .where(_of_accepted(facts))
    )
    return int(tx.scalar(query) or 0)


def _attempts(tx: LedgerTransaction, facts: Facts) -> dict[str, int]:
    """Count the closed attempts of the accepted jobs by outcome; `lost` counts workers that vanished."""
    query = (
        select(attempts.c.outcome, func.count().label("n"))
        .where(attempts.c.outcome.is_not(None), _of_accepted(facts))
        .group_by(attempts.c.outcome)
    )
    counts = {"committed": 0, "failed": 0, "lost": 0, "yielded": 0}
    counts |= {row["outcome"]: int(row["n"]) for row in tx.rows(query)}
    return dict(sorted(counts.items()))


def _notifications(tx: LedgerTransaction, scope: TenantScope) -> dict[str, int]:
    """Count messages that arrived, lost a send on the way, or arrived late; and repeats received."""

    def messages(condition: Any) -> int:
        query = select(func.count(distinct(deliveries.c.message_id))).where(condition)
        query = query.where(scope.owned(deliveries.c.job_id))
        return int(tx.scalar(query) or 0)

    arrived = deliveries.c.outcome == "delivered"
    return {
        "delivered": messages(arrived),
        "dropped": messages(deliveries.c.outcome == "dropped"),
        "late": messages(and_(arrived, deliveries.c.late)) + _received(tx, "late", scope),
        "duplicate": _received(tx, "duplicate", scope),
    }


def _consumer(tx: LedgerTransaction, scope: TenantScope) -> dict[str, int]:
    """Count tasks, and received events by what kept them from making another."""
    tasks = select(func.count()).select_from(review_tasks)
    return {
        "review_tasks": int(tx.scalar(tasks.where(scope.owned(review_tasks.c.job_id))) or 0),
        "duplicates": _received(tx, "duplicate", scope),
        "conflicts": _received(tx, "conflict", scope),
    }


def _received(tx: LedgerTransaction, outcome: str, scope: TenantScope) -> int:
    query = select(func.count()).select_from(consumed).where(consumed.c.outcome == outcome)
    return int(tx.scalar(query.where(scope.owned(consumed.c.job_id))) or 0)


def _completion(tx: LedgerTransaction, facts: Facts) -> dict[str, float | None]:
    """Return p50, p95 and maximum of the seconds from submission to the terminal record."""
    ended = sa.type_coerce(jobs.c.terminal_at, sa.BigInteger)
    begun = sa.type_coerce(jobs.c.submitted_at, sa.BigInteger)
    closed = and_(jobs.c.terminal_at.is_not(None), _accepted(facts))
    spans = int(tx.scalar(select(func.count()).select_from(jobs).where(closed)) or 0)
    places = {name: rank(spans, percent) for name, percent in (("p50", 50), ("p95", 95), ("max", 100))}
    if not spans:
        return dict.fromkeys(places)
    order = func.row_number().over(order_by=ended - begun).label("place")
    ranked = select((ended - begun).label("span"), order).where(closed).subquery("ranked")
    wanted = select(ranked.c.place, ranked.c.span).where(ranked.c.place.in_(sorted(set(places.values()))))
    found = {row["place"]: row["span"] / MICROS_PER_S for row in tx.rows(wanted)}
    return {name: found[place] for name, place in places.items()}


def rank(values: int, percent: int) -> int:
    """Return the place of a percentile among ascending values, counted from 1 (nearest rank)."""
    return max(1, -(-percent * values // 100))
