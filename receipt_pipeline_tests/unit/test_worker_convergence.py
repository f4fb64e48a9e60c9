"""Whatever goes wrong on the way, the items come to the same rows, and each effect is there once."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.items import ItemOutcome
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline_tests.builders import an_outcome, claimed
from receipt_pipeline_tests.fakes.failing_objects import PutFault
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.fakes.worker_bench import WorkerBench

CONTENT = "same"
MISHAPS = ("none", "refused", "answer_lost", "unknown", "garbled", "stage_failed", "worker_lost", "yielded")


class Killed(BaseException):
    """Ends a worker without any of its tidying, as far as the ledger can see."""


def first_try(bench: WorkerBench, job_id: str, mishap: str) -> None:
    second = bench.scans(2, CONTENT)[1]

    def die() -> ItemOutcome:
        raise Killed

    answers: dict[str, Any] = {"stage_failed": StageFailed(ENGINE_OCR_UNAVAILABLE), "worker_lost": die}
    bench.chain = ScriptedChain(answers={second: answers[mishap]} if mishap in answers else {})
    faults = {"refused": PutFault.REFUSED, "garbled": PutFault.GARBLED}
    faults |= dict.fromkeys(("answer_lost", "unknown"), PutFault.ANSWER_LOST)
    bench.objects.put_faults = deque([faults.get(mishap)])
    bench.objects.blind_lookups = 1 if mishap == "unknown" else 0
    worker = bench.worker(stop_asked=lambda: mishap == "yielded" and len(bench.chain.asked) == 1)
    if mishap == "worker_lost":
        with pytest.raises(Killed):
            bench.work(job_id, worker=worker)
    else:
        bench.work(job_id, worker=worker)
    bench.chain = ScriptedChain()
    bench.objects.put_faults.clear()


def item_ledger(bench: WorkerBench, job_id: str) -> str:
    told = ("ordinal", "item_id", "item_class", "decision", "risk_ppm", "fields", "outcome_digest")
    return digest_of([[row[name] for name in told] for row in bench.items(job_id)])


@pytest.mark.requirement("R113")
def test_every_failure_class_converges_to_the_same_items_and_single_effects(bench: WorkerBench) -> None:
    ledgers = set()
    for mishap in MISHAPS:
        # Each its own tenant: what another tenant has submitted is evidence of nothing.
        job_id = bench.accept(items=2, content=CONTENT, key="key-1", tenant=mishap.replace("_", "-"))
        first_try(bench, job_id, mishap)
        if bench.job(job_id)["terminal_at"] is None:
            bench.clock.advance(40)
            bench.work_until_closed(job_id)
        ledgers.add(item_ledger(bench, job_id))
        assert bench.job(job_id)["terminal_class"] == "complete", mishap
        assert bench.result(job_id).digest == bench.job(job_id)["result_digest"]
        assert [row["state"] for row in bench.effects(job_id)].count("committed") == 1, mishap
        for kind in ("review_tasks", "notification"):
            assert [row["idempotency_key"] for row in bench.effects(job_id, kind)] == [f"{job_id}:{kind}"]
        assert len(bench.messages(job_id)) == 1
    assert len(ledgers) == 1


@pytest.mark.requirement("R110")
def test_an_item_boundary_passed_twice_leaves_the_same_ledger(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    job = claimed(bench.ledger, job_id)
    finished = FinishedItem(ordinal=0, outcome=an_outcome(), invocations=1)
    seen = []
    for _ in range(2):
        with bench.ledger.transaction() as tx:
            write_checkpoint(tx, job.token, finished=finished, next_ordinal=1, limits=bench.limits)
        seen.append((bench.job(job_id), bench.items(job_id), bench.attempts(job_id)))
    assert seen[0] == seen[1]


@pytest.mark.requirement("R110")
def test_a_job_handed_to_a_worker_again_after_its_end_stays_as_it_is(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    bench.work(job_id)
    before = (bench.job(job_id), bench.items(job_id), bench.attempts(job_id), bench.effects(job_id))
    [line] = bench.work(job_id, worker=bench.worker("worker-b"))
    assert line.outcome == "claim_refused"
    assert (bench.job(job_id), bench.items(job_id), bench.attempts(job_id), bench.effects(job_id)) == before
    assert len(bench.chain.asked) == 2
