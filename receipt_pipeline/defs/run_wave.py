"""The child process of one wave: executes its Dagster job in this home's instance."""

import sys

import dagster as dg

from receipt_pipeline.defs.waves import WAVE_TAG


def main() -> int:
    """Execute `classify_wave` for the wave named by the first argument."""
    from receipt_pipeline.definitions import defs

    with dg.DagsterInstance.get() as instance:
        result = defs.resolve_job_def("classify_wave").execute_in_process(
            instance=instance, tags={WAVE_TAG: sys.argv[1]}, raise_on_error=False
        )
        return 0 if result.success else 1


if __name__ == "__main__":
    raise SystemExit(main())
