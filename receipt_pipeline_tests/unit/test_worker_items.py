"""The worker takes a job from its claim to a verified result, under the pins and bytes of acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.errors import IdentityMismatch, LedgerUnavailable, StageFailed
from receipt_pipeline.core.items import Decision, ItemClass, ItemOutcome
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.pins import Pins, decision_id
from receipt_pipeline.core.reasons import (
    ENGINE_OCR_UNAVAILABLE,
    IDENTITY_MISMATCH,
    IDENTITY_MISSING,
    LEDGER_UNAVAILABLE,
    Reason,
)
from receipt_pipeline.ledger.releases import retire_release
from receipt_pipeline_tests.builders import RELEASE, claimed
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain, scripted_outcome
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan, WorkerBench

REJECTION = ItemOutcome(item_class=ItemClass.REJECTED, reason_code="SCAN.BROKEN.v1")


@pytest.mark.requirement("R039", "R093")
def test_a_job_ends_with_a_verified_result_that_restates_its_pins(bench: WorkerBench) -> None:
    job_id = bench.accept(items=3)
    [line] = bench.work(job_id)
    assert (line.outcome, line.state, line.terminal_class, line.items_done) == ("closed", "succeeded", "complete", 3)
    job, document = bench.job(job_id), bench.result(job_id)
    assert document.pins == Pins(**{name: job[name] for name in Pins.__slots__}) == RELEASE.pins()
    assert document.job_id == job_id
    for item, row, scan in zip(document.items, bench.items(job_id), bench.scans(3), strict=True):
        assert (item.item_id, item.sha256, item.decision_id) == (row["item_id"], row["sha256"], row["decision_id"])
        assert item.decision_id == decision_id(job_id=job_id, item_id=item.item_id, pins=RELEASE.pins())
        assert item.outcome == scripted_outcome(scan)
        assert item.outcome_digest == row["outcome_digest"] == scripted_outcome(scan).outcome_digest
    assert [effect["state"] for effect in bench.effects(job_id)] == ["committed"]
    assert [message["payload"]["result_digest"] for message in bench.messages(job_id)] == [job["result_digest"]]
    assert bench.stored_results(job_id) == [job["result_key"]]


def test_an_attempt_keeps_its_facts_and_the_result_none_of_them(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    bench.work(job_id)
    [attempt] = bench.attempts(job_id)
    facts = attempt["facts"]
    assert set(facts["item_seconds"]) == {"0", "1"}
    assert facts["cpu_s"] >= 0
    assert facts["threads"] >= 1
    assert facts["libraries"]["onnxruntime"]
    assert {"clock_skew_s", "cpu_model", "seconds"} <= set(facts)
    assert (attempt["invocations"], attempt["outcome"]) == (2, "committed")
    stored = bench.objects.read(bench.job(job_id)["result_key"])
    assert b"cpu" not in stored
    assert b"epoch" not in stored


def test_equal_scans_and_outcomes_of_one_job_make_equal_bytes(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    bench.work(job_id)
    document = bench.result(job_id)
    assert document.encode() == bench.objects.read(bench.job(job_id)["result_key"])
    assert document.digest == bench.job(job_id)["result_digest"]


def test_a_rejected_scan_leaves_its_siblings_and_makes_the_job_partial(bench: WorkerBench) -> None:
    bad, _ = bench.scans(2)
    bench.chain = ScriptedChain(answers={bad: REJECTION})
    job_id = bench.accept(items=2)
    [line] = bench.work(job_id)
    assert (line.state, line.terminal_class) == ("succeeded", "partial")
    assert [item.outcome.reason_code for item in bench.result(job_id).items] == ["SCAN.BROKEN.v1", ""]


def test_a_job_of_rejected_scans_only_closes_without_an_object(bench: WorkerBench) -> None:
    bench.chain = ScriptedChain(answers=dict.fromkeys(bench.scans(2), REJECTION))
    job_id = bench.accept(items=2)
    [line] = bench.work(job_id)
    assert (line.state, line.terminal_class, line.reason) == ("failed", "rejected", "ITEMS.ALL_REJECTED.v1")
    assert bench.stored_results(job_id) == []
    assert bench.effects(job_id) == []
    assert bench.job(job_id)["attempts_spent"] == 0


@pytest.mark.requirement("R034", "R108")
def test_a_scan_that_is_gone_rejects_its_item_only(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    bench.objects.inner.delete(bench.scan_key(bench.scans(2)[0]))
    bench.work(job_id)
    assert [row["reason_code"] for row in bench.items(job_id)] == ["INPUT.GONE.v1", ""]
    assert bench.chain.asked == bench.scans(2)[1:]
    assert bench.job(job_id)["terminal_class"] == "partial"
    assert bench.job(job_id)["attempts_spent"] == 0


@pytest.mark.requirement("R033", "R035")
def test_a_scan_that_was_replaced_is_rejected_and_never_read_as_newer(bench: WorkerBench, tmp_path: Path) -> None:
    job_id = bench.accept(items=2)
    key = bench.scan_key(bench.scans(2)[1])
    (tmp_path / "objects" / key).write_bytes(b"a newer scan")
    bench.work(job_id)
    assert [row["reason_code"] for row in bench.items(job_id)] == ["", "INPUT.CHANGED.v1"]
    assert b"a newer scan" not in bench.chain.asked
    assert [row["invocations"] for row in bench.items(job_id)] == [1, 0]


def test_a_scan_that_cannot_be_read_now_is_tried_again(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    bench.objects.unreadable.add(bench.scan_key(bench.scans(1)[0]))
    [line] = bench.work(job_id)
    assert (line.outcome, line.state, line.phase) == ("attempt_failed", "running", "retry_wait")
    assert bench.attempts(job_id)[0]["reason_code"] == "OBJECT.UNREADABLE.v1"
    bench.objects.unreadable.clear()
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    assert bench.job(job_id)["terminal_class"] == "complete"


def test_an_identical_item_keeps_the_earlier_decision_without_the_model(bench: WorkerBench) -> None:
    first = bench.accept(items=2, content="same", key="key-1")
    bench.work(first)
    second = bench.accept(items=2, content="same", key="key-2")
    bench.work(second)
    assert len(bench.chain.asked) == 2
    assert [row["item_class"] for row in bench.items(second)] == ["unchanged", "unchanged"]
    assert [row["invocations"] for row in bench.items(second)] == [0, 0]
    earlier, kept = bench.result(first).items, bench.result(second).items
    assert [item.decision_id for item in kept] == [item.decision_id for item in earlier]
    assert {item.unchanged_from for item in kept} == {first}
    assert [item.outcome.decision for item in kept] == [Decision.CLEAR, Decision.CLEAR]
    assert [item.outcome.fields for item in kept] == [item.outcome.fields for item in earlier]
    assert bench.job(second)["terminal_class"] == "complete"


def test_equal_bytes_without_a_verified_earlier_object_are_computed_as_duplicates(bench: WorkerBench) -> None:
    first = bench.accept(items=1, content="same", key="key-1")
    bench.work(first)
    bench.objects.inner.delete(bench.job(first)["result_key"])
    second = bench.accept(items=1, content="same", key="key-2")
    bench.work(second)
    assert bench.chain.asked == bench.scans(1, "same") * 2
    assert bench.chain.duplicates == {b"same/1": True}
    assert bench.items(second)[0]["item_class"] == "classified"


@pytest.mark.requirement("R036", "R053", "R077")
def test_moving_the_alias_changes_neither_the_attempt_nor_its_retry(bench: WorkerBench) -> None:
    [scan] = bench.scans(1)
    bench.chain = ScriptedChain(answers={scan: StageFailed(ENGINE_OCR_UNAVAILABLE)})
    asked_for: list[Pins] = []

    def load(pins: Pins) -> ScriptedChain:
        asked_for.append(pins)
        return bench.chain

    job_id = bench.accept(items=1)
    other = bench.approve_other()
    bench.work(job_id, worker=bench.worker(chains=load))
    bench.chain = ScriptedChain()
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id, worker=bench.worker("worker-b", chains=load))
    assert other != RELEASE.release_id
    assert asked_for == [RELEASE.pins(), RELEASE.pins()]
    assert bench.result(job_id).pins == RELEASE.pins()
    assert len(bench.attempts(job_id)) == 2


def test_a_retired_release_closes_its_job_before_any_claim(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    with bench.ledger.transaction() as tx:
        retire_release(tx, release_id=RELEASE.release_id, retired_by="kim")
    [line] = bench.work(job_id)
    assert (line.outcome, line.state, line.terminal_class, line.reason) == (
        "closed",
        "failed",
        "identity_failed",
        "IDENTITY.RETIRED.v1",
    )
    assert bench.attempts(job_id) == []
    assert bench.chain.asked == []
    assert [row["state"] for row in bench.investigations(job_id)] == ["open"]


def test_a_finished_job_of_a_retired_release_is_still_published(bench: WorkerBench) -> None:
    job_id = bench.accept(items=1)
    bench.objects.blind_lookups = 1
    bench.work(job_id)
    with bench.ledger.transaction() as tx:
        retire_release(tx, release_id=RELEASE.release_id, retired_by="kim")
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    assert bench.job(job_id)["terminal_class"] == "complete"


def test_a_release_retired_after_a_worker_was_lost_closes_the_job(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    claimed(bench.ledger, job_id)
    with bench.ledger.transaction() as tx:
        retire_release(tx, release_id=RELEASE.release_id, retired_by="kim")
    assert bench.work(job_id)[0].outcome == "claim_refused", "its worker may still live"
    bench.clock.advance(PAST_RETRY_S)
    [line] = bench.work(job_id)
    assert (line.outcome, line.terminal_class) == ("closed", "identity_failed")
    assert [row["outcome"] for row in bench.attempts(job_id)] == ["lost"]


@pytest.mark.parametrize(
    ("artefact", "reason", "state"),
    [
        ("risk_model", IDENTITY_MISSING, "failed"),
        ("policy", IDENTITY_MISMATCH, "failed"),
        ("feature_contract", IDENTITY_MISMATCH, "failed"),
        ("feature_contract", IDENTITY_MISSING, "accepted"),
        ("image_digest", IDENTITY_MISMATCH, "accepted"),
        ("chain_revision", IDENTITY_MISSING, "accepted"),
    ],
)
def test_a_broken_artefact_fails_the_job_and_a_foreign_installation_leaves_it(
    bench: WorkerBench, artefact: str, reason: Reason, state: str
) -> None:
    def load(pins: Pins) -> ScriptedChain:
        raise IdentityMismatch(reason, artefact=artefact)

    job_id = bench.accept(items=1)
    [line] = bench.work(job_id, worker=bench.worker(chains=load))
    assert line.state == state
    assert line.outcome == ("closed" if state == "failed" else "not_carried")
    assert bench.attempts(job_id) == []
    if state == "failed":
        assert (line.terminal_class, line.reason) == ("identity_failed", reason.code)


@pytest.mark.requirement("R008")
def test_a_stage_that_is_no_longer_the_pinned_one_fails_the_job_without_output(bench: WorkerBench) -> None:
    _, swapped = bench.scans(2)
    bench.chain = ScriptedChain(answers={swapped: IdentityMismatch(IDENTITY_MISMATCH, artefact="stage ocr")})
    job_id = bench.accept(items=2)
    [line] = bench.work(job_id)
    assert (line.outcome, line.state, line.terminal_class) == ("attempt_failed", "failed", "identity_failed")
    assert bench.stored_results(job_id) == []
    assert bench.attempts(job_id)[0]["failure_class"] == "identity"
    assert bench.job(job_id)["attempts_spent"] == 0


@pytest.mark.requirement("R109", "R107")
def test_a_retry_begins_at_the_checkpoint_and_keeps_what_was_finished(bench: WorkerBench) -> None:
    scans = bench.scans(3)
    bench.chain = ScriptedChain(answers={scans[2]: StageFailed(ENGINE_OCR_UNAVAILABLE)})
    job_id = bench.accept(items=3)
    bench.work(job_id)
    before = bench.items(job_id)[:2]
    bench.chain = ScriptedChain()
    bench.clock.advance(PAST_RETRY_S)
    bench.work(job_id)
    assert bench.chain.asked == scans[2:]
    assert bench.items(job_id)[:2] == before
    assert [row["written_epoch"] for row in bench.items(job_id)] == [1, 1, 3]
    assert bench.job(job_id)["terminal_class"] == "complete"


@pytest.mark.requirement("R078", "R111")
def test_an_item_that_fails_every_time_is_isolated_and_its_siblings_finish(bench: WorkerBench) -> None:
    scans = bench.scans(3)
    bench.chain = ScriptedChain(answers={scans[1]: StageFailed(ENGINE_OCR_UNAVAILABLE)})
    job_id = bench.accept(items=3)
    rounds = bench.work_until_closed(job_id)
    assert bench.chain.asked.count(scans[1]) == bench.limits.work.item_losses_max
    assert rounds == len(bench.attempts(job_id)) == bench.limits.work.item_losses_max + 1
    assert [row["item_class"] for row in bench.items(job_id)] == ["classified", "unresolved", "classified"]
    assert bench.job(job_id)["terminal_class"] == "partial"
    assert bench.job(job_id)["attempts_spent"] == 0
    [question] = bench.investigations(job_id)
    assert question["evidence"]["item_ids"] == ["r-002"]
    assert (question["owner"], question["reason_code"]) == ("operations", "ENGINE.OCR_UNAVAILABLE.v1")
    assert question["suspected_effect"]
    assert question["allowed_repair"]
    assert question["last_safe_checkpoint"] == 1


def test_a_job_whose_only_item_never_came_to_an_outcome_says_so(bench: WorkerBench) -> None:
    [scan] = bench.scans(1)
    bench.chain = ScriptedChain(answers={scan: StageFailed(ENGINE_OCR_UNAVAILABLE)})
    job_id = bench.accept(items=1)
    bench.work_until_closed(job_id)
    job = bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == (
        "failed",
        "attempts_exhausted",
        "ENGINE.OCR_UNAVAILABLE.v1",
    )
    assert bench.stored_results(job_id) == []


def test_a_worker_that_reaches_its_slice_yields_and_the_next_goes_on(bench: WorkerBench) -> None:
    bench.limits = Limits().replace(heartbeat_s=3600, wave_slice_s=10)
    first = bench.accept(items=3, key="key-1")
    second = bench.accept(items=1, key="key-2")
    worker = bench.worker(monotonic=lambda: 6.0 * len(bench.chain.asked))
    lines = bench.work(first, second, worker=worker)
    assert [(line.outcome, line.items_done) for line in lines] == [("yielded", 2), ("left", 0)]
    assert bench.job(first)["phase"] == "queued"
    assert bench.job(second)["state"] == "accepted"
    bench.work(first)
    assert bench.chain.asked == bench.scans(3)
    assert [row["outcome"] for row in bench.attempts(first)] == ["yielded", "committed"]
    assert bench.job(first)["attempts_spent"] == 0


def test_a_worker_that_is_asked_to_stop_yields_at_the_boundary(bench: WorkerBench) -> None:
    job_id = bench.accept(items=3)
    worker = bench.worker(stop_asked=lambda: len(bench.chain.asked) == 2)
    [line] = bench.work(job_id, worker=worker)
    assert (line.outcome, line.items_done, line.phase) == ("yielded", 2, "queued")
    assert [row["begun_epoch"] for row in bench.items(job_id)] == [1, 1, None]
    assert bench.job(job_id)["checkpoint"] == 2


def test_a_defect_costs_one_job_its_attempt_and_is_raised_after_its_siblings(bench: WorkerBench) -> None:
    [scan] = bench.scans(1, "key-1")
    bench.chain = ScriptedChain(answers={scan: ZeroDivisionError("a defect")})
    broken, sound = bench.accept(key="key-1"), bench.accept(key="key-2")
    with pytest.raises(ZeroDivisionError) as raised:
        bench.work(broken, sound)
    assert bench.job(sound)["state"] == "succeeded"
    assert bench.job(broken)["phase"] == "retry_wait"
    assert bench.items(broken)[0]["losses"] == 1
    assert any(sound in note for note in raised.value.__notes__)


def test_a_ledger_that_is_away_is_raised_at_the_end(bench: WorkerBench) -> None:
    def away() -> None:
        raise LedgerUnavailable(LEDGER_UNAVAILABLE)

    broken, sound = bench.accept(key="key-1"), bench.accept(key="key-2")
    actions: dict[str, Any] = {"model.after": lambda: away() if len(bench.chain.asked) == 1 else None}
    with ActingPlan(actions), pytest.raises(LedgerUnavailable) as raised:
        bench.work(broken, sound)
    assert raised.value.reason.code == "LEDGER.UNAVAILABLE.v1"
    assert bench.job(sound)["state"] == "succeeded"
    assert bench.items(broken)[0]["item_class"] is None


@pytest.mark.requirement("R046", "R052")
def test_a_job_that_waited_too_long_expires_without_the_model(bench: WorkerBench) -> None:
    job_id = bench.accept(items=2)
    bench.clock.advance(bench.job(job_id)["max_queue_age_s"] + 1)
    [line] = bench.work(job_id)
    assert (line.outcome, line.state, line.reason) == ("claim_refused", "expired", "QUEUE.AGE_REACHED.v1")
    assert bench.chain.asked == []
    assert bench.attempts(job_id) == []
