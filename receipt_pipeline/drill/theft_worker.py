"""A worker process of the lease-theft story: works one job of a throw-away home until it is closed."""

from __future__ import annotations

import sys
import time

from receipt_pipeline.app.context import open_app
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.drill.failure_plan import install_from
from receipt_pipeline.drill.sandbox import ScriptedReader
from receipt_pipeline.settings import read_settings
from receipt_pipeline.worker.context import Outcome
from receipt_pipeline.worker.heartbeat import stop_all
from receipt_pipeline.worker.loop import work_group

WORKS_S_MAX = 60.0
POLL_S = 0.1


def main(job_id: str, name: str) -> int:
    """Work the job under this name; 0 when it is closed or this worker was told to stand down."""
    settings = read_settings()
    install_from(settings.drill_plan, enabled=settings.drills_enabled, silence=stop_all)
    services = open_app(settings)
    services.chains.engine = ScriptedReader()
    worker = services.worker(run_id=name)
    end = time.monotonic() + WORKS_S_MAX
    while time.monotonic() < end:
        (line,) = work_group(worker, wave_id="", job_ids=[job_id])
        if line.state in TERMINAL_STATES or line.outcome == Outcome.STOOD_DOWN.value:
            return 0
        time.sleep(POLL_S)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2]))
