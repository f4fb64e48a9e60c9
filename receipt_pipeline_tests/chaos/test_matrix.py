"""A sample of the crash matrix on both ledgers: real processes at durable boundaries, and one safe ending."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from receipt_pipeline_tests.chaos.crash_matrix.cells import Cell, CellFault, cells_of
from receipt_pipeline_tests.chaos.crash_matrix.instances import CellLedgers, PostgresLedgers, SqliteLedgers
from receipt_pipeline_tests.chaos.matrix import run_cells
from receipt_pipeline_tests.postgres_server import PostgresServer

# Claim, checkpoint, external call, domain commit with its outbox rows and the terminal record, the
# outbox's own write, and the consumer's.
DURABLE = ("claim", "checkpoint", "upload", "commit", "delivery_record", "consume")
UNDER_LEASE = ("claim", "checkpoint", "upload", "commit")
KILLS = tuple(itertools.product(DURABLE, (CellFault.KILL_BEFORE, CellFault.KILL_AFTER)))
THEFTS = tuple(itertools.product(UNDER_LEASE, (CellFault.LEASE_THEFT,)))
CANCELLATIONS = tuple(itertools.product(DURABLE, (CellFault.CANCELLATION,)))
OTHERS = (
    ("accept", CellFault.KILL_AFTER),
    ("outbox_send", CellFault.DUPLICATE_DELIVERY),
    ("outbox_send", CellFault.HANG),
    ("read_back", CellFault.STALL),
    ("intent", CellFault.ERROR),
    ("investigate", CellFault.KILL_AFTER),
)
TAKEOVER = ("takeover", CellFault.DUPLICATE_DELIVERY)
INTERRUPTED_S_MAX = 60.0
SAFE = {"converged", "owned"}

pytestmark = pytest.mark.slow


Lines = Mapping[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def sqlite_lines() -> Lines:
    """The lines of every chosen cell on SQLite."""
    return play((*KILLS, *THEFTS, TAKEOVER, *CANCELLATIONS, *OTHERS), SqliteLedgers())


@pytest.fixture(scope="module")
def postgres_lines(postgres_server: PostgresServer) -> Lines:
    """The lines of kills, thefts and two reconcilers at a time on PostgreSQL."""
    return play((*KILLS, *THEFTS, TAKEOVER), PostgresLedgers(sa.make_url(postgres_server.address)))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def lines(request: pytest.FixtureRequest) -> Lines:
    """The lines of the cells that are played on each ledger."""
    found: Lines = request.getfixturevalue(f"{request.param}_lines")
    return found


@pytest.fixture
def further_lines(sqlite_lines: Lines) -> Lines:
    """The lines of cancellations and other faults, on SQLite."""
    return sqlite_lines


def play(chosen: Sequence[tuple[str, CellFault]], ledgers: CellLedgers) -> Lines:
    """Play the cells and return their lines by boundary and fault."""
    cells = [Cell(boundary, fault, ledgers.name) for boundary, fault in chosen]
    lines = run_cells(cells, ledgers, progress=lambda line, done, total: None)
    return {(line["boundary"], line["fault"]): line for line in lines}


def ending(lines: Lines, boundary: str, fault: CellFault) -> tuple[str, str]:
    """Return verdict and detail of a cell."""
    line = lines[boundary, fault]
    return line["verdict"], line["detail"]


@pytest.mark.requirement("R097", "R152")
@pytest.mark.parametrize(("boundary", "fault"), KILLS)
def test_a_kill_right_before_or_after_a_durable_boundary_leaves_one_effect_ledger(
    lines: Lines, boundary: str, fault: CellFault
) -> None:
    verdict, detail = ending(lines, boundary, fault)
    assert (verdict, detail.rpartition(" → ")[2]) == ("converged", "succeeded/complete"), detail


@pytest.mark.requirement("R153")
@pytest.mark.parametrize(("boundary", "fault"), THEFTS)
def test_a_stolen_lease_leaves_the_outcome_to_the_holder(lines: Lines, boundary: str, fault: CellFault) -> None:
    verdict, detail = ending(lines, boundary, fault)
    assert (verdict, detail) == ("converged", "lost → committed → succeeded/complete")


@pytest.mark.requirement("R153")
@pytest.mark.parametrize(("boundary", "fault"), CANCELLATIONS)
def test_a_cancellation_at_a_boundary_closes_an_open_job_and_changes_no_closed_one(
    further_lines: Lines, boundary: str, fault: CellFault
) -> None:
    verdict, detail = ending(further_lines, boundary, fault)
    wanted = "canceled/canceled" if boundary in UNDER_LEASE else "succeeded/complete"
    assert (verdict, detail.rpartition(" → ")[2]) == ("converged", wanted), detail


@pytest.mark.requirement("R156")
@pytest.mark.parametrize(("boundary", "fault"), OTHERS)
def test_every_other_scenario_ends_balanced_or_owned(further_lines: Lines, boundary: str, fault: CellFault) -> None:
    verdict, detail = ending(further_lines, boundary, fault)
    assert verdict in SAFE, detail


@pytest.mark.requirement("R159")
def test_an_accepted_job_is_processed_though_its_caller_got_no_answer(further_lines: Lines) -> None:
    assert ending(further_lines, "accept", CellFault.KILL_AFTER) == ("converged", "committed → succeeded/complete")


@pytest.mark.requirement("R159")
def test_an_effect_that_happened_without_its_closure_is_found_and_closed(lines: Lines) -> None:
    verdict, detail = ending(lines, "upload", CellFault.KILL_AFTER)
    assert (verdict, detail) == ("converged", "lost → committed → succeeded/complete")


@pytest.mark.requirement("R159")
def test_a_cancellation_that_races_a_claim_closes_the_job_once(further_lines: Lines) -> None:
    verdict, detail = ending(further_lines, "claim", CellFault.CANCELLATION)
    assert (verdict, detail) == ("converged", "canceled/canceled")


@pytest.mark.requirement("R098", "R159")
def test_two_reconcilers_at_a_time_take_a_lost_job_over_once(lines: Lines) -> None:
    verdict, detail = ending(lines, "takeover", CellFault.DUPLICATE_DELIVERY)
    assert (verdict, detail) == ("converged", "lost → committed → succeeded/complete")


def test_a_stalled_worker_is_ended_by_its_own_watchdog(further_lines: Lines) -> None:
    verdict, detail = ending(further_lines, "read_back", CellFault.STALL)
    assert (verdict, detail) == ("converged", "ended by its watchdog; lost → committed → succeeded/complete")


def test_a_lost_object_has_an_owned_investigation_though_its_finder_dies(further_lines: Lines) -> None:
    verdict, detail = ending(further_lines, "investigate", CellFault.KILL_AFTER)
    assert (verdict, detail) == ("owned", "committed → succeeded/complete; owned: missing_object")


def test_an_interrupted_matrix_ends_immediately_and_leaves_no_process() -> None:
    interrupted: list[float] = []

    def interrupt(line: dict[str, Any], done: int, of: int) -> None:
        interrupted.append(time.monotonic())
        raise KeyboardInterrupt

    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells_of(["takeover"], ledger="sqlite"), SqliteLedgers(), progress=interrupt)
    assert time.monotonic() - interrupted[0] < INTERRUPTED_S_MAX
    assert set(psutil.Process().children(recursive=True)) - before == set()
