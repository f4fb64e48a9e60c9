"""The four-job drill, through real sensors, runs and checks in its throw-away home."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline_tests.e2e.command import answer_of, processes_of, run_receipts

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.requirement(
    "R072", "R073", "R074", "R075", "R076", "R077", "R080", "R081", "R084", "R085", "R055"
)
def test_the_drill_passes_with_every_step_ok(tmp_path: Path) -> None:
    done = run_receipts(tmp_path / "home", "drill", "--json")

    answer = answer_of(done)
    assert [step for step in answer["steps"] if not step["ok"]] == []
    assert answer["verdict"] == "pass"
    assert done.returncode == 0
    assert len(answer["jobs"]) >= 4
    assert answer["report"]["accepted"] == len(answer["jobs"])
    assert processes_of(tmp_path / "home") == []
