"""Publication: no success without a verified object, no second blind upload, bounded attempts."""

from __future__ import annotations

from collections import deque

import pytest

from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline_tests.fakes.failing_objects import PutFault
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, WorkerBench


def refuse_uploads(bench: WorkerBench, times: int) -> None:
    bench.objects.put_faults = deque([PutFault.REFUSED] * times)


@pytest.mark.requirement("R075", "R077", "R108", "R109")
def test_a_failed_upload_is_tried_again_under_the_same_pins_without_the_model(bench: WorkerBench) -> None:
    refuse_uploads(bench, 1)
    job_id = bench.accept(items=2)
    [line] = bench.work(job_id)
    before = bench.job(job_id)
    assert (line.outcome, line.state, line.phase) == ("attempt_failed", "running", "retry_wait")
    assert (before["attempts_spent"], before["result_key"]) == (1, None)
    assert [effect["state"] for effect in bench.effects(job_id)] == ["failed"]
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    after = bench.job(job_id)
    assert after["state"] == "succeeded"
    pinned = ("release_id", "image_digest", "chain_revision", "risk_model_digest", "policy_revision")
    assert [after[name] for name in pinned] == [before[name] for name in pinned]
    assert bench.result(job_id).pins.release_id == before["release_id"]
    assert bench.chain.asked == bench.scans(2)
    attempts = bench.attempts(job_id)
    assert [row["outcome"] for row in attempts] == ["failed", "committed"]
    assert [row["invocations"] for row in attempts] == [2, 0]
    assert attempts[0]["reason_code"] == "UPLOAD.FAILED.v1"


@pytest.mark.requirement("R078")
@pytest.mark.parametrize("max_attempts", [1, 3])
def test_uploads_that_always_fail_end_after_the_last_attempt_allowed(bench: WorkerBench, max_attempts: int) -> None:
    refuse_uploads(bench, 100)
    job_id = bench.accept(items=2, limits=LimitsRequest(max_attempts=max_attempts))
    rounds = bench.work_until_closed(job_id)
    job = bench.job(job_id)
    assert rounds == len(bench.attempts(job_id)) == job["attempts_spent"] == max_attempts
    assert (job["state"], job["terminal_class"], job["reason_code"]) == (
        "failed",
        "dependency_failed",
        "UPLOAD.FAILED.v1",
    )
    assert bench.chain.asked == bench.scans(2)
    assert len(bench.objects.puts) == max_attempts
    assert bench.stored_results(job_id) == []
    bench.clock.advance(PAST_RETRY_S)
    assert [line.outcome for line in bench.work(job_id)] == ["claim_refused"]
    assert len(bench.attempts(job_id)) == max_attempts


@pytest.mark.requirement("R092", "R091", "R108")
def test_an_upload_whose_answer_was_lost_is_looked_up_and_never_sent_twice(bench: WorkerBench) -> None:
    bench.objects.put_faults = deque([PutFault.ANSWER_LOST])
    job_id = bench.accept(items=1)
    bench.work(job_id)
    assert bench.job(job_id)["state"] == "succeeded"
    assert len(bench.objects.puts) == 1
    assert bench.job(job_id)["attempts_spent"] == 0
    assert bench.result(job_id).job_id == job_id


@pytest.mark.requirement("R069", "R092", "R091")
def test_an_unknown_upload_is_looked_up_by_the_next_attempt_and_published_under_its_own_key(bench: WorkerBench) -> None:
    bench.objects.put_faults = deque([PutFault.ANSWER_LOST])
    bench.objects.blind_lookups = 1
    job_id = bench.accept(items=1)
    [line] = bench.work(job_id)
    assert (line.outcome, line.state) == ("attempt_failed", "running")
    [effect] = bench.effects(job_id)
    assert (effect["state"], effect["reason_code"]) == ("unknown", "UPLOAD.UNKNOWN.v1")
    assert bench.attempts(job_id)[0]["failure_class"] == "ambiguous_upload"
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    assert len(bench.objects.puts) == 1
    assert bench.job(job_id)["result_key"] == effect["idempotency_key"]
    assert [row["state"] for row in bench.effects(job_id)] == ["committed"]
    assert bench.stored_results(job_id) == [effect["idempotency_key"]]


@pytest.mark.requirement("R104")
def test_an_upload_that_stays_unknown_holds_the_job_with_an_owner(bench: WorkerBench) -> None:
    bench.objects.put_faults = deque([PutFault.ANSWER_LOST])
    bench.objects.blind_lookups = 100
    job_id = bench.accept(items=1)
    for _ in range(5):
        bench.work(job_id)
        bench.clock.advance(PAST_RETRY_S)
    job = bench.job(job_id)
    assert (job["state"], job["phase"]) == ("running", "reconciling")
    assert len(bench.attempts(job_id)) == job["max_attempts"]
    assert len(bench.objects.puts) == 1
    [question] = bench.investigations(job_id)
    assert (question["kind"], question["owner"], question["state"]) == ("unknown_effect", "operations", "open")


@pytest.mark.requirement("R091", "R100")
def test_bytes_that_read_back_otherwise_are_never_a_success(bench: WorkerBench) -> None:
    bench.objects.put_faults = deque([PutFault.GARBLED])
    job_id = bench.accept(items=1)
    [line] = bench.work(job_id)
    assert (line.outcome, line.state) == ("attempt_failed", "running")
    [effect] = bench.effects(job_id)
    assert (effect["state"], effect["reason_code"]) == ("failed", "RESULT.MISMATCH.v1")
    assert bench.attempts(job_id)[0]["reason_code"] == "RESULT.MISMATCH.v1"
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    job = bench.job(job_id)
    assert job["state"] == "succeeded"
    assert job["result_key"] != effect["idempotency_key"]
    assert bench.result(job_id).digest == job["result_digest"]
    assert len(bench.stored_results(job_id)) == 2


@pytest.mark.requirement("R100")
def test_checksums_that_fail_every_time_end_as_a_failed_dependency(bench: WorkerBench) -> None:
    bench.objects.put_faults = deque([PutFault.GARBLED] * 100)
    job_id = bench.accept(items=1)
    bench.work_until_closed(job_id)
    job = bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == (
        "failed",
        "dependency_failed",
        "RESULT.MISMATCH.v1",
    )
    assert len(bench.attempts(job_id)) == job["max_attempts"]
    assert bench.chain.asked == bench.scans(1)
