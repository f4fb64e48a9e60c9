"""Judges how a cell of the crash matrix ended: by rows, objects and files, after reconciling twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import select

from receipt_pipeline.app import analyst, maintenance
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.effects import EffectKind, EffectState
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, JobState
from receipt_pipeline.ledger.effects.outbox import DELIVERED, DUE
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import OPEN, is_owned, list_investigations
from receipt_pipeline.ledger.jobs.waves import open_waves
from receipt_pipeline.ledger.schema.effects import (
    consumed,
    deliveries,
    effects,
    investigations,
    outbox,
    review_tasks,
)
from receipt_pipeline.ledger.schema.jobs import attempts, items, jobs, metadata
from receipt_pipeline.objects.store import RESULTS_PREFIX
from receipt_pipeline.reconciliation.compare import compare
from receipt_pipeline_tests.chaos.crash_matrix.cells import Verdict

OUTCOMES_FOLDER = "outcomes"
# A live installation beats here, whatever happens to its jobs.
_BEATING = frozenset({"workers"})
# What a person may read about a job without its outcome having changed.
_OUTCOME_COLUMNS = ("state", "terminal_class", "reason_code", "result_digest", "result_key", "terminal_at")


def is_finished(services: AppContext) -> bool:
    """Tell whether every job is closed or owned, every wave closed, and no message or task is due."""
    with services.ledger.reading() as tx:
        rows = tx.rows(select(jobs.c.job_id, jobs.c.state, jobs.c.phase))
        if not rows or any(not _at_rest(tx, services, row) for row in rows):
            return False
        if open_waves(tx) or tx.row(select(outbox.c.message_id).where(outbox.c.state == DUE)) is not None:
            return False
    return not maintenance.jobs_with_unfinished_effects(services, [str(row["job_id"]) for row in rows])


def _at_rest(tx: LedgerTransaction, services: AppContext, job: Mapping[str, Any]) -> bool:
    if job["state"] in TERMINAL_STATES:
        return True
    return job["phase"] in HELD_PHASES and bool(_owned_investigations(tx, services, str(job["job_id"])))


def _owned_investigations(
    tx: LedgerTransaction, services: AppContext, job_id: str | None
) -> list[dict[str, Any]]:
    """Return the job's open questions that have an active owner, a deadline ahead and a repair."""
    now, principals = tx.now(), services.settings.limits.staffing.principals
    return [
        row
        for row in list_investigations(tx, only_open=True)
        if row["job_id"] == job_id and is_owned(row, now=now, principals=principals) and row["allowed_repair"]
    ]


def note_outcomes(services: AppContext, folder: Path) -> None:
    """Note what is settled by now, so that the verify sees whether it was changed later."""
    noted = folder / OUTCOMES_FOLDER
    noted.mkdir(exist_ok=True)
    path = noted / f"{len(list(noted.iterdir())):03d}.json"
    path.write_text(json.dumps(_outcomes(services), default=str))


def _outcomes(services: AppContext) -> dict[str, Any]:
    with services.ledger.reading() as tx:
        closed = tx.rows(select(jobs).where(jobs.c.state.in_(sorted(TERMINAL_STATES))))
        listed = tx.rows(select(items).order_by(items.c.job_id, items.c.ordinal))
        tasks = tx.rows(select(review_tasks).order_by(review_tasks.c.decision_id))
    return {
        row["job_id"]: {
            "job": {name: str(row[name]) for name in _OUTCOME_COLUMNS},
            "items": [
                [item["item_class"], item["decision"], item["outcome_digest"]]
                for item in listed
                if item["job_id"] == row["job_id"]
            ],
            "tasks": [task["decision_id"] for task in tasks if task["job_id"] == row["job_id"]],
        }
        for row in closed
    }


def verify(services: AppContext, folder: Path) -> dict[str, Any]:
    """Reconcile twice, look at everything, and return verdict, faults and what became of the jobs."""
    maintenance.reconcile_everything(services)
    first = _dump(services)
    maintenance.reconcile_everything(services)
    second = _dump(services)
    faults = [
        f"a second reconciliation changed {name}" for name in sorted(first) if first[name] != second[name]
    ]
    faults += _running(services)
    faults += _disagreements(services)
    faults += _second_effects(services)
    faults += _unverified(services)
    faults += _changed_outcomes(services, folder)
    faults += _unbalanced_report(services)
    with services.ledger.reading() as tx:
        questions = tx.rows(select(investigations).where(investigations.c.state == OPEN))
        ending = _ending(tx)
    verdict = Verdict.BROKEN if faults else Verdict.OWNED if questions else Verdict.CONVERGED
    return {"verdict": verdict.value, "faults": faults, "ending": ending}


def _dump(services: AppContext) -> dict[str, str]:
    """Return a digest per table, of the stored objects, and of the outbox folder."""
    with services.ledger.reading() as tx:
        tables = {
            table.name: digest_of(
                sorted(json.dumps(row, default=str, sort_keys=True) for row in tx.rows(select(table)))
            )
            for table in metadata.sorted_tables
            if table.name not in _BEATING
        }
    stored = sorted(entry.key for entry in services.store.listing(RESULTS_PREFIX))
    sent = sorted(str(path) for path in services.settings.outbox.rglob("*.json"))
    return tables | {"the objects": digest_of(stored), "the outbox folder": digest_of(sent)}


def _running(services: AppContext) -> list[str]:
    """Name what still runs, or waits, without an owned question (R156, R157)."""
    with services.ledger.reading() as tx:
        rows = tx.rows(select(jobs).order_by(jobs.c.job_id))
        faults = [
            f"{row['job_id']} is still {row['state']}/{row['phase']} and nobody owns it"
            for row in rows
            if not _at_rest(tx, services, row)
        ]
        faults += [f"wave {row['wave_id']} is still open" for row in open_waves(tx)]
        loose = tx.rows(select(attempts.c.job_id).where(attempts.c.closed_at.is_(None)))
    return faults + [f"an attempt of {row['job_id']} was never closed" for row in loose]


def _disagreements(services: AppContext) -> list[str]:
    """Name every finding of the comparison that no owned question answers for."""
    comparison = compare(services.reconciler)
    found = [(f"object {fault.object_key}: {fault.outcome}", fault.job_id) for fault in comparison.faults]
    found += [
        (f"{name} {row.get('fault', '')}".strip(), row.get("job_id"))
        for name, finding in comparison.findings.items()
        for row in finding.rows
    ]
    with services.ledger.reading() as tx:
        return [
            f"{what} ({job_id or 'no job'})"
            for what, job_id in found
            if not _owned_investigations(tx, services, job_id)
        ]


def _second_effects(services: AppContext) -> list[str]:
    """Name consequences that happened twice, or that nothing explains."""
    with services.ledger.reading() as tx:
        acted = Counter(tx.execute(select(consumed.c.job_id).where(consumed.c.outcome == "acted")).scalars())
        delivered = set(
            tx.execute(select(deliveries.c.reference).where(deliveries.c.outcome == DELIVERED)).scalars()
        )
        uploads = tx.rows(select(effects).where(effects.c.kind == EffectKind.RESULT_OBJECT))
    faults = [f"the consumer acted {count} times on {job_id}" for job_id, count in acted.items() if count > 1]
    root = services.settings.outbox
    sent = {path.relative_to(root).as_posix() for path in root.glob("*/notifications/*.json")}
    faults += [f"notification {name} has no delivery" for name in sorted(sent - delivered)]
    faults += [f"delivery {name} has no notification" for name in sorted(delivered - sent)]
    committed = Counter(row["job_id"] for row in uploads if row["state"] == EffectState.COMMITTED)
    faults += [f"{job_id} has {count} results" for job_id, count in committed.items() if count > 1]
    # A late worker's object stands under its own key, given up and never served: that is no second result.
    explained = {
        row["idempotency_key"]
        for row in uploads
        if row["state"] in (EffectState.COMMITTED, EffectState.ABANDONED, EffectState.FAILED)
    }
    stored = {entry.key for entry in services.store.listing(RESULTS_PREFIX)}
    return faults + [f"object {key} has no settled upload" for key in sorted(stored - explained)]


def _unverified(services: AppContext) -> list[str]:
    """Name successes whose object is not there with the recorded bytes, unless a question owns that."""
    with services.ledger.reading() as tx:
        succeeded = tx.rows(
            select(jobs).where(jobs.c.state == JobState.SUCCEEDED).where(jobs.c.result_purged_at.is_(None))
        )
        asked = {
            str(row["job_id"]): bool(_owned_investigations(tx, services, row["job_id"])) for row in succeeded
        }
    return [
        f"{row['job_id']} succeeded without a verified object"
        for row in succeeded
        if services.store.digest(row["result_key"]) != (row["result_digest"], row["result_size_bytes"])
        and not asked[str(row["job_id"])]
    ]


def _changed_outcomes(services: AppContext, folder: Path) -> list[str]:
    """Name settled outcomes that are not what they were when they were settled (R158)."""
    now = json.loads(json.dumps(_outcomes(services), default=str))
    faults = []
    for path in sorted((folder / OUTCOMES_FOLDER).glob("*.json")):
        for job_id, before in json.loads(path.read_text()).items():
            after = now.get(job_id, {})
            changed = [name for name in ("job", "items") if before[name] != after.get(name)]
            if not set(before["tasks"]) <= set(after.get("tasks", [])):
                changed.append("tasks")
            faults += [f"the settled {name} of {job_id} changed" for name in changed]
    return sorted(set(faults))


def _unbalanced_report(services: AppContext) -> list[str]:
    """Name what keeps the account from balancing: accepted = terminal + owned."""
    report = analyst.read_report(services, services.principal(), cutoff=None, published=False)
    counted = report["terminal"] + report["in_flight"] + report["unresolved"]
    faults = []
    if report["accepted"] != counted:
        faults.append(f"accepted {report['accepted']} is not terminal + in flight + unresolved {counted}")
    if report["in_flight"]:
        faults.append(f"{report['in_flight']} jobs are in flight")
    if report["gate"] != "pass":
        faults.append(f"the account is {report['state']} and its gate is {report['gate']}")
    return faults


def _ending(tx: LedgerTransaction) -> str:
    """Say in one line what became of the jobs."""
    told = []
    for row in tx.rows(select(jobs).order_by(jobs.c.submitted_at)):
        tried = tx.rows(
            select(attempts.c.outcome)
            .where(attempts.c.job_id == row["job_id"])
            .order_by(attempts.c.lease_epoch)
        )
        stands = f"{row['state']}/{row['terminal_class'] or row['phase']}"
        told.append(" → ".join([*(str(entry["outcome"]) for entry in tried), stands]))
    asked = tx.rows(select(investigations.c.kind).where(investigations.c.state == OPEN))
    told += [f"owned: {row['kind']}" for row in asked]
    return "; ".join(told) or "no job"
