"""What the system does by itself: passes of sensors and schedules, checks, the steps of a wave."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from receipt_pipeline.accounting import frames
from receipt_pipeline.accounting.charts import report_markdown
from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.figures import write_metrics
from receipt_pipeline.accounting.page import render_page
from receipt_pipeline.accounting.publish import PublishedReport, storage_faults
from receipt_pipeline.accounting.publish import export_ledger as export_to_files
from receipt_pipeline.accounting.publish import publish_report as publish_account
from receipt_pipeline.accounting.query import read_published
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.next_actions import ACTION_TEXTS, NextAction
from receipt_pipeline.core.principals import Role
from receipt_pipeline.core.receipt_text import counted, kept_items_text
from receipt_pipeline.durable_files import write_whole
from receipt_pipeline.effects.alerts import deliver_alerts
from receipt_pipeline.effects.consume import consume_due
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.effects.status_documents import restore_status_documents, send_status_documents
from receipt_pipeline.intake.inbox import sweep as inbox
from receipt_pipeline.intake.submit import is_manifest
from receipt_pipeline.ledger import status as ledger_status
from receipt_pipeline.ledger.grants import authority_fault
from receipt_pipeline.ledger.invariants import CHECKED
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome
from receipt_pipeline.ledger.invariants.objects import gone_and_altered
from receipt_pipeline.ledger.jobs import waves
from receipt_pipeline.reconciliation import checks, repair
from receipt_pipeline.reconciliation.retention import expire_diagnostics, expire_results, sweep_scans
from receipt_pipeline.worker import loop
from receipt_pipeline.worker.context import JobResult
from receipt_pipeline.worker.dispatch import Dispatched, await_ready, dispatch_waves, plan_groups

PASS_ITEMS_MAX = 500
CONTINUE_ITEMS_MAX = 8
ALERTS_SENT_MAX = 100
RECENT_S = 86_400.0
_DECISIONS = (
    "SELECT decision, total_currency AS currency, count(*) AS receipts, sum(total) AS total"
    " FROM items WHERE decision IS NOT NULL GROUP BY ALL"
)

# The asset of each check; Dagster makes one asset check of each.
CHECK_ASSETS: Mapping[str, str] = {name: invariant.asset for name, invariant in CHECKED.items()} | {
    name: check.asset for name, check in ACCOUNTING_CHECKS.items()
}

# When each wave of this process must stop claiming, in monotonic seconds.
_wave_ends_at: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class PassSummary:
    """What one bounded pass did: a sentence for people, and its counts."""

    sentence: str
    counts: Mapping[str, int]


def _summary(name: str, counts: Mapping[str, int]) -> PassSummary:
    done = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in counts.items() if count)
    return PassSummary(f"{name}: {done or 'nothing to do'}", counts)


def _counts(summary: repair.ReconcileSummary) -> dict[str, int]:
    """Return what a reconciliation changed as counts."""
    counts: dict[str, int] = {}
    for field in fields(summary):
        value = getattr(summary, field.name)
        if isinstance(value, tuple):
            counts[field.name] = len(value)
        elif isinstance(value, int):
            counts[field.name] = value
        elif value is not None:
            counts |= {inner.name: int(getattr(value, inner.name)) for inner in fields(value)}
    return counts


def sweep_inbox(context: AppContext) -> PassSummary:
    """Accept dropped files within the pass's time bound; without authority they are left where they are."""
    settings = context.settings
    with context.ledger.reading() as tx:
        fault = authority_fault(tx, tenant=settings.tenant, caller=settings.caller, role=Role.SUBMITTER)
    if fault is not None:
        return PassSummary(f"inbox: nothing read, {fault.code}: {fault.meaning}", {})
    summary = inbox.sweep_inbox(context.intake, time_bound_s=settings.limits.work.pass_bound_s)
    return _summary("inbox", summary.counts)


def has_waiting_manifests(context: AppContext) -> bool:
    """Return whether the inbox still holds a manifest without an acknowledgement."""
    folder = context.settings.inbox / context.settings.tenant
    return any(is_manifest(path) for path in folder.glob("*"))


def dispatch_jobs(context: AppContext, *, wait_s: float = 0.0) -> Dispatched:
    """Reserve ready jobs for waves, after waiting up to `wait_s` seconds until no more arrive."""
    if wait_s:
        await_ready(context.ledger, wait_s=wait_s, limits=context.settings.limits)
    return dispatch_waves(
        context.ledger,
        worker_id=context.worker_id,
        release_ids=context.supported_releases(),
        limits=context.settings.limits,
    )


def jobs_of_wave(context: AppContext, wave_id: str) -> list[str]:
    """Return the ids of the jobs that a wave reserves, oldest first."""
    with context.ledger.reading() as tx:
        return [row["job_id"] for row in waves.wave_jobs(tx, wave_id)]


def describe_queue(context: AppContext) -> str:
    """Return what waits and what runs, in one line: "6 jobs (240 items) waiting, 2 waves running, …"."""
    with context.ledger.reading() as tx:
        queue, now = waves.read_queue(tx), tx.now()
    text = (
        f"{counted(queue.jobs, 'job')} ({counted(queue.items, 'item')}) waiting, {counted(queue.waves, 'wave')} running"
    )
    if queue.deadline is None:
        return text
    day = "" if queue.deadline.date() == now.date() else f"{queue.deadline:%d %b %Y}, "
    return f"{text}, next deadline {day}{queue.deadline:%H:%M} UTC"


def deliver_and_consume(context: AppContext, *, job_id: str | None = None) -> PassSummary:
    """Send due messages and status documents, and make review tasks of the events received."""
    bound_s = context.settings.limits.work.pass_bound_s / 2
    effects = context.effects
    delivered = deliver(effects, limit=PASS_ITEMS_MAX, time_bound_s=bound_s, job_id=job_id)
    consumed = consume_due(effects, limit=PASS_ITEMS_MAX, time_bound_s=bound_s, job_id=job_id)
    written = send_status_documents(effects, limit=PASS_ITEMS_MAX, job_id=job_id)
    counts = {"delivered": delivered.delivered, "dropped": delivered.dropped, "failed": delivered.failed}
    counts |= {"review_tasks_made": consumed.tasks_made, "status_documents": written}
    return _summary("effects", counts | dict(consumed.outcomes))


def jobs_with_unfinished_effects(context: AppContext, job_ids: Sequence[str]) -> list[str]:
    """Return the terminal jobs whose review tasks or notification are still to come."""
    with context.ledger.reading() as tx:
        return ledger_status.unfinished_jobs(tx, job_ids)


def reconcile_ledger(context: AppContext) -> PassSummary:
    """Compare and repair what the ledger alone shows: expiry, leases, waves, investigations."""
    return _summary("reconciled", _counts(repair.reconcile_ledger(context.reconciler)))


def sweep_objects(context: AppContext) -> PassSummary:
    """Compare stored objects with the ledger in both directions; open investigations of what differs."""
    return _summary("swept", _counts(repair.sweep_objects(context.reconciler)))


def reconcile_everything(context: AppContext, *, granted: bool = False) -> dict[str, int]:
    """Run every comparison and repair once, the sweep of scans, then deliveries and consumption.

    Args:
        granted: an operator asked, which gives jobs on hold whose closing bound is spent a new one.
    """
    counts = _counts(repair.reconcile(context.reconciler, granted=granted))
    scans = sweep_scans(context.reconciler)
    counts |= {"scans_marked": scans.marked, "scans_removed": len(scans.removed)}
    counts["copy_holds_released"] = scans.holds_released
    counts |= dict(deliver_and_consume(context).counts)
    restore_status_documents(context.effects, limit=PASS_ITEMS_MAX, recent_s=RECENT_S)
    return counts


def review_alerts(context: AppContext, *, whole: bool = True) -> checks.AlertSummary:
    """Evaluate the conditions of alerts once, and send new alerts over the linked channels.

    Args:
        whole: False for a sensor's tick, which does not read the whole ledger.
    """
    summary = checks.review_alerts(context.reconciler, context.settings.alert_thresholds(), whole=whole)
    deliver_alerts(context.effects, tenant=context.settings.tenant, limit=ALERTS_SENT_MAX)
    return summary


def purge_expired(context: AppContext) -> int:
    """Purge payloads past their retention, and scans that no job holds; returns the number of jobs."""
    purged = expire_results(context.reconciler)
    expire_diagnostics(context.reconciler)
    sweep_scans(context.reconciler)
    context.ledger.overwrite_deleted()
    return len(purged)


# The account and its checks.


def count_records(context: AppContext) -> dict[str, dict[str, int]]:
    """Return by asset the counts of its records, each by state or outcome."""
    with context.ledger.reading() as tx:
        return {
            "submissions": ledger_status.count_submissions(tx),
            "job_ledger": ledger_status.count_jobs(tx),
            "result_objects": ledger_status.count_object_checks(tx),
            "notifications": ledger_status.count_deliveries(tx),
            "review_tasks": ledger_status.count_review_tasks(tx),
        }


def last_runs(context: AppContext, job_ids: Iterable[str | None]) -> dict[str, str]:
    """Return the run that worked on each job last, for jobs that a run has worked on."""
    with context.ledger.reading() as tx:
        return ledger_status.last_runs(tx, {job_id for job_id in job_ids if job_id})


def jobs_with_faulty_results(context: AppContext) -> list[str]:
    """Return the jobs whose stored result was missing or altered when it was last looked at."""
    with context.ledger.reading() as tx:
        gone, altered = gone_and_altered(tx)
    return sorted({str(row["job_id"]) for row in gone + altered})


def export_ledger(context: AppContext) -> dict[str, int]:
    """Export the ledger as Parquet in one snapshot; returns rows per table."""
    return dict(export_to_files(context.accountant))


def publish_report(context: AppContext) -> PublishedReport:
    """Refresh and publish the account under the one publish lock, with `metrics/receipts.prom`."""
    published = publish_account(context.accountant)
    with storage_faults():
        write_metrics(published.path, published.document, context.settings.metrics)
    return published


def freeze_day(context: AppContext, day: dt.date) -> tuple[Path, pd.DataFrame]:
    """Write one closed day of the published report as `report/daily/DAY.parquet`.

    Raises:
        InputRefused: FIELD.INVALID.v1 while the day is not over in the report.
    """
    frame = frames.day_frame(context.accountant.published, day)
    path = context.settings.report / "daily" / f"{day}.parquet"
    with storage_faults():
        path.parent.mkdir(exist_ok=True)
        frames.write_frame(frame, path)
    return path, frame


def summarize_decisions(context: AppContext) -> dict[str, float]:
    """Return the published review rate and cleared share (0 to 1), and the amounts per currency."""
    found = frames.query_frame(context.accountant.published, _DECISIONS)
    receipts = int(found["receipts"].sum())
    if not receipts:
        return {}
    by_decision = found.groupby("decision")["receipts"].sum()
    amounts = found.dropna(subset=["currency", "total"]).groupby("currency")["total"].sum()
    return {
        "review_rate": round(int(by_decision.get("review", 0)) / receipts, 4),
        "cleared_share": round(int(by_decision.get("clear", 0)) / receipts, 4),
        **{f"total_{str(currency).lower()}": float(total) for currency, total in amounts.items()},
    }


def publish_page(context: AppContext) -> Path:
    """Render the published account as one HTML page next to it; returns its path.

    Raises:
        ReportFault: REPORT.UNREADABLE.v1 when nothing that opens is published, STORAGE.FULL.v1.
    """
    page = context.settings.report / "operations.html"
    text = render_page(context.accountant.published, read_published(context.accountant))
    with storage_faults():
        write_whole(page, text.encode())
    return page


def render_markdown(context: AppContext) -> str:
    """Return the published account as a Markdown table and chart."""
    return report_markdown(context.accountant.published, read_published(context.accountant))


def run_check(context: AppContext, name: str) -> CheckOutcome:
    """Run one asset check by its name."""
    if name in CHECKED:
        return checks.run_check(context.reconciler, name)
    return ACCOUNTING_CHECKS[name].run(context.accountant)


def failed_checks(context: AppContext) -> list[str]:
    """Run every asset check; returns the names of those that fail."""
    return [name for name in CHECK_ASSETS if not run_check(context, name).passed]


# The steps of a wave's run.


def begin_wave(context: AppContext, wave_id: str, *, run_id: str, items_per_group: int) -> list[list[str]]:
    """Keep the wave alive, warm the reader up before any claim, and return its jobs in groups."""
    with context.ledger.transaction() as tx:
        if not waves.renew_wave(tx, wave_id, run_id=run_id):
            return []
    context.chains.warm_up()
    with context.ledger.transaction() as tx:
        waves.renew_wave(tx, wave_id, run_id=run_id)
        rows = waves.wave_jobs(tx, wave_id)
    sized = [(row["job_id"], row["items_requested"]) for row in rows]
    _wave_ends_at[wave_id] = time.monotonic() + context.settings.limits.work.wave_slice_s
    return plan_groups(sized, items_per_group=items_per_group)


def work_group(context: AppContext, wave_id: str, job_ids: Sequence[str], *, run_id: str) -> list[JobResult]:
    """Process the jobs of one group; the wave's slice bounds all its groups together."""
    worker = context.worker(run_id=run_id, ends_at=_wave_ends_at.get(wave_id, 0.0))
    return loop.work_group(worker, wave_id=wave_id, job_ids=job_ids)


def continue_wave(
    context: AppContext, wave_id: str, *, run_id: str, on_reserved: Callable[[list[str]], object] = lambda job_ids: None
) -> list[JobResult]:
    """Process what became ready while the wave ran, until its slice is used up or nothing is ready.

    Args:
        on_reserved: called with the ids of further jobs before they are processed.
    """
    lines: list[JobResult] = []
    while time.monotonic() < _wave_ends_at.get(wave_id, 0.0):
        with context.ledger.transaction() as tx:
            job_ids = waves.extend_wave(
                tx, wave_id, items_max=CONTINUE_ITEMS_MAX, worker_ttl_s=context.settings.limits.work.worker_ttl_s
            )
        if not job_ids:
            break
        on_reserved(job_ids)
        lines += work_group(context, wave_id, job_ids, run_id=run_id)
    return lines


def close_wave(context: AppContext, wave_id: str) -> int:
    """Close a wave; returns how many jobs it still reserved."""
    with context.ledger.transaction() as tx:
        return waves.close_wave(tx, wave_id)


def summarize_jobs(context: AppContext, job_ids: Sequence[str]) -> list[dict[str, str]]:
    """Return what each job has, what is safe to do now and what was requested, in that order."""
    with context.ledger.reading() as tx:
        documents = [ledger_status.read_status(tx, job_id) for job_id in job_ids]
    return [
        {
            "stands": kept_items_text(document),
            "safe_now": ACTION_TEXTS[NextAction(document["next_action"])].meaning,
            "asked": f"{document['operation_class']} of {document['items']['requested']} items",
            "in_full": f"receipts status {document['job_id']} --audience support",
            "job_id": document["job_id"],
        }
        for document in documents
    ]
