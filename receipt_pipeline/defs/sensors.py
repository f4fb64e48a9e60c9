"""Sensors: bounded work per tick, their cursor in the ledger, repeatable without harm.

They hold the services themselves instead of asking for a Dagster resource: a sensor that asks for one
makes the code server open the whole Dagster instance at every tick.
"""

import dagster as dg

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.defs.waves import WAVE_TAG, classify_wave

TICK_S = 5
# A failed run is found this late at most; its wave would otherwise lapse by its heartbeat.
FAILURES_TICK_S = 15
RUNNING = dg.DefaultSensorStatus.RUNNING
Tick = dg.SensorEvaluationContext


def submissions_sensor(services: ReceiptServices) -> dg.SensorDefinition:
    """Return the sensor from drop folder to ledger."""

    @dg.sensor(
        name="submissions",
        description="Accepts what was dropped into the inbox, within a time bound per tick.",
        minimum_interval_seconds=TICK_S,
        default_status=RUNNING,
    )
    def submissions(_context: Tick) -> dg.SkipReason:
        return dg.SkipReason(maintenance.sweep_inbox(services.open()).sentence)

    return submissions


def dispatch_sensor(services: ReceiptServices) -> dg.SensorDefinition:
    """Return the sensor from ledger to waves; run keys are the waves', so a repeated tick is harmless."""

    @dg.sensor(
        name="dispatch",
        job=classify_wave,
        description="Reserves ready jobs for waves; each wave is one run.",
        minimum_interval_seconds=TICK_S,
        default_status=RUNNING,
    )
    def dispatch(_context: Tick) -> dg.SensorResult | dg.SkipReason:
        dispatched = maintenance.dispatch_jobs(services.open(), wait_s=services.dispatch_wait_s)
        if not dispatched.to_launch:
            waiting = f"; {len(dispatched.stranded)} without a capable worker" if dispatched.stranded else ""
            return dg.SkipReason(f"nothing to launch{waiting}")
        return dg.SensorResult(
            run_requests=[
                dg.RunRequest(run_key=wave.run_key, tags={WAVE_TAG: wave.wave_id})
                for wave in dispatched.to_launch
            ]
        )

    return dispatch


def deliveries_sensor(services: ReceiptServices) -> dg.SensorDefinition:
    """Return the sensor from outbox to channel, and from results to review tasks."""

    @dg.sensor(
        name="deliveries",
        description="Sends due notifications and status documents; the review consumer takes in results.",
        minimum_interval_seconds=TICK_S,
        default_status=RUNNING,
    )
    def deliveries(_context: Tick) -> dg.SkipReason:
        return dg.SkipReason(maintenance.deliver_and_consume(services.open()).sentence)

    return deliveries


def reconcile_sensor(services: ReceiptServices) -> dg.SensorDefinition:
    """Return the sensor that compares and repairs within the ledger; objects are the job `sweep`'s."""

    @dg.sensor(
        name="reconcile",
        description="Expires overdue jobs, takes expired leases away, opens owned investigations.",
        minimum_interval_seconds=TICK_S,
        default_status=RUNNING,
    )
    def reconcile(_context: Tick) -> dg.SkipReason:
        opened = services.open()
        done = maintenance.reconcile_ledger(opened)
        maintenance.review_alerts(opened, whole=False)
        return dg.SkipReason(done.sentence)

    return reconcile


def run_failures_sensor(services: ReceiptServices) -> dg.SensorDefinition:
    """Return the sensor from failed run to closed wave; the claims of its worker end by their leases."""

    @dg.run_failure_sensor(
        name="run_failures",
        description="A wave whose run failed is closed at once, so that its unclaimed jobs are ready again.",
        default_status=RUNNING,
        minimum_interval_seconds=FAILURES_TICK_S,
        monitored_jobs=[classify_wave],
    )
    def run_failures(context: dg.RunFailureSensorContext) -> None:
        wave_id = context.dagster_run.tags.get(WAVE_TAG)
        if wave_id:
            maintenance.close_wave(services.open(), wave_id)

    return run_failures


def all_sensors(services: ReceiptServices) -> list[dg.SensorDefinition]:
    """Return every sensor, bound to the services of one home."""
    makers = (submissions_sensor, dispatch_sensor, deliveries_sensor, reconcile_sensor, run_failures_sensor)
    return [make(services) for make in makers]
