"""The crash matrix knows every boundary of the code, a way to each, and a rule for all that cannot happen."""

from __future__ import annotations

import json
import re

import pytest

from receipt_pipeline.core.failure_points import BOUNDARIES, POINTS
from receipt_pipeline_tests.chaos.crash_matrix.cells import (
    DAGSTER_SAMPLE,
    MEANINGS,
    CellFault,
    all_cells,
    dagster_cells,
    points_of,
    why_not,
)
from receipt_pipeline_tests.chaos.crash_matrix.runner import PLAYED
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import SCENARIOS
from receipt_pipeline_tests.chaos.crash_matrix.steps import STEPS
from receipt_pipeline_tests.chaos.matrix import BEGINS, ENDS, PAGE, main
from receipt_pipeline_tests.tidy.tracked import text_of


@pytest.mark.requirement("R153")
def test_the_matrix_is_the_cross_product_of_the_code_s_boundaries_and_every_fault() -> None:
    cells = all_cells(ledger="sqlite")
    crossed = {(boundary, fault) for boundary in BOUNDARIES for fault in CellFault}
    assert {(cell.boundary, cell.fault) for cell in cells} == crossed
    assert len(cells) == len(crossed)


def test_every_boundary_has_a_scenario_of_steps_that_exist() -> None:
    assert set(SCENARIOS) == set(BOUNDARIES)
    used = {
        step
        for scenario in SCENARIOS.values()
        for step in (
            scenario.faulted_step,
            scenario.duplicate_step,
            *filter(None, (scenario.repeated_step,)),
            *(prepared.step for prepared in scenario.prepared),
        )
    }
    assert used - set(STEPS) == set()


def test_every_fault_is_explained_and_played() -> None:
    assert set(MEANINGS) == set(PLAYED) == set(CellFault)


def test_most_cells_apply_and_what_cannot_happen_is_ruled_out_by_a_sentence() -> None:
    rules = [why_not(cell.boundary, cell.fault) for cell in all_cells(ledger="sqlite")]
    assert sum(not rule for rule in rules) >= 100
    assert {len(rule.split()) > 5 for rule in rules if rule} == {True}


def test_every_fault_happens_at_a_point_of_its_boundary() -> None:
    for cell in all_cells(ledger="sqlite"):
        assert set(cell.points) <= POINTS
        assert {point.partition(".")[0] for point in cell.points} == {cell.boundary}
    assert points_of("commit", CellFault.ERROR) == ("commit.before", "commit.after")


def test_ten_cells_that_apply_go_through_dagster() -> None:
    assert len(set(DAGSTER_SAMPLE)) == len(dagster_cells(ledger="sqlite")) == 10
    assert [cell for cell in DAGSTER_SAMPLE if why_not(*cell)] == []


def test_the_command_lists_what_the_code_marks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["boundary"] for row in answer["boundaries"]] == list(BOUNDARIES)
    assert {point for row in answer["boundaries"] for point in row["points"]} == POINTS
    assert set(answer["faults"]) == {fault.value for fault in CellFault}
    for row in answer["boundaries"]:
        assert set(row["faults"]) | set(row["not_applicable"]) == set(answer["faults"])


def test_the_page_of_invariants_shows_a_result_without_a_broken_cell() -> None:
    text = text_of(PAGE)
    shown = text.partition(BEGINS)[2].partition(ENDS)[0]
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", shown, flags=re.MULTILINE))
    assert set(BOUNDARIES) <= set(rows)
    assert [name for name in BOUNDARIES if set(rows[name]) - set("co– /|")] == []
