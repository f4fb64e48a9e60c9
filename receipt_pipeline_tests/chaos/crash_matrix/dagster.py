"""Plays cells of the crash matrix through the real sensors and a Dagster run per wave."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from receipt_pipeline.app.facade import Services, open_services
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.drill.four_jobs import RoundsFor, RoundsLike
from receipt_pipeline.drill.sandbox import DRILL_LIMITS
from receipt_pipeline.ledger.jobs.waves import open_waves
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.chaos.crash_matrix.cells import Cell, CellFault, Verdict
from receipt_pipeline_tests.chaos.crash_matrix.processes import Processes
from receipt_pipeline_tests.chaos.crash_matrix.runner import CellBroken, Conductor, judged
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import STORIES
from receipt_pipeline_tests.chaos.crash_matrix.verify import note_outcomes

# A run reads real pictures after loading the reader: it needs more time than a scripted one.
DAGSTER_LIMITS: Mapping[str, str] = {**DRILL_LIMITS, "RECEIPTS_LIMIT_ORPHAN_GRACE_S": "0"}
DAGSTER_WATCHED = {"RECEIPTS_LIMIT_ITEM_TIMEOUT_S": "10"}
SETTLE_S_MAX = 420.0
POLL_S = 0.3


def play_through_dagster(
    cell: Cell,
    processes: Processes,
    folder: Path,
    environment: Mapping[str, str],
    *,
    rounds_for: RoundsFor,
) -> dict[str, Any]:
    """Play one cell: submit, tick the sensors while the first wave's run meets its fault, judge.

    Args:
        rounds_for: ticks the sensors of a home and runs its waves.
    """
    watched = DAGSTER_WATCHED if cell.fault is CellFault.STALL else {}
    given = {**environment, **DAGSTER_LIMITS, **watched}
    at = Conductor(cell, STORIES[cell.boundary], folder, given, processes)
    settings = read_settings(given)
    services = open_services(settings)
    try:
        at.run("submit")
        rounds = rounds_for(settings, given)
        try:
            rounds.plan = at.plan()
            _go_round(services, rounds, hangs=cell.fault is CellFault.HANG)
        finally:
            rounds.end()
        if cell.fault is CellFault.HANG:
            _close_waves(services)
        note_outcomes(services, folder)
        return judged(at)
    except CellBroken as broken:
        return {"verdict": Verdict.BROKEN.value, "detail": str(broken)}
    finally:
        services.close()
        for running in at.started:
            running.kill()


def _go_round(services: Services, rounds: RoundsLike, *, hangs: bool) -> None:
    """Tick until the job is closed, its effects settled and every run over, but for one that hangs."""
    end = time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < end:
        rounds.tick()
        listed = services.jobs()
        closed = [str(job["job_id"]) for job in listed if job["state"] in TERMINAL_STATES]
        settled = listed and len(closed) == len(listed) and not services.unsettled(closed)
        if settled and (hangs or not rounds.busy):
            return
        time.sleep(POLL_S)


def _close_waves(services: Services) -> None:
    """Close the wave of the run that was ended, as the sensor for failed runs does."""
    with services.ledger.reading() as tx:
        left = [str(row["wave_id"]) for row in open_waves(tx)]
    for wave_id in left:
        services.close_wave(wave_id)


def play_through_dagster_here(
    cell: Cell, processes: Processes, folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Play one cell of the crash matrix through the real sensors and wave runs."""
    from receipt_pipeline.defs.local_runner import Rounds

    return play_through_dagster(cell, processes, folder, environment, rounds_for=Rounds.for_home)
