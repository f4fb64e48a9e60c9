"""The same real scans give the same outcome digests, in one process and spread over two."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.chain.release import shipped_releases
from receipt_pipeline.evaluation.risk_pictures import judge_scans, read_labelled_scans
from receipt_pipeline_tests.suite_results import PROJECT

pytestmark = [pytest.mark.field, pytest.mark.slow]

SCANS = 20


def test_twenty_scans_give_the_same_outcomes_on_one_and_on_two_processes(shared: Path) -> None:
    scans = read_labelled_scans(shared / "data" / "receipts")
    chosen = scans[:: len(scans) // SCANS][:SCANS]
    assert len(chosen) == SCANS
    shipped = PROJECT / "data"
    pins = shipped_releases(shipped, image_digest="sha256:" + "f" * 64)[-1].release.pins()
    alone, spread = (
        [
            one.outcome.outcome_digest
            for one in judge_scans(chosen, pins, shipped=shipped, processes=processes)
        ]
        for processes in (1, 2)
    )
    assert alone == spread
    assert len(set(alone)) == SCANS
