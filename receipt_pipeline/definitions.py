"""Dagster's door: loads the Dagster room, nothing else."""

import dagster as dg

from receipt_pipeline.defs.assets import ALL_ASSETS
from receipt_pipeline.defs.checks import ALL_CHECKS
from receipt_pipeline.defs.evaluation import chain_evaluation, evaluation, release_no_worse
from receipt_pipeline.defs.jobs import ALL_JOBS, ALL_SCHEDULES
from receipt_pipeline.defs.local_runner import install_plan_of_environment
from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.defs.sensors import all_sensors
from receipt_pipeline.defs.waves import IN_MEMORY, classify_wave

# Below the five seconds between two ticks, so that the sensor is nearly always looking.
DISPATCH_WAIT_S = 4.0

install_plan_of_environment()
_services = ReceiptServices(dispatch_wait_s=DISPATCH_WAIT_S)
_services.refuse_lost_ledger()

defs = dg.Definitions(
    assets=[*ALL_ASSETS, chain_evaluation],
    asset_checks=[*ALL_CHECKS, release_no_worse],
    jobs=[classify_wave, *ALL_JOBS, evaluation],
    schedules=list(ALL_SCHEDULES),
    sensors=all_sensors(_services),
    resources={"services": _services, IN_MEMORY: dg.mem_io_manager},
)
