"""Plays chosen cells of the crash matrix on both ledgers, once for all tests that look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from receipt_pipeline_tests.chaos.crash_matrix.cells import Cell, CellFault
from receipt_pipeline_tests.chaos.crash_matrix.instances import CellLedgers, PostgresLedgers, SqliteLedgers
from receipt_pipeline_tests.chaos.matrix import run_cells
from receipt_pipeline_tests.postgres_server import PostgresServer

Chosen = Sequence[tuple[str, CellFault]]
Lines = Mapping[tuple[str, str], dict[str, Any]]


def ledgers_for(name: str, request: pytest.FixtureRequest) -> CellLedgers:
    """Return where cells get their ledgers from in a test."""
    if name == "sqlite":
        return SqliteLedgers()
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return PostgresLedgers(sa.make_url(server.address))


def play(chosen: Chosen, ledgers: CellLedgers) -> Lines:
    """Play the cells and return their lines by boundary and fault."""
    cells = [Cell(boundary, fault, ledgers.name) for boundary, fault in chosen]
    lines = run_cells(cells, ledgers, progress=_ignore_progress)
    return {(line["boundary"], line["fault"]): line for line in lines}


def _ignore_progress(line: dict[str, Any], done: int, of: int) -> None:
    """The tests look at the lines themselves."""
