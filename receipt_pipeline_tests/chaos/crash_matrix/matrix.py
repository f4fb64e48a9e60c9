"""The crash matrix: every durable boundary under every fault, in real processes, with one verdict a cell."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from receipt_pipeline_tests.chaos.crash_matrix.cells import (
    DAGSTER,
    SERVICES,
    Cell,
    CellFault,
    Verdict,
    why_not,
)
from receipt_pipeline_tests.chaos.crash_matrix.homes import CellLedgers, Homes
from receipt_pipeline_tests.chaos.crash_matrix.processes import Processes
from receipt_pipeline_tests.chaos.crash_matrix.runner import conduct
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import STORIES, WATCHED_LIMITS
from receipt_pipeline_tests.chaos.crash_matrix.steps import Order

# A cell mostly waits for leases to end, so that more cells than cores go at once.
CELLS_PER_CORE = 2

Player = Callable[[Cell, Processes, Path, Mapping[str, str]], dict[str, Any]]
Told = Callable[[dict[str, Any], int, int], None]


def run_cells(
    cells: Sequence[Cell],
    ledgers: CellLedgers,
    *,
    told: Told,
    through_dagster: Player | None = None,
    keep: Path | None = None,
) -> list[dict[str, Any]]:
    """Play the cells, several at once, and return one line each, in order.

    Args:
        told: called after each cell with its line, how many are done, and how many there are.
        through_dagster: plays the cells whose work goes through Dagster runs, one at a time.
        keep: where folders of broken cells are kept for a closer look.
    """
    lines: dict[Cell, dict[str, Any]] = {}
    players = {SERVICES: conduct, DAGSTER: through_dagster or conduct}
    with (
        _stage(ledgers) as (homes, processes),
        ThreadPoolExecutor(_lanes()) as lanes,
        ThreadPoolExecutor(1) as dagster_lane,
    ):
        playing = {}
        for cell in cells:
            lane = dagster_lane if cell.through == DAGSTER else lanes
            playing[lane.submit(_play, cell, players[cell.through], homes, processes, keep)] = cell
        try:
            for done in as_completed(playing):
                lines[playing[done]] = done.result()
                told(done.result(), len(lines), len(cells))
        except BaseException:  # A person's Ctrl-C ends everything at once.
            for waiting in playing:
                waiting.cancel()
            processes.end()
            raise
    return [lines[cell] for cell in cells]


def answer(lines: Sequence[dict[str, Any]], *, seconds: float) -> dict[str, Any]:
    """Return the matrix's document: a line a cell, counts per verdict, seconds."""
    counted = Counter(line["verdict"] for line in lines)
    counts = {verdict.value: counted[verdict.value] for verdict in Verdict}
    return {"cells": list(lines), "counts": counts, "seconds": round(seconds, 1)}


def _lanes() -> int:
    return CELLS_PER_CORE * max(1, os.cpu_count() or 1)


@contextmanager
def _stage(ledgers: CellLedgers) -> Iterator[tuple[Homes, Processes]]:
    """Set one home up, to be copied for every cell, and warm one process up, to be forked."""
    root = Path(tempfile.mkdtemp(prefix="receipts-matrix-"))
    try:
        homes = Homes(root, ledgers)
        with Processes() as processes:
            folder, environment = homes.template_environment()
            try:
                status = processes.start(Order("set_up", str(folder), environment)).wait(120)
                assert status == 0, (folder / "processes.log").read_text()
                yield homes, processes
            finally:
                homes.remove_template(environment)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _play(
    cell: Cell, player: Player, homes: Homes, processes: Processes, keep: Path | None
) -> dict[str, Any]:
    """Return the line of one cell; what cannot happen is said by its rule, and counts for nothing."""
    started = time.monotonic()
    line = {
        "boundary": cell.boundary,
        "fault": cell.fault.value,
        "ledger": cell.ledger,
        "through": cell.through,
    }
    if rule := why_not(cell.boundary, cell.fault):
        return line | {"verdict": Verdict.NOT_APPLICABLE.value, "detail": rule, "seconds": 0.0}
    limits = {**STORIES[cell.boundary].limits, **(WATCHED_LIMITS if cell.fault is CellFault.STALL else {})}
    with homes.fresh(cell.name, limits) as (folder, environment):
        ended = player(cell, processes, folder, environment)
        if keep is not None and ended["verdict"] == Verdict.BROKEN:
            shutil.copytree(folder, keep / f"{cell.ledger}-{cell.name}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return line | ended | {"seconds": round(time.monotonic() - started, 1)}
