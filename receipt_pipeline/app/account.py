"""The account of a home: counts, checks, export, report, and queries over what is published."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from receipt_pipeline.accounting.charts import report_markdown
from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.export import export_ledger
from receipt_pipeline.accounting.figures import reading_queries, write_metrics
from receipt_pipeline.accounting.page import render_page
from receipt_pipeline.accounting.publish import PublishedReport, publish_report
from receipt_pipeline.accounting.publish_lock import storage_faults
from receipt_pipeline.accounting.query import read_published, run_query
from receipt_pipeline.accounting.report import report_document
from receipt_pipeline.app.repairs import RepairOrders
from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.durable_files import write_whole
from receipt_pipeline.ledger.invariants.invariant import CheckOutcome
from receipt_pipeline.ledger.invariants.objects import gone_and_altered
from receipt_pipeline.ledger.status import count_deliveries, count_jobs, count_review_tasks, last_runs
from receipt_pipeline.reconciliation.checks import CHECKS

# Which asset each check stands on; Dagster's room makes one asset check of each.
CHECK_ASSETS: Mapping[str, str] = {name: definition.asset for name, definition in CHECKS.items()} | {
    name: definition.asset for name, definition in ACCOUNTING_CHECKS.items()
}


class AccountOrders(RepairOrders):
    """What the analyst and the operator ask of the account."""

    def counts(self) -> dict[str, dict[str, int]]:
        """Return counts of jobs per state, deliveries per outcome and tasks per state."""
        with self.ledger.reading() as tx:
            return {
                "jobs": count_jobs(tx),
                "notifications": count_deliveries(tx),
                "review_tasks": count_review_tasks(tx),
            }

    def reading_queries(self, reading: str, names: Iterable[str]) -> dict[str, str]:
        """Return per figure of `counts()` the query that finds what it counts."""
        return reading_queries(reading, names)

    def last_runs(self, job_ids: Iterable[str | None]) -> dict[str, str]:
        """Return per job the run that worked it last, for those that a run has worked."""
        with self.ledger.reading() as tx:
            return last_runs(tx, {job_id for job_id in job_ids if job_id})

    def faulty_results(self) -> list[str]:
        """Return the jobs whose result was not as recorded when it was last looked at."""
        with self.ledger.reading() as tx:
            gone, altered = gone_and_altered(tx)
        return sorted({str(row["job_id"]) for row in gone + altered})

    def export_ledger(self) -> dict[str, int]:
        """Export the ledger as Parquet in one snapshot; returns rows per table."""
        return dict(export_ledger(self.accountant).rows)

    def publish_report(self) -> PublishedReport:
        """Build the report aside and publish it, under the lock that every publisher takes.

        The signals for a metrics collector are written with it, to `metrics/receipts.prom`.
        """
        published = publish_report(self.accountant)
        with storage_faults():
            write_metrics(published.path, published.document, self.settings.metrics)
        return published

    def publish_page(self) -> Path:
        """Render the published account as one HTML page beside it; returns where it lies.

        Raises:
            ReportFault: REPORT.UNREADABLE.v1 when nothing that opens is published, STORAGE.FULL.v1.
        """
        require(self.principal, Role.ANALYST, Role.OPERATOR)
        page = self.settings.report / "operations.html"
        text = render_page(self.accountant.published, read_published(self.accountant))
        with storage_faults():
            write_whole(page, text.encode())
        return page

    def report_markdown(self) -> str:
        """Return the published account as a table and a chart, for a page that shows Markdown."""
        return report_markdown(self.accountant.published, read_published(self.accountant))

    def report(self, *, cutoff: dt.datetime | None, published: bool) -> dict[str, Any]:
        """Return the tenant's account as the ledger stands, or as it was published last.

        Raises:
            NotAllowed: REPORT.SEVERAL_TENANTS.v1 when the published account is not of this tenant alone.
        """
        require(self.principal, Role.ANALYST, Role.OPERATOR)
        if published:
            return read_published(self.accountant, tenant=self.settings.tenant)
        return report_document(self.accountant, cutoff=cutoff, tenant=self.settings.tenant)

    def query_report(self, sql: str) -> list[dict[str, Any]]:
        """Query what the published report holds of this tenant, read-only."""
        require(self.principal, Role.ANALYST, Role.OPERATOR)
        return run_query(self.accountant, sql, tenant=self.settings.tenant)

    def check(self, name: str) -> CheckOutcome:
        """Run one asset check by its name."""
        if name in CHECKS:
            return CHECKS[name].run(self.reconciler)
        return ACCOUNTING_CHECKS[name].run(self.accountant)

    def check_all(self) -> dict[str, CheckOutcome]:
        """Run every asset check."""
        return {name: self.check(name) for name in CHECK_ASSETS}
