"""Dagster jobs and schedules beside the waves: accounting, sweeps, retention, the drill."""

from typing import Any

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.assets import GROUP
from receipt_pipeline.defs.resources import ReceiptServices

# The default retry re-runs only what failed, and goes green over work that was never done.
TAGS = {"dagster/retry_strategy": "ALL_STEPS", "dagster/max_runtime": "900"}

accounting = dg.define_asset_job(
    "accounting",
    # Evaluations have partitions and take minutes; they are no part of the account.
    selection=dg.AssetSelection.groups(GROUP),
    description="Sweep, export, publish the report, and run every check.",
    executor_def=dg.in_process_executor,
    tags=TAGS,
)


@dg.op
def sweep_objects(context: dg.OpExecutionContext, services: ReceiptServices) -> None:
    """Compare stored objects with the ledger and own what is found."""
    sweep = maintenance.sweep_objects(services.open())
    context.log.info(f"action=sweep_objects {sweep.sentence}")


@dg.job(
    description="Compare stored objects with the ledger in both directions.",
    executor_def=dg.in_process_executor,
    tags=TAGS,
)
def sweep() -> None:
    """Sweep the objects."""
    sweep_objects()


@dg.op
def purge_results(context: dg.OpExecutionContext, services: ReceiptServices) -> int:
    """Purge results past their retention, a tombstone first; returns how many."""
    return maintenance.purge_expired(services.open())


@dg.job(
    description="Purge results whose retention passed; their completion receipts stay.",
    executor_def=dg.in_process_executor,
    tags=TAGS,
)
def retention() -> None:
    """Purge what retention allows."""
    purge_results()


@dg.op
def four_job_drill(context: dg.OpExecutionContext, services: ReceiptServices) -> None:
    """Run the drill in a throw-away home; red when its verdict is not `pass`."""
    from receipt_pipeline.defs.local_runner import run_drill_here

    answer = run_drill_here()
    context.add_output_metadata(
        {
            "verdict": answer["verdict"],
            "steps": dg.MetadataValue.table(
                [
                    dg.TableRecord({name: str(step[name]) for name in ("name", "expected", "observed", "ok")})
                    for step in answer["steps"]
                ],
                schema=dg.TableSchema(
                    [dg.TableColumn(name) for name in ("name", "expected", "observed", "ok")]
                ),
            ),
        }
    )
    if answer["verdict"] != "pass":
        raise dg.Failure("the drill did not pass; its steps are in the metadata", allow_retries=False)


@dg.job(
    description="The four-job failure drill in a throw-away home; touches nothing here.",
    executor_def=dg.in_process_executor,
    tags=TAGS,
)
def drill() -> None:
    """Run the drill."""
    four_job_drill()


def _schedule(job: dg.JobDefinition | Any, cron: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        job=job, cron_schedule=cron, default_status=dg.DefaultScheduleStatus.RUNNING, execution_timezone="UTC"
    )


ALL_JOBS = (accounting, sweep, retention, drill)
ALL_SCHEDULES = (
    _schedule(accounting, "*/15 * * * *"),
    _schedule(sweep, "7 * * * *"),
    _schedule(retention, "23 3 * * *"),
)
