"""Dagster jobs and schedules next to the waves: the account, sweeps, retention, alerts, the drill."""

from typing import Any

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.assets import SOURCES_GROUP, daily_receipts, job_accounting, operations_report
from receipt_pipeline.defs.local_runner import run_drill_here
from receipt_pipeline.defs.metadata import table
from receipt_pipeline.defs.resources import AppResource
from receipt_pipeline.defs.waves import RUN_TAGS

accounting = dg.define_asset_job(
    "accounting",
    # Without `include_sources` the group is empty, and the job succeeds having done nothing.
    selection=dg.AssetSelection.groups(SOURCES_GROUP, include_sources=True)
    | dg.AssetSelection.assets(job_accounting, operations_report),
    description="Observe the sources, publish the account and its page, and run every check.",
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
)
daily = dg.define_asset_job(
    "daily",
    selection=dg.AssetSelection.assets(daily_receipts),
    description="Freeze the counts and amounts of one closed day.",
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
)


@dg.op
def sweep_objects(context: dg.OpExecutionContext, app: AppResource) -> None:
    """Compare stored objects with the ledger and open investigations of what differs."""
    summary = maintenance.sweep_objects(app.open())
    context.log.info(summary.sentence)
    context.log_event(dg.AssetObservation("result_objects", metadata={**summary.counts}))


@dg.job(
    description="Compare stored objects with the ledger in both directions.",
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
)
def sweep() -> None:
    """Sweep the objects."""
    sweep_objects()


@dg.op
def purge_results(context: dg.OpExecutionContext, app: AppResource) -> int:
    """Purge payloads past their retention, each with a tombstone first; returns the number of jobs."""
    purged = maintenance.purge_expired(app.open())
    context.log_event(dg.AssetObservation("result_objects", metadata={"purged_jobs": purged}))
    return purged


@dg.job(
    description="Purge results past their retention; completion receipts are kept.",
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
)
def retention() -> None:
    """Purge what retention allows."""
    purge_results()


@dg.op
def review_alerts(context: dg.OpExecutionContext, app: AppResource) -> None:
    """Evaluate every alert condition over the whole ledger and send new alerts."""
    summary = maintenance.review_alerts(app.open())
    changed = {"alerts_raised": len(summary.raised), "alerts_resolved": len(summary.resolved)}
    context.log_event(dg.AssetObservation("job_ledger", metadata=changed))


@dg.job(
    description="Raise, resolve and send alerts over the whole ledger.",
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
)
def alerts() -> None:
    """Evaluate the alerts."""
    review_alerts()


@dg.op
def four_job_drill(context: dg.OpExecutionContext) -> None:
    """Run the drill in a sandbox; fails when its verdict is not `pass`."""
    document = run_drill_here()
    steps = table(document["steps"], ("name", "expected", "observed", "ok"))
    context.add_output_metadata({"verdict": document["verdict"], "steps": steps})
    if document["verdict"] != "pass":
        raise dg.Failure("The drill did not pass; its steps are in the metadata.", allow_retries=False)


@dg.job(
    description="Rehearse failures with four jobs in a temporary data directory; nothing here is touched.",
    executor_def=dg.in_process_executor,
    tags=RUN_TAGS,
)
def drill() -> None:
    """Run the drill."""
    four_job_drill()


def _schedule(job: Any, cron: str, description: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        job=job,
        cron_schedule=cron,
        description=description,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        execution_timezone="UTC",
    )


SCHEDULES = [
    _schedule(accounting, "*/15 * * * *", "Publish the account every 15 minutes."),
    _schedule(alerts, "12-59/15 * * * *", "Evaluate the alerts before each account."),
    _schedule(sweep, "7 * * * *", "Compare stored objects with the ledger every hour."),
    _schedule(retention, "23 3 * * *", "Purge what is past its retention every night."),
]
daily_schedule = dg.build_schedule_from_partitioned_job(
    daily,
    description="Freeze the previous day every night.",
    hour_of_day=0,
    minute_of_hour=40,
    default_status=dg.DefaultScheduleStatus.RUNNING,
)
