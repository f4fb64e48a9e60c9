"""Ownership: a live worker keeps its job, a stale one writes nothing, differing outputs are not served."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from receipt_pipeline.core.items import ItemClass, ItemOutcome
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.jobs.failures import lose_lease
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain, scripted_outcome
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan, WorkerBench

REJECTION = ItemOutcome(item_class=ItemClass.REJECTED, reason_code="SCAN.BROKEN.v1")


class Killed(BaseException):
    """Ends a worker without any of its tidying, as far as the ledger can see."""


def at_first(action: Callable[[], None]) -> Callable[..., None]:
    called: list[bool] = []

    def act(*_: Any) -> None:
        if not called:
            called.append(True)
            action()

    return act


def take_lease_away(bench: WorkerBench, job_id: str) -> None:
    bench.clock.advance(bench.limits.work.lease_ttl_s)
    with bench.ledger.transaction() as tx:
        epoch = bench.job(job_id)["lease_epoch"]
        assert lose_lease(tx, job_id=job_id, seen_epoch=epoch, limits=bench.limits)


def finish_elsewhere(bench: WorkerBench, job_id: str) -> None:
    take_lease_away(bench, job_id)
    bench.clock.advance(PAST_RETRY_S)
    other = bench.worker("worker-b", chains=lambda pins: ScriptedChain())
    bench.work(job_id, worker=other)


def state_of(bench: WorkerBench, job_id: str) -> list[Any]:
    job = {name: value for name, value in bench.job(job_id).items() if name != "latest_seq"}
    return [job, bench.items(job_id), bench.effects(job_id), bench.messages(job_id)]


@pytest.mark.requirement("R062", "R064", "R067")
def test_a_stale_worker_cannot_checkpoint_over_the_new_owner(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    left: list[Any] = []

    def lose() -> None:
        finish_elsewhere(bench, job_id)
        left.extend(state_of(bench, job_id))

    act = at_first(lose)
    bench.chain = ScriptedChain(on_classify=lambda data: act())
    [line] = bench.work(job_id)
    assert (line.outcome, line.items_done) == ("stood_down", 0)
    assert state_of(bench, job_id) == left
    attempts = bench.attempts(job_id)
    assert [(row["owner"], row["outcome"]) for row in attempts] == [("worker-a", "lost"), ("worker-b", "committed")]
    assert attempts[0]["lease_epoch"] < attempts[1]["lease_epoch"]
    [refused] = bench.refused(job_id)
    assert (refused["write_kind"], refused["ordinal"]) == ("checkpoint", 0)
    assert refused["digest"] == bench.items(job_id)[0]["outcome_digest"]
    assert bench.quarantines(job_id) == []


@pytest.mark.requirement("R065", "R066", "R067", "R069")
@pytest.mark.parametrize("place", ["intent.before", "upload.before", "read_back.before", "commit.before"])
def test_a_stale_worker_cannot_publish_or_close(bench: WorkerBench, place: str) -> None:
    job_id = bench.accept(items=1)
    left: list[Any] = []

    def lose() -> None:
        finish_elsewhere(bench, job_id)
        left.extend(state_of(bench, job_id))

    with ActingPlan({place: at_first(lose)}):
        [line] = bench.work(job_id)
    assert (line.outcome, line.state) == ("stood_down", "succeeded")
    assert state_of(bench, job_id) == left
    job = bench.job(job_id)
    assert bench.result(job_id).digest == job["result_digest"]
    [refused] = bench.refused(job_id)
    assert refused["write_kind"] == ("intent" if place == "intent.before" else "commit")
    assert refused["digest"] == job["result_digest"]
    states = {row["idempotency_key"]: row["state"] for row in bench.effects(job_id)}
    assert states.pop(job["result_key"]) == "committed"
    assert set(states.values()) <= {"abandoned"}
    assert set(bench.stored_results(job_id)) <= {job["result_key"], *states}
    assert len(bench.messages(job_id)) == 1
    if place in ("read_back.before", "commit.before"):
        assert len(bench.objects.puts) == 1, "the stored upload of the lost attempt is reused"


@pytest.mark.requirement("R066")
def test_a_stale_worker_cannot_close_a_job_without_result(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    bench.chain = ScriptedChain(answers={bench.scans(1)[0]: REJECTION})
    with ActingPlan({"commit.before": at_first(lambda: take_lease_away(bench, job_id))}):
        [line] = bench.work(job_id)
    assert (line.outcome, line.state) == ("stood_down", "running")
    assert [row["write_kind"] for row in bench.refused(job_id)] == ["close"]
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    assert bench.job(job_id)["terminal_class"] == "rejected"


def change_once(outcome: ItemOutcome) -> ItemOutcome:
    return replace(outcome, fields={"total": {"minor": 1, "currency": "EUR", "printed": "changed"}})


@pytest.mark.requirement("R085")
def test_a_late_different_output_of_a_closed_job_is_quarantined_and_not_served(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    act = at_first(lambda: finish_elsewhere(bench, job_id))
    bench.chain = ScriptedChain(on_classify=lambda data: act())
    changed: list[ItemOutcome] = []

    def change(outcome: ItemOutcome) -> ItemOutcome:
        # The other worker has closed the job by now; only what comes after it is changed.
        if bench.job(job_id)["terminal_at"] is None:
            return outcome
        changed.append(change_once(outcome))
        return changed[-1]

    with ActingPlan({}, change=change):
        [line] = bench.work(job_id)
    assert (line.outcome, line.state, line.terminal_class) == ("stood_down", "succeeded", "complete")
    [row] = bench.quarantines(job_id)
    kept = bench.items(job_id)[0]["outcome_digest"]
    assert {entry["digest"] for entry in row["digests"]} == {kept, changed[0].outcome_digest}
    assert (row["subject"], row["before_terminal"], row["state"]) == ("item:0", False, "open")
    assert [found["kind"] for found in bench.investigations(job_id)] == ["divergent_output"]
    assert bench.items(job_id)[0]["fields"] == scripted_outcome(bench.scans(1)[0]).fields


@pytest.mark.requirement("R085")
def test_a_different_output_of_a_lost_attempt_holds_the_job_before_it_publishes(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    act = at_first(lambda: take_lease_away(bench, job_id))
    bench.chain = ScriptedChain(on_classify=lambda data: act())
    with ActingPlan({}, change=change_once):
        [line] = bench.work(job_id)
    assert (line.outcome, line.state) == ("stood_down", "running")
    assert bench.quarantines(job_id) == []
    bench.clock.advance(PAST_RETRY_S)
    [line] = bench.work(job_id, worker=bench.worker("worker-b"))
    assert (line.outcome, line.state, line.phase) == ("quarantined", "running", "quarantined")
    [row] = bench.quarantines(job_id)
    assert len({entry["digest"] for entry in row["digests"]}) == 2
    assert row["before_terminal"]
    assert bench.stored_results(job_id) == []
    bench.clock.advance(PAST_RETRY_S)
    assert [line.outcome for line in bench.work(job_id)] == ["claim_refused"]
    assert bench.messages(job_id) == []


@pytest.mark.parametrize("limit", ["timeout", "cutoff"])
def test_a_limit_that_overtakes_the_worker_keeps_what_was_finished(bench: WorkerBench, limit: str) -> None:
    cutoff = bench.clock.now() + dt.timedelta(seconds=3600) if limit == "cutoff" else None
    job_id = bench.accept(items=3, cutoff=cutoff, limits=LimitsRequest(processing_timeout_s=3000))
    pause_s = 3600 if limit == "cutoff" else 3000

    def take_long(data: bytes) -> None:
        bench.clock.advance(pause_s)

    bench.chain = ScriptedChain(on_classify=take_long)
    [line] = bench.work(job_id)
    assert (line.outcome, line.state, line.terminal_class) == ("closed", "succeeded", "partial")
    assert line.reason == ("CUTOFF.REACHED.v1" if limit == "cutoff" else "PROCESSING.TIMEOUT.v1")
    assert [row["item_class"] for row in bench.items(job_id)] == ["classified", "expired", "expired"]
    assert [row["invocations"] for row in bench.items(job_id)] == [1, 0, 0]
    assert len(bench.result(job_id).items) == 3


@pytest.mark.requirement("R069", "R107")
def test_past_the_limit_a_closing_attempt_publishes_what_a_lost_one_had_finished(bench: WorkerBench) -> None:
    job_id = bench.accept(items=3)
    scans = bench.scans(3)

    def die() -> ItemOutcome:
        raise Killed

    bench.chain = ScriptedChain(answers={scans[1]: die})
    with pytest.raises(Killed):
        bench.work(job_id)
    bench.clock.advance(bench.job(job_id)["processing_timeout_s"])
    bench.chain = ScriptedChain()
    bench.work_until_closed(job_id)
    assert bench.chain.asked == []
    assert [row["item_class"] for row in bench.items(job_id)] == ["classified", "unresolved", "expired"]
    assert [row["reason_code"] for row in bench.items(job_id)] == ["", "ITEM.OVERTAKEN.v1", "ITEM.OVERTAKEN.v1"]
    assert [row["kind"] for row in bench.attempts(job_id)] == ["work", "closing"]
    job = bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["attempts_spent"]) == ("succeeded", "partial", 0)
    assert bench.result(job_id).counts[ItemClass.CLASSIFIED] == 1
    assert [row["kind"] for row in bench.investigations(job_id)] == ["unresolved_items"]


def test_a_limit_with_nothing_finished_closes_the_job_as_timed_out(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)

    def wait_too_long() -> None:
        bench.clock.advance(bench.job(job_id)["processing_timeout_s"])

    with ActingPlan({"begin.before": at_first(wait_too_long)}):
        [line] = bench.work(job_id)
    assert (line.state, line.terminal_class, line.reason) == ("failed", "timed_out", "PROCESSING.TIMEOUT.v1")
    assert bench.chain.asked == []
    assert bench.stored_results(job_id) == []
