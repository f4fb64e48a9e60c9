"""The story of a stolen lease as users watch it: two real workers, one pause, one asset."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline_tests.e2e.command import answer_of, processes_of, run_receipts

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.requirement("R071")
def test_the_story_of_a_stolen_lease_ends_with_one_asset_and_a_refused_sleeper(tmp_path: Path) -> None:
    done = run_receipts(tmp_path / "home", "drill", "--story", "lease-theft", "--json")

    answer = answer_of(done)
    assert [step for step in answer["steps"] if not step["ok"]] == []
    assert (answer["verdict"], done.returncode) == ("pass", 0)
    assert any("refused: commit under epoch 1" in line for line in answer["story"])
    assert processes_of(tmp_path / "home") == []
