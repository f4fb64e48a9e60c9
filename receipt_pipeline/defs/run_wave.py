"""Run one wave in a child process, in this instance's Dagster storage."""

import sys

import dagster as dg

from receipt_pipeline.app.maintenance import jobs_of_wave
from receipt_pipeline.defs.resources import APP, IN_MEMORY
from receipt_pipeline.defs.waves import classify_wave, wave_tags


def main() -> int:
    """Execute `classify_wave` for the wave named by the first argument."""
    wave_id = sys.argv[1]
    tags = wave_tags(wave_id, jobs_of_wave(APP.open(), wave_id))
    with dg.DagsterInstance.get() as instance:
        result = classify_wave.execute_in_process(
            instance=instance, tags=tags, resources={"app": APP, IN_MEMORY: dg.mem_io_manager}, raise_on_error=False
        )
        return 0 if result.success else 1


if __name__ == "__main__":
    raise SystemExit(main())
