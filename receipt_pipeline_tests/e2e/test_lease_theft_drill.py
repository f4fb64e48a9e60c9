"""The lease-theft drill as users watch it: two real workers, one pause, one asset."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline_tests.e2e.command import answer_of, processes_of, run_receipts

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.requirement("R071")
def test_a_worker_that_lost_its_lease_is_rejected_and_one_asset_remains(tmp_path: Path) -> None:
    done = run_receipts(tmp_path / "home", "drill", "--story", "lease-theft", "--json")

    answer = answer_of(done)
    assert [step for step in answer["steps"] if not step["ok"]] == []
    assert (answer["verdict"], done.returncode) == ("pass", 0)
    assert any("rejected: commit under epoch 1" in line for line in answer["story"])
    assert processes_of(tmp_path / "home") == []
