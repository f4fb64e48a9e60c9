"""Sensors: bounded work per tick, their cursor in the ledger, repeatable without harm."""

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.receipt_text import counted
from receipt_pipeline.defs.resources import APP
from receipt_pipeline.defs.waves import WAVE_TAG, classify_wave, wave_tags

TICK_S = 5
# A failed run is found this late at most; its wave would otherwise end by its missing heartbeat.
FAILURES_TICK_S = 15
# Below the five seconds between two ticks, so that the sensor almost always looks for work.
DISPATCH_WAIT_S = 4.0
RUNNING = dg.DefaultSensorStatus.RUNNING


def reserve_waves(app: AppContext, *, wait_s: float = 0.0) -> dg.SensorResult | dg.SkipReason:
    """Reserve ready jobs and request a run per wave; run keys make a repeated request harmless."""
    dispatched = maintenance.dispatch_jobs(app, wait_s=wait_s)
    if not dispatched.to_launch:
        stranded = counted(len(dispatched.stranded), "job")
        unsupported = f"; no worker supports the release of {stranded}" if dispatched.stranded else ""
        return dg.SkipReason(maintenance.describe_queue(app) + unsupported)
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(
                run_key=wave.run_key, tags=wave_tags(wave.wave_id, maintenance.jobs_of_wave(app, wave.wave_id))
            )
            for wave in dispatched.to_launch
        ]
    )


def reconcile_now(app: AppContext) -> dg.SkipReason:
    """Repair what the ledger alone shows, and evaluate the quick alerts."""
    summary = maintenance.reconcile_ledger(app)
    maintenance.review_alerts(app, whole=False)
    return dg.SkipReason(summary.sentence)


@dg.sensor(
    description="Accept what was dropped into the inbox, within a time limit per tick.",
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def submissions(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Read the inbox once."""
    return dg.SkipReason(maintenance.sweep_inbox(APP.open()).sentence)


@dg.sensor(
    description="Reserve ready jobs for waves and launch one run per wave.",
    job=classify_wave,
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def dispatch(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Reserve and request."""
    return reserve_waves(APP.open(), wait_s=DISPATCH_WAIT_S)


@dg.sensor(
    description="Send due notifications and status documents, and make review tasks of new results.",
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def deliveries(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Deliver and consume once."""
    return dg.SkipReason(maintenance.deliver_and_consume(APP.open()).sentence)


@dg.sensor(
    description="Expire overdue jobs, take over expired leases, and open owned investigations.",
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def reconcile(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Reconcile the ledger once."""
    return reconcile_now(APP.open())


@dg.run_failure_sensor(
    description="Close the wave of a failed run, so that its unclaimed jobs are ready again.",
    default_status=RUNNING,
    minimum_interval_seconds=FAILURES_TICK_S,
    monitored_jobs=[classify_wave],
)
def run_failures(context: dg.RunFailureSensorContext) -> None:
    """Close the wave; claims of its worker end with their leases."""
    wave_id = context.dagster_run.tags.get(WAVE_TAG)
    if wave_id:
        maintenance.close_wave(APP.open(), wave_id)
