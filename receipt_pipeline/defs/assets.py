"""Assets: sources that exist outside Dagster are observed, the account and what follows is published."""

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa

from receipt_pipeline.accounting.figures import count_queries
from receipt_pipeline.app import analyst, maintenance
from receipt_pipeline.core.errors import InputRefused, PipelineError
from receipt_pipeline.defs.checks import check_metadata
from receipt_pipeline.defs.metadata import column_schema, job_links, query_list, table
from receipt_pipeline.defs.resources import AppResource
from receipt_pipeline.ledger.schema.effects import deliveries, object_checks, review_tasks
from receipt_pipeline.ledger.schema.jobs import jobs, submissions
from receipt_pipeline.settings import read_settings

OWNERS = ["team:operations"]
SOURCES_GROUP, ACCOUNT_GROUP = "sources", "account"
LEDGER_KIND = "postgres" if os.environ.get("RECEIPTS_POSTGRES_URL") else "sqlite"
# The account is published every 15 minutes.
FRESH = dg.FreshnessPolicy.time_window(warn_window=dt.timedelta(minutes=20), fail_window=dt.timedelta(minutes=45))
FRESH_DAILY = dg.FreshnessPolicy.time_window(warn_window=dt.timedelta(hours=25), fail_window=dt.timedelta(hours=49))
FIRST_DAY = "2026-10-01"
COUNTS = ("accepted", "in_flight", "terminal", "succeeded", "failed", "expired", "canceled", "retried", "unresolved")


def _time_zone() -> str:
    """Return the time zone of the report's days; a wrong setting is named by the first run."""
    try:
        return read_settings().time_zone
    except InputRefused:
        return "UTC"


DAYS = dg.DailyPartitionsDefinition(start_date=FIRST_DAY, timezone=_time_zone())


def _source(name: str, ledger_table: sa.Table, description: str, kind: str = LEDGER_KIND) -> dg.AssetSpec:
    return dg.AssetSpec(
        name,
        group_name=SOURCES_GROUP,
        owners=OWNERS,
        kinds={kind},
        description=description,
        metadata={"dagster/column_schema": column_schema(ledger_table)},
    )


SOURCES = (
    _source("submissions", submissions, "Submissions by state: manifests, folders and single scans."),
    _source("job_ledger", jobs, "Jobs by state. The ledger is the truth."),
    _source("result_objects", object_checks, "Stored results, as last verified by the sweep.", "file"),
    _source("notifications", deliveries, "Delivery attempts by outcome, and messages that are due.", "file"),
    _source("review_tasks", review_tasks, "Review tasks by state: one per decision of a verified result."),
)


@dg.multi_observable_source_asset(specs=SOURCES, can_subset=True)
def sources(context: dg.AssetExecutionContext, app: AppResource) -> Iterator[dg.ObserveResult]:
    """Count what the ledger has; record nothing and send nothing."""
    opened = app.open()
    counts = maintenance.count_records(opened)
    for key in sorted(context.selected_asset_keys):
        name = key.to_user_string()
        found = counts[name]
        metadata: dict[str, Any] = {"dagster/row_count": sum(found.values()), **found}
        if name == "result_objects":
            faulty = maintenance.jobs_with_faulty_results(opened)
            metadata["faulty_results"] = job_links(faulty, maintenance.last_runs(opened, faulty))
        metadata["queries"] = query_list(count_queries(name, found))
        yield dg.ObserveResult(asset_key=key, metadata=metadata)


@dg.asset(
    deps=[spec.key for spec in SOURCES],
    description="The published account in DuckDB: `job_report`, `unresolved_investigations`, tables.",
    group_name=ACCOUNT_GROUP,
    owners=OWNERS,
    kinds={"duckdb"},
    freshness_policy=FRESH,
)
def job_accounting(app: AppResource) -> dg.MaterializeResult[Any]:
    """Sweep the objects, refresh the account and publish it; readers keep the file that they have open."""
    opened = app.open()
    maintenance.sweep_objects(opened)  # So that the account knows of an object that is missing now.
    account = maintenance.publish_report(opened)
    document = account.document
    investigations = [row for row in document["investigations"] if row["state"] == "open"]
    job_ids = [row["job_id"] for row in investigations]
    columns = ("job_id", "kind", "owner", "deadline", "state")
    return dg.MaterializeResult(
        metadata={
            "state": document["state"],
            "gate": document["gate"],
            "open_investigations": table(investigations, columns),
            "jobs": job_links(job_ids, maintenance.last_runs(opened, job_ids)),
            **{name: document[name] for name in COUNTS},
            "dagster/row_count": document["accepted"],
            **maintenance.summarize_decisions(opened),
            "chart": dg.MetadataValue.md(account.markdown),
            "queries": query_list(document["found_by"]),
            "report": dg.MetadataValue.path(str(account.path)),
        }
    )


@dg.asset(
    deps=[job_accounting],
    description="The account as one page for people, `report/operations.html`, which needs no network.",
    group_name=ACCOUNT_GROUP,
    owners=OWNERS,
    kinds={"html"},
    freshness_policy=FRESH,
)
def operations_report(app: AppResource) -> dg.MaterializeResult[Any]:
    """Render the published account; active alerts come first."""
    opened = app.open()
    page = maintenance.publish_page(opened)
    document = analyst.read_report(opened, opened.principal(), published=True)
    job_ids = [row["job_id"] for row in document["alerts"]]
    return dg.MaterializeResult(
        metadata={
            "gate": document["gate"],
            "active_alerts": len(document["alerts"]),
            "alerts": table(document["alerts"], ("job_id", "kind", "subject", "next_step")),
            "jobs": job_links(job_ids, maintenance.last_runs(opened, job_ids)),
            "chart": dg.MetadataValue.md(maintenance.render_markdown(opened)),
            "queries": query_list({"alerts": document["found_by"]["alerts"]}),
            "page": dg.MetadataValue.path(str(page)),
        }
    )


@dg.asset(
    deps=[job_accounting],
    description="One closed day as Parquet: receipts and amounts by tenant, release, decision and currency.",
    group_name=ACCOUNT_GROUP,
    owners=OWNERS,
    kinds={"pandas", "parquet"},
    partitions_def=DAYS,
    freshness_policy=FRESH_DAILY,
)
def daily_receipts(context: dg.AssetExecutionContext, app: AppResource) -> dg.MaterializeResult[Any]:
    """Freeze the day of the partition, unless the published report differs from the ledger."""
    opened = app.open()
    outcome = maintenance.run_check(opened, "report_matches_ledger")
    if not outcome.passed:
        raise dg.Failure(
            "The published report differs from the ledger, so the day is not frozen. Publish it again first.",
            metadata=check_metadata(outcome, {}),
            allow_retries=False,
        )
    path, frame = _freeze(app, dt.date.fromisoformat(context.partition_key))
    amounts = frame.groupby("currency")["total"].sum()
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": len(frame),
            "receipts": int(frame["receipts"].sum()),
            **{f"total_{currency.lower()}": float(total) for currency, total in amounts.items()},
            "rows": table(frame.to_dict("records"), list(frame.columns)),
            "file": dg.MetadataValue.path(str(path)),
        }
    )


def _freeze(app: AppResource, day: dt.date) -> tuple[Path, Any]:
    try:
        return maintenance.freeze_day(app.open(), day)
    except PipelineError as error:
        raise dg.Failure(str(error), metadata={"reason": error.reason.code}, allow_retries=False) from error


@dg.asset(
    deps=[spec.key for spec in SOURCES],
    description="The ledger as Parquet files of one snapshot, on demand.",
    group_name=ACCOUNT_GROUP,
    owners=OWNERS,
    kinds={"parquet"},
)
def ledger_export(app: AppResource) -> dg.MaterializeResult[Any]:
    """Export the ledger."""
    rows = maintenance.export_ledger(app.open())
    queries = query_list({name: f"SELECT * FROM {name}" for name in rows})
    return dg.MaterializeResult(metadata={**rows, "dagster/row_count": sum(rows.values()), "queries": queries})
