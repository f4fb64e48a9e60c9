"""Where drills meet Dagster: plans installed at process start, the drill's rounds through real sensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from receipt_pipeline.drill.matrix_cells import Cell
from receipt_pipeline.drill.matrix_processes import Processes
from receipt_pipeline.drill.plan import install_from
from receipt_pipeline.settings import Settings, read_settings


def install_plan_of_environment() -> bool:
    """Install the failure plan that the environment carries, if any."""
    from receipt_pipeline.worker.heartbeat import stop_all

    settings = read_settings()
    return install_from(settings.drill_plan, enabled=settings.drills_enabled, silence=stop_all)


def run_drill_here(settings: Settings) -> dict[str, Any]:
    """Run the four-job drill in a throw-away home, through the real sensors and wave runs."""
    from receipt_pipeline.defs.rounds import Rounds
    from receipt_pipeline.drill.four_jobs import run_drill

    return run_drill(settings, rounds_for=Rounds.for_home)


def play_through_dagster_here(
    cell: Cell, processes: Processes, folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Play one cell of the crash matrix through the real sensors and wave runs."""
    from receipt_pipeline.defs.rounds import Rounds
    from receipt_pipeline.drill.matrix_dagster import play_through_dagster

    return play_through_dagster(cell, processes, folder, environment, rounds_for=Rounds.for_home)
