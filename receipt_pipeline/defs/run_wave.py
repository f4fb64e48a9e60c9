"""The child process of one wave: executes its Dagster job in this home's instance."""

import sys

import dagster as dg

from receipt_pipeline.defs.local_runner import install_plan_of_environment
from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.defs.waves import IN_MEMORY, WAVE_TAG, classify_wave


def main() -> int:
    """Execute `classify_wave` for the wave named by the first argument."""
    install_plan_of_environment()
    with dg.DagsterInstance.get() as instance:
        result = classify_wave.execute_in_process(
            instance=instance,
            tags={WAVE_TAG: sys.argv[1]},
            resources={"services": ReceiptServices(), IN_MEMORY: dg.mem_io_manager},
            raise_on_error=False,
        )
        return 0 if result.success else 1


if __name__ == "__main__":
    raise SystemExit(main())
