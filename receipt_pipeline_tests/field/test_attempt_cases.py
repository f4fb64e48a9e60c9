"""The public cases about attempts and identities: 02, 12 and 13."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.items import Decision, ItemOutcome
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE
from receipt_pipeline.intake.retry import retry_unresolved
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.failures import lose_lease
from receipt_pipeline.ledger.rows import ItemRow
from receipt_pipeline_tests.builders import RELEASE, TENANT, approve
from receipt_pipeline_tests.fakes.failing_objects import PutFault
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain, scripted_outcome
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan
from receipt_pipeline_tests.field.cases import CaseHouse, balance, case, manifest_of, submit_case
from receipt_pipeline_tests.intake_home import job_rows

pytestmark = pytest.mark.field


class Killed(BaseException):
    """Ends a worker without any of its tidying, as far as the ledger can see."""


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> CaseHouse:
    return CaseHouse.build(ledger, clock, tmp_path)


def take_lease_away(house: CaseHouse, job_id: str) -> None:
    house.clock.advance(house.bench.limits.work.lease_ttl_s)
    epoch = house.bench.job(job_id)["lease_epoch"]
    with house.ledger.transaction() as tx:
        assert lose_lease(tx, job_id=job_id, seen_epoch=epoch, limits=house.bench.limits)


@pytest.mark.requirement("R075", "R078")
def test_case_02_a_failed_job_answers_its_resubmission_and_is_accepted_once(house: CaseHouse, shared: Path) -> None:
    folder = case(shared, "02")
    (job_id,) = house.submit(folder)
    pins = {name: house.bench.job(job_id)[name] for name in Pins.__slots__}
    house.bench.objects.put_faults = deque([PutFault.REFUSED] * 10)
    house.work_off()
    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == (
        "failed",
        "dependency_failed",
        "UPLOAD.FAILED.v1",
    )
    tried = [(row["outcome"], row["reason_code"]) for row in house.bench.attempts(job_id)]
    assert tried == [("failed", "UPLOAD.FAILED.v1")] * 3
    assert len(house.bench.chain.asked) == 1
    answer = submit_case(house.intake, manifest_of(folder), folder)
    (line,) = answer.lines
    assert line.acceptance is not None
    assert (line.outcome.value, line.acceptance.job_id) == ("joined", job_id)
    assert [row["job_id"] for row in job_rows(house.ledger)] == [job_id]
    assert {name: house.bench.job(job_id)[name] for name in Pins.__slots__} == pins
    report = house.report()
    assert balance(report) == {"accepted": 1, "failed": 1}
    assert (report["retried"], report["attempts"]["failed"]) == (1, 3)


@pytest.mark.requirement("R077")
def test_case_02_an_operator_drives_it_again_as_a_child_under_the_same_identities(
    house: CaseHouse, shared: Path
) -> None:
    (job_id,) = house.submit(case(shared, "02"))
    house.bench.objects.put_faults = deque([PutFault.REFUSED] * 3)
    house.work_off()
    failed, tried = house.bench.job(job_id), house.bench.attempts(job_id)
    house.bench.objects.put_faults.clear()
    operator = Principal(TENANT, "operator", frozenset({Role.OPERATOR}))
    child_id = retry_unresolved(house.intake, job_id, principal=operator)["job_id"]
    assert retry_unresolved(house.intake, job_id, principal=operator)["job_id"] == child_id
    house.work_off()
    child = house.bench.job(child_id)
    assert (child["state"], child["parent_job_id"]) == ("succeeded", job_id)
    assert [child[name] for name in Pins.__slots__] == [failed[name] for name in Pins.__slots__]
    assert house.scans(child_id) == house.scans(job_id)
    assert (house.bench.attempts(job_id), len(tried)) == (tried, 3)
    assert house.bench.job(job_id)["state"] == "failed"
    house.assert_objects(child_id)
    assert house.tasks() == {child_id: 1}
    assert balance(house.report()) == {"accepted": 2, "succeeded": 1, "failed": 1}


@pytest.mark.requirement("R001", "R077")
def test_case_12_work_that_waited_while_the_alias_moved_is_done_under_what_was_submitted(
    house: CaseHouse, shared: Path
) -> None:
    approve(house.ledger, alias="current")
    folder = case(shared, "12")
    written = json.loads(manifest_of(folder))
    written |= {"release": "current", "note": [written.pop("model"), written.pop("policy", "")]}
    document = json.dumps(written).encode()
    answer = submit_case(house.intake, document, folder)
    job_ids = [line.acceptance.job_id for line in answer.lines if line.acceptance is not None]
    other = replace(RELEASE, risk_model_digest=digest_of("model B"), policy_revision=digest_of("policy of later"))
    other_id = approve(house.ledger, other, name="2026-12", alias="current")
    failures = deque([StageFailed(ENGINE_OCR_UNAVAILABLE)])
    first = house.scans(job_ids[0])[0]

    def answer_once() -> ItemOutcome:
        if failures:
            raise failures.popleft()
        return scripted_outcome(first)

    house.bench.chain = ScriptedChain(answers={first: answer_once})
    house.work_off()
    assert [row["outcome"] for row in house.bench.attempts(job_ids[0])] == ["failed", "committed"]
    for job_id in job_ids:
        pins = house.bench.result(job_id).pins
        assert (pins.risk_model_digest, pins.policy_revision) == (RELEASE.risk_model_digest, RELEASE.policy_revision)
    later = document.replace(b"rcpt-12", b"later-12")
    moved = [line.acceptance for line in submit_case(house.intake, later, folder).lines]
    assert {acceptance.pins.release_id for acceptance in moved if acceptance} == {other_id}
    assert len(moved) == len(job_ids) == 3


@pytest.mark.requirement("R085")
def test_case_13_differing_outputs_of_two_attempts_are_held_and_identical_ones_are_one(
    house: CaseHouse, shared: Path
) -> None:
    first, second = house.submit(case(shared, "13"))
    for job_id in (first, second):
        lost = [job_id]

        def act(data: bytes, lost: list[str] = lost) -> None:
            if lost:
                take_lease_away(house, lost.pop())

        house.bench.chain = ScriptedChain(on_classify=act)
        differs = job_id == first
        with ActingPlan({}, change=lambda outcome, d=differs: outcome.altered_for_drill() if d else outcome):
            house.bench.work(job_id)
        house.clock.advance(PAST_RETRY_S)
        house.bench.work(job_id, worker=house.bench.worker("worker-b"))
    house.reconciling.finish_effects()
    held = house.bench.job(first)
    assert (held["state"], held["phase"], held["result_key"]) == ("running", "quarantined", None)
    (row,) = house.bench.quarantines(first)
    assert len({entry["digest"] for entry in row["digests"]}) == 2
    assert both_outputs(house, first, row["digests"]) == {entry["digest"] for entry in row["digests"]}
    (question,) = house.bench.investigations(first)
    assert (question["kind"], question["owner"], question["state"]) == ("divergent_output", "operations", "open")
    assert house.bench.job(second)["state"] == "succeeded"
    assert [row["outcome"] for row in house.bench.attempts(second)] == ["lost", "committed"]
    assert house.bench.quarantines(second) == []
    assert house.tasks() == {second: 1}
    report = house.report()
    assert balance(report) == {"accepted": 2, "succeeded": 1, "unresolved": 1}
    assert (report["missing_terminal"], report["divergent"]) == ([first], [first])
    assert (report["state"], report["gate"]) == ("investigate", "pass")


def both_outputs(house: CaseHouse, job_id: str, digests: list[dict[str, Any]]) -> set[str]:
    [item] = house.bench.items(job_id)
    [refused] = [entry["object_key"] for entry in digests if entry["source"] == "refused checkpoint"]
    kept = json.loads(house.bench.objects.read(refused))
    outcomes = (ItemOutcome.from_document(kept), ItemRow.from_row(item).outcome)
    assert {outcome.decision for outcome in outcomes} == set(Decision)
    return {outcome.outcome_digest for outcome in outcomes}


def test_case_13_an_output_whose_report_was_lost_is_published_and_not_computed_again(
    house: CaseHouse, shared: Path
) -> None:
    first, _ = house.submit(case(shared, "13"))

    def die() -> None:
        raise Killed

    with ActingPlan({"read_back.after": die}), pytest.raises(Killed):
        house.bench.work(first)
    stored = house.bench.stored_results(first)
    # Another score is not even asked for: what the checkpoint holds is what the second attempt publishes.
    with ActingPlan({}, change=lambda outcome: outcome.altered_for_drill()):
        house.work_off()
    assert house.bench.stored_results(first) == stored == [house.bench.job(first)["result_key"]]
    assert house.bench.chain.asked.count(house.scans(first)[0]) == 1
    assert [row["outcome"] for row in house.bench.attempts(first)] == ["lost", "committed"]
    assert house.bench.quarantines(first) == []
