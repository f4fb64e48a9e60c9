"""Sensors: bounded work per tick, their cursor in the ledger, repeatable without harm."""

import dagster as dg

from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.defs.waves import WAVE_TAG, classify_wave

TICK_S = 5
RUNNING = dg.DefaultSensorStatus.RUNNING


@dg.sensor(
    name="submissions",
    description="Accepts what was dropped into the inbox, within a time bound per tick.",
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def submissions(context: dg.SensorEvaluationContext, services: ReceiptServices) -> dg.SkipReason:
    """Drop folder to ledger."""
    return dg.SkipReason(services.open().sweep_inbox().sentence)


@dg.sensor(
    name="dispatch",
    job=classify_wave,
    description="Reserves ready jobs for waves; each wave is one run.",
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def dispatch(
    context: dg.SensorEvaluationContext, services: ReceiptServices
) -> dg.SensorResult | dg.SkipReason:
    """Ledger to waves. The run key is the wave's, so a repeated tick launches nothing twice."""
    dispatched = services.open().dispatch(wait_s=services.dispatch_wait_s)
    if not dispatched.to_launch:
        waiting = f"; {len(dispatched.stranded)} without a capable worker" if dispatched.stranded else ""
        return dg.SkipReason(f"nothing to launch{waiting}")
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(run_key=wave.run_key, tags={WAVE_TAG: wave.wave_id})
            for wave in dispatched.to_launch
        ]
    )


@dg.sensor(
    name="deliveries",
    description="Sends due notifications and status documents; the review consumer takes in results.",
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def deliveries(context: dg.SensorEvaluationContext, services: ReceiptServices) -> dg.SkipReason:
    """Outbox to channel, results to review tasks."""
    return dg.SkipReason(services.open().deliver_and_consume().sentence)


@dg.sensor(
    name="reconcile",
    description="Expires overdue jobs, takes expired leases away, opens owned investigations.",
    minimum_interval_seconds=TICK_S,
    default_status=RUNNING,
)
def reconcile(context: dg.SensorEvaluationContext, services: ReceiptServices) -> dg.SkipReason:
    """Compare and repair within the ledger; object sweeps run as the job `sweep`."""
    return dg.SkipReason(services.open().reconcile_ledger().sentence)


@dg.run_failure_sensor(
    name="run_failures",
    description="A wave whose run failed is closed at once, so that its unclaimed jobs are ready again.",
    default_status=RUNNING,
    minimum_interval_seconds=TICK_S,
    monitored_jobs=[classify_wave],
)
def run_failures(context: dg.RunFailureSensorContext, services: ReceiptServices) -> None:
    """Failed run to closed wave; the claims of its worker end by their leases."""
    wave_id = context.dagster_run.tags.get(WAVE_TAG)
    if wave_id:
        services.open().close_wave(wave_id)


ALL_SENSORS = (submissions, dispatch, deliveries, reconcile, run_failures)
