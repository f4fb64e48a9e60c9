"""An identical item keeps an earlier decision only where that one had the tasks that are asked for now."""

from __future__ import annotations

import pytest

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline_tests.fakes.worker_bench import WorkerBench

NONE, BEST_EFFORT, REQUIRED = EffectDemand.NONE, EffectDemand.BEST_EFFORT, EffectDemand.REQUIRED


@pytest.mark.parametrize(
    ("earlier", "later", "item_class"),
    [
        (NONE, REQUIRED, "classified"),
        (NONE, BEST_EFFORT, "classified"),
        (NONE, NONE, "unchanged"),
        (REQUIRED, NONE, "unchanged"),
        (BEST_EFFORT, REQUIRED, "unchanged"),
    ],
)
def test_a_decision_without_tasks_is_not_kept_for_a_job_that_asks_for_them(
    bench: WorkerBench, earlier: EffectDemand, later: EffectDemand, item_class: str
) -> None:
    bench.work(bench.accept(content="same", key="key-1", review_tasks=earlier))
    again = bench.accept(content="same", key="key-2", review_tasks=later)
    bench.work(again)
    (item,) = bench.items(again)
    assert item["item_class"] == item_class
    # What is computed once more goes to a person: its bytes were handed in before.
    assert bench.chain.duplicates.get(b"same/1") is (item_class == "classified")
