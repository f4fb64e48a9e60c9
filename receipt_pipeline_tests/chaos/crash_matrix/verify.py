"""Verifies how a cell of the crash matrix ended: rows, objects and files, after reconciling twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sqlalchemy import select

from receipt_pipeline.app import analyst, maintenance
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.ledger.effects.outbox import DELIVERED, DUE
from receipt_pipeline.ledger.schema.effects import review_tasks
from receipt_pipeline.ledger.schema.jobs import items, jobs, metadata
from receipt_pipeline.objects.store import RESULTS_PREFIX
from receipt_pipeline.reconciliation.compare import compare
from receipt_pipeline_tests.chaos.crash_matrix.cells import Verdict
from receipt_pipeline_tests.chaos.oracle.evidence import LedgerRows, find_violations, read_ledger
from receipt_pipeline_tests.chaos.oracle.invariants import ALWAYS, AT_REST
from receipt_pipeline_tests.chaos.oracle.records import every_job_ends_or_is_owned, is_owned

OUTCOMES_FOLDER = "outcomes"
# A running instance renews its row here, whatever happens to its jobs.
_HEARTBEAT_TABLES = frozenset({"workers"})
# The columns that make up the outcome of a job.
_OUTCOME_COLUMNS = ("state", "terminal_class", "reason_code", "result_digest", "result_key", "terminal_at")


def is_finished(services: AppContext) -> bool:
    """Return whether every job is closed or owned, every wave closed, and no message or task is due."""
    found = _read(services)
    if not found.jobs or any(find_violations(found, (every_job_ends_or_is_owned,))):
        return False
    if any(row["state"] != "closed" for row in found.rows["waves"]):
        return False
    if any(row["state"] == DUE for row in found.rows["outbox"]):
        return False
    return not maintenance.jobs_with_unfinished_effects(services, [str(row["job_id"]) for row in found.jobs])


def _read(services: AppContext, *, with_objects: bool = False) -> LedgerRows:
    stored = {}
    for entry in services.store.listing(RESULTS_PREFIX) if with_objects else ():
        known = services.store.digest(entry.key)
        stored[entry.key] = known[0] if known else ""
    return read_ledger(services.ledger, services.settings.limits, stored=stored)


def note_outcomes(services: AppContext, folder: Path) -> None:
    """Record the outcomes so far, so that `verify` sees whether they were changed later."""
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
    """Reconcile twice and check everything; returns verdict, faults and a line about the jobs."""
    maintenance.reconcile_everything(services)
    first = _dump(services)
    maintenance.reconcile_everything(services)
    second = _dump(services)
    found = _read(services, with_objects=True)
    faults = [f"a second reconciliation changed {name}" for name in sorted(first) if first[name] != second[name]]
    faults += [str(violation) for violation in find_violations(found, (*ALWAYS, *AT_REST))]
    faults += _disagreements(services, found)
    faults += _unmatched_notifications(services, found)
    faults += _changed_outcomes(services, folder)
    faults += _unbalanced_report(services)
    owned = any(row["state"] == "open" for row in found.rows["investigations"])
    verdict = Verdict.BROKEN if faults else Verdict.OWNED if owned else Verdict.CONVERGED
    return {"verdict": verdict.value, "faults": faults, "ending": _ending(found)}


def _dump(services: AppContext) -> dict[str, str]:
    """Return a digest per table, of the stored objects, and of the outbox folder."""
    with services.ledger.reading() as tx:
        tables = {
            table.name: digest_of(
                sorted(json.dumps(row, default=str, sort_keys=True) for row in tx.rows(select(table)))
            )
            for table in metadata.sorted_tables
            if table.name not in _HEARTBEAT_TABLES
        }
    stored = sorted(entry.key for entry in services.store.listing(RESULTS_PREFIX))
    sent = sorted(str(path) for path in services.settings.outbox.rglob("*.json"))
    return tables | {"the objects": digest_of(stored), "the outbox folder": digest_of(sent)}


def _disagreements(services: AppContext, found: LedgerRows) -> list[str]:
    """Return every finding of the product's own comparison for which no investigation is owned."""
    comparison = compare(services.reconciler)
    findings = [(f"object {fault.object_key}: {fault.outcome}", fault.job_id) for fault in comparison.faults]
    findings += [
        (f"{name} {row.get('fault', '')}".strip(), row.get("job_id"))
        for name, finding in comparison.findings.items()
        for row in finding.rows
    ]
    return [
        f"{what} ({job_id or 'no job'})"
        for what, job_id in findings
        if not any(is_owned(found, row) for row in found.of("investigations", job_id or ""))
    ]


def _unmatched_notifications(services: AppContext, found: LedgerRows) -> list[str]:
    """Return notification files without a delivery, and deliveries without a file."""
    delivered = {row["reference"] for row in found.rows["deliveries"] if row["outcome"] == DELIVERED}
    root = services.settings.outbox
    sent = {path.relative_to(root).as_posix() for path in root.glob("*/notifications/*.json")}
    faults = [f"notification {name} has no delivery" for name in sorted(sent - delivered)]
    return faults + [f"delivery {name} has no notification" for name in sorted(delivered - sent)]


def _changed_outcomes(services: AppContext, folder: Path) -> list[str]:
    """Return outcomes that changed after they were recorded."""
    now = json.loads(json.dumps(_outcomes(services), default=str))
    faults = []
    for path in sorted((folder / OUTCOMES_FOLDER).glob("*.json")):
        for job_id, before in json.loads(path.read_text()).items():
            after = now.get(job_id, {})
            changed = [name for name in ("job", "items") if before[name] != after.get(name)]
            if not set(before["tasks"]) <= set(after.get("tasks", [])):
                changed.append("tasks")
            faults += [f"the recorded {name} of {job_id} changed" for name in changed]
    return sorted(set(faults))


def _unbalanced_report(services: AppContext) -> list[str]:
    """Return why the account is not balanced: accepted = terminal + owned."""
    report = analyst.read_report(services, services.principal())
    counted = report["terminal"] + report["in_flight"] + report["unresolved"]
    faults = []
    if report["accepted"] != counted:
        faults.append(f"accepted {report['accepted']} is not terminal + in flight + unresolved {counted}")
    if report["in_flight"]:
        faults.append(f"{report['in_flight']} jobs are in flight")
    if report["gate"] != "pass":
        faults.append(f"the account is {report['state']} and its gate is {report['gate']}")
    return faults


def _ending(found: LedgerRows) -> str:
    """Return in one line how the attempts and the jobs ended."""
    endings = []
    for job in sorted(found.jobs, key=lambda row: row["submitted_at"]):
        outcomes = [str(row["outcome"]) for row in found.of("attempts", job["job_id"])]
        endings.append(" → ".join([*outcomes, f"{job['state']}/{job['terminal_class'] or job['phase']}"]))
    endings += [f"owned: {row['kind']}" for row in found.rows["investigations"] if row["state"] == "open"]
    return "; ".join(endings) or "no job"
