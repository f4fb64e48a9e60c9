"""The same real scans give the same outcome digests, in one process and spread over two."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from receipt_pipeline.chain.release import shipped_releases
from receipt_pipeline.evaluation.scans import LabeledScan, classify_scans, read_labeled_scans
from receipt_pipeline.settings import SHIPPED_ARTIFACTS

pytestmark = [pytest.mark.field, pytest.mark.slow]

SCANS = 10


def pixels_of(scan: LabeledScan) -> int:
    with Image.open(scan.picture) as picture:
        return picture.width * picture.height


def test_ten_scans_give_the_same_outcomes_on_one_and_on_two_processes(shared: Path) -> None:
    # The smallest pictures: whether outcomes are stable does not depend on how much there is to read.
    chosen = sorted(read_labeled_scans(shared / "data" / "receipts"), key=pixels_of)[:SCANS]
    assert len(chosen) == SCANS
    pins = shipped_releases(SHIPPED_ARTIFACTS, image_digest="sha256:" + "f" * 64)[-1].release.pins()
    alone, spread = (
        [
            one.outcome.outcome_digest
            for one in classify_scans(chosen, pins, shipped=SHIPPED_ARTIFACTS, processes=processes)
        ]
        for processes in (1, 2)
    )
    assert alone == spread
    assert len(set(alone)) == SCANS
