"""Assets: readings of the ledger, objects, notifications and tasks, then export, report and page."""

import datetime as dt
from typing import Any

import dagster as dg

from receipt_pipeline.accounting.figures import SWEPT, reading_queries
from receipt_pipeline.app import analyst, maintenance
from receipt_pipeline.defs.metadata import jobs_linked, queries_shown
from receipt_pipeline.defs.resources import ReceiptServices

GROUP = "account"
OWNERS = ["team:operations"]
FRESH = dg.FreshnessPolicy.time_window(fail_window=dt.timedelta(hours=24), warn_window=dt.timedelta(hours=2))


def _counted(services: ReceiptServices, reading: str) -> dg.MaterializeResult[Any]:
    opened = services.open()
    counts = maintenance.count_records(opened)[reading]
    queries = queries_shown(reading_queries(reading, counts))
    return dg.MaterializeResult(metadata={**counts, "queries": queries})


@dg.asset(
    description="A reading of the ledger: jobs per state. The ledger itself is the truth.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"sql"},
    freshness_policy=FRESH,
)
def job_ledger(services: ReceiptServices) -> dg.MaterializeResult[Any]:
    """Count the jobs per state, and look at the whole ledger for what is worth an alert."""
    opened = services.open()
    maintenance.review_alerts(opened)
    counts = maintenance.count_records(opened)["jobs"]
    queries = queries_shown(reading_queries("jobs", counts))
    return dg.MaterializeResult(metadata={"jobs": sum(counts.values()), **counts, "queries": queries})


@dg.asset(
    deps=[job_ledger],
    description="A sweep over stored results, both ways: record without object and the reverse.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"file"},
    freshness_policy=FRESH,
)
def result_objects(services: ReceiptServices) -> dg.MaterializeResult[Any]:
    """Compare objects with the ledger and record what was found."""
    opened = services.open()
    sweep = maintenance.sweep_objects(opened)
    faulty = maintenance.jobs_with_faulty_results(opened)
    return dg.MaterializeResult(
        metadata={
            **sweep.counts,
            "jobs at fault": jobs_linked(faulty, maintenance.last_runs(opened, faulty)),
            "queries": queries_shown({"faults": SWEPT}),
        }
    )


@dg.asset(
    deps=[job_ledger],
    description="A reading of the outbox and its delivery ledger.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"file"},
    freshness_policy=FRESH,
)
def notifications(services: ReceiptServices) -> dg.MaterializeResult[Any]:
    """Count deliveries per outcome."""
    return _counted(services, "notifications")


@dg.asset(
    deps=[result_objects],
    description="A reading of the review tasks: one per decision ID of a verified success.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"sql"},
    freshness_policy=FRESH,
)
def review_tasks(services: ReceiptServices) -> dg.MaterializeResult[Any]:
    """Count tasks per state."""
    return _counted(services, "review_tasks")


@dg.asset(
    deps=[job_ledger, result_objects, notifications, review_tasks],
    description="The ledger as Parquet, read in one snapshot.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"parquet", "arrow"},
    freshness_policy=FRESH,
)
def ledger_export(services: ReceiptServices) -> dg.MaterializeResult[Any]:
    """Export the ledger."""
    rows = maintenance.export_ledger(services.open())
    queries = queries_shown({name: f"SELECT * FROM {name}" for name in rows})
    return dg.MaterializeResult(metadata={**rows, "queries": queries})


@dg.asset(
    deps=[ledger_export],
    description="The published account in DuckDB: `job_report`, `unresolved_investigations`, their tables.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"duckdb", "pandas"},
    freshness_policy=FRESH,
)
def job_accounting(services: ReceiptServices) -> dg.MaterializeResult[Any]:
    """Build the report aside and publish it; readers keep what they have open."""
    opened = services.open()
    account = maintenance.publish_report(opened)
    asked = [row["job_id"] for row in account.document["investigations"] if row["state"] == "open"]
    columns = ("job_id", "kind", "owner", "deadline", "state")
    return dg.MaterializeResult(
        metadata={
            "state": account.document["state"],
            "gate": account.document["gate"],
            "unresolved investigations": dg.MetadataValue.table(
                [
                    dg.TableRecord({name: str(row.get(name) or "") for name in columns})
                    for row in account.document["investigations"][:20]
                ],
                schema=dg.TableSchema([dg.TableColumn(name) for name in columns]),
            ),
            "jobs in question": jobs_linked(asked, maintenance.last_runs(opened, asked)),
            "queries": queries_shown(account.document["found_by"]),
            "chart": dg.MetadataValue.md(account.markdown),
            **{
                name: account.document[name]
                for name in ("accepted", "in_flight", "terminal", "succeeded", "failed", "expired")
            },
            **{name: account.document[name] for name in ("canceled", "retried", "unresolved")},
            "dagster/row_count": account.document["accepted"],
            "report": dg.MetadataValue.path(str(account.path)),
        }
    )


@dg.asset(
    deps=[job_accounting],
    description="The account as one page for people, `report/operations.html`: it needs no network.",
    group_name=GROUP,
    owners=OWNERS,
    kinds={"html"},
    freshness_policy=FRESH,
)
def operations_report(services: ReceiptServices) -> dg.MaterializeResult[Any]:
    """Render what is published; standing alerts first."""
    opened = services.open()
    page = maintenance.publish_page(opened)
    document = analyst.read_report(opened, opened.principal(), cutoff=None, published=True)
    warned = [row["job_id"] for row in document["alerts"]]
    return dg.MaterializeResult(
        metadata={
            "page": dg.MetadataValue.path(str(page)),
            "gate": document["gate"],
            "alerts": dg.MetadataValue.table(
                [
                    dg.TableRecord({name: str(row[name]) for name in ("kind", "subject", "next_step")})
                    for row in document["alerts"]
                ],
                schema=dg.TableSchema([dg.TableColumn(name) for name in ("kind", "subject", "next_step")]),
            ),
            "jobs warned of": jobs_linked(warned, maintenance.last_runs(opened, warned)),
            "queries": queries_shown({"alerts": document["found_by"]["alerts"]}),
            "chart": dg.MetadataValue.md(maintenance.render_markdown(opened)),
        }
    )


ALL_ASSETS = (
    job_ledger,
    result_objects,
    notifications,
    review_tasks,
    ledger_export,
    job_accounting,
    operations_report,
)
