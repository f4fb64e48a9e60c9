"""Plays cells of the crash matrix through the real sensors and a Dagster run per wave."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.defs.local_runner import LocalRunner
from receipt_pipeline.drill.sandbox import DRILL_LIMITS
from receipt_pipeline.ledger.jobs.waves import open_waves
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.chaos.crash_matrix.cells import Cell, CellFault, Verdict
from receipt_pipeline_tests.chaos.crash_matrix.processes import Processes
from receipt_pipeline_tests.chaos.crash_matrix.runner import CellBroken, CellRun, read_verdict
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import SCENARIOS
from receipt_pipeline_tests.chaos.crash_matrix.verify import note_outcomes

# A run reads real pictures after loading the reader: it needs more time than a scripted one.
DAGSTER_LIMITS: Mapping[str, str] = {**DRILL_LIMITS, "RECEIPTS_LIMIT_ORPHAN_GRACE_S": "0"}
DAGSTER_WATCHED = {"RECEIPTS_LIMIT_ITEM_TIMEOUT_S": "10"}
FINISH_S_MAX = 420.0
POLL_S = 0.3


def play_through_dagster(
    cell: Cell, processes: Processes, folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Play one cell: submit, tick the sensors while the first wave's run meets its fault, verify."""
    watched = DAGSTER_WATCHED if cell.fault is CellFault.STALL else {}
    given = {**environment, **DAGSTER_LIMITS, **watched}
    run = CellRun(cell, SCENARIOS[cell.boundary], folder, given, processes)
    settings = read_settings(given)
    services = open_app(settings)
    try:
        run.run_step("submit")
        runner = LocalRunner.prepare(settings, given)
        try:
            runner.plan = run.plan()
            _tick_until_finished(services, runner, hangs=cell.fault is CellFault.HANG)
        finally:
            runner.stop()
        if cell.fault is CellFault.HANG:
            _close_waves(services)
        note_outcomes(services, folder)
        return read_verdict(run)
    except CellBroken as broken:
        return {"verdict": Verdict.BROKEN.value, "detail": str(broken)}
    finally:
        services.close()
        for running in run.started:
            running.kill()


def _tick_until_finished(services: AppContext, runner: LocalRunner, *, hangs: bool) -> None:
    """Tick until the job is closed, its effects are finished and every run ended, except one that hangs."""
    end = time.monotonic() + FINISH_S_MAX
    while time.monotonic() < end:
        runner.tick()
        listed = submitter.list_jobs(services, services.principal())
        closed = [str(job["job_id"]) for job in listed if job["state"] in TERMINAL_STATES]
        finished = (
            listed and len(closed) == len(listed) and not maintenance.jobs_with_unfinished_effects(services, closed)
        )
        if finished and (hangs or not runner.is_busy):
            return
        time.sleep(POLL_S)


def _close_waves(services: AppContext) -> None:
    """Close the wave of the run that was ended, as the sensor for failed runs does."""
    with services.ledger.reading() as tx:
        left = [str(row["wave_id"]) for row in open_waves(tx)]
    for wave_id in left:
        maintenance.close_wave(services, wave_id)
