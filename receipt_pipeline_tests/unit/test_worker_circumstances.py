"""What the worker tells the chain of an item's job: the same on every try, and never a clock's reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.items import Decision, ItemClass, ItemContext, ItemOutcome
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline_tests.fakes.failing_objects import FailingObjects
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.fakes.worker_bench import WorkerBench

SCANS = WorkerBench.scans(4)


def printed(number: int) -> ItemOutcome:
    return ItemOutcome(
        item_class=ItemClass.CLASSIFIED,
        decision=Decision.CLEAR,
        risk_ppm=1,
        fields={"total": {"minor": number}},
        evidence={"scan_print": {"layout": f"{number}", "numbers": "", "times": []}},
    )


def told(bench: WorkerBench, *, fails: int = 0) -> list[ItemContext]:
    """Work a job of four items, the third without a print; return what was said of each on its last try."""
    failures = iter([StageFailed(ENGINE_OCR_UNAVAILABLE, stage="ocr")] * fails)

    def last() -> ItemOutcome:
        failed = next(failures, None)
        if failed is not None:
            raise failed
        return printed(4)

    bench.chain = ScriptedChain({SCANS[0]: printed(1), SCANS[1]: printed(2), SCANS[3]: last})
    job_id = bench.accept(items=4)
    bench.work_until_closed(job_id)
    assert bench.job(job_id)["terminal_class"] == "complete"
    accepted_at = bench.job(job_id)["submitted_at"]
    circumstances = [bench.chain.circumstances[scan] for scan in SCANS]
    assert {one.accepted_at for one in circumstances} == {accepted_at}
    return circumstances


@pytest.mark.parametrize("fails", [0, 1])
def test_an_item_is_told_of_the_prints_before_it_on_the_first_try_and_after_it_was_lost(
    ledger: Ledger, clock: FakeClock, tmp_path: Path, fails: int
) -> None:
    bench = WorkerBench(ledger, FailingObjects(LocalObjectStore(tmp_path / "objects")), clock)
    seen = [[item.fields["total"]["minor"] for item in one.earlier] for one in told(bench, fails=fails)]
    assert seen == [[], [1], [1, 2], [1, 2]]
