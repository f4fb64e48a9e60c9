"""A person's answer settles a question only when the fact has changed, or the result is given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.report import report_document
from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.reasons import UPLOAD_UNKNOWN
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.effects.results import read_result
from receipt_pipeline.ledger.investigations import resolve_investigation
from receipt_pipeline.ledger.jobs.failures import fail_attempt
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline.reconciliation.repair import decide_investigation, reconcile
from receipt_pipeline_tests.builders import TENANT, claimed, finish_items
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_nothing_left


def gate(house: ReconcileBench) -> str:
    accountant = Accountant(house.ledger, report_root=house.folder / "report", limits=house.limits)
    return str(report_document(accountant)["gate"])


def break_object(house: ReconcileBench, key: str, how: str) -> tuple[Path, bytes]:
    path = house.path(key)
    kept = path.read_bytes()
    path.unlink()
    if how == "altered":
        path.write_bytes(kept.replace(b"clear", b"CLEAR", 1))
    reconcile(house.services)
    return path, kept


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_a_note_does_not_settle_what_is_still_missing_or_altered(house: ReconcileBench, how: str) -> None:
    job = house.finished(key="one")
    path, kept = break_object(house, job["result_key"], how)
    (question,) = house.investigations()
    with pytest.raises(NotAllowed) as refused:
        decide_investigation(house.services, question["investigation_id"], note="it is fine", actor="kim")
    assert refused.value.reason.code == "INVESTIGATION.FACT_STANDS.v1"
    assert house.investigations() == [question]
    assert gate(house) == "pass", "the question is owned, inside its deadline"

    path.write_bytes(kept)
    # The object is looked at again for this very answer; no sweep has to come first.
    decide_investigation(house.services, question["investigation_id"], note="restored", actor="kim")
    assert (house.investigations(), house.red_checks(), gate(house)) == ([], set(), "pass")
    (answered,) = house.investigations(only_open=False)
    assert (answered["resolution"], answered["resolved_by"]) == ("restored", "kim")


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_a_fact_that_a_word_has_passed_over_fails_the_gate_and_is_asked_again(house: ReconcileBench, how: str) -> None:
    job = house.finished(key="one")
    break_object(house, job["result_key"], how)
    (question,) = house.investigations()
    with house.ledger.transaction() as tx:  # As an earlier version would have recorded it.
        resolve_investigation(tx, question["investigation_id"], resolution="it is fine", actor="kim")
    assert gate(house) == "fail"
    reconcile(house.services)
    (again,) = house.investigations()
    assert again["subject"] == f"{question['subject']}#2"
    assert gate(house) == "pass"
    assert_nothing_left(house)


def test_a_lost_result_can_be_given_up_and_is_then_served_to_nobody(house: ReconcileBench) -> None:
    job = house.finished(key="one")
    path, _ = break_object(house, job["result_key"], "altered")
    (question,) = house.investigations()
    for _ in range(2):
        decide_investigation(
            house.services, question["investigation_id"], note="no backup has it", actor="kim", withdraw=True
        )
    assert path.exists(), "the altered bytes stay where they are, for whoever wants to compare"
    assert house.bench.job(job["job_id"])["state"] == "succeeded"
    with pytest.raises(NotAllowed) as refused:
        read_result(house.effects, job["job_id"], tenant=TENANT)
    assert refused.value.reason.code == "RESULT.WITHDRAWN.v1"
    with house.ledger.reading() as tx:
        status = read_status(tx, job["job_id"])
    assert status["result"]["verified"] is False
    assert status["next_action"] == "submit_the_scans_again_under_a_new_key"
    assert (house.investigations(), gate(house), house.red_checks()) == ([], "pass", set())
    reconcile(house.services)
    assert_nothing_left(house)


def test_a_result_given_up_before_its_tasks_were_made_never_gets_any(house: ReconcileBench) -> None:
    job = house.succeeded(key="one")
    break_object(house, job["result_key"], "missing")
    (question,) = [row for row in house.investigations() if row["kind"] == "missing_object"]
    decide_investigation(house.services, question["investigation_id"], note="", actor="kim", withdraw=True)
    house.finish_effects()
    reconcile(house.services)
    assert [row["state"] for row in house.bench.effects(job["job_id"], "review_tasks")] == ["abandoned"]
    assert house.bench.job(job["job_id"])["settled_at"] is not None
    assert house.investigations() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE effects SET state = 'abandoned' WHERE job_id = :job AND kind = 'review_tasks'",
        "UPDATE jobs SET items_requested = items_requested + 1 WHERE job_id = :job",
    ],
    ids=["effect gap", "unbalanced items"],
)
def test_no_note_settles_a_gap_or_an_imbalance_and_the_gate_stays_red_while_it_stands(
    house: ReconcileBench, statement: str
) -> None:
    job = house.finished(key="one")
    house.edit(statement, job=job["job_id"])
    assert gate(house) == "fail", "nobody was asked yet"
    reconcile(house.services)
    (question,) = house.investigations()
    with pytest.raises(NotAllowed) as refused:
        decide_investigation(house.services, question["investigation_id"], note="it is fine", actor="kim")
    assert refused.value.reason.code == "INVESTIGATION.FACT_STANDS.v1"
    assert gate(house) == "pass", "the question is owned, inside its deadline"
    with house.ledger.transaction() as tx:
        resolve_investigation(tx, question["investigation_id"], resolution="it is fine", actor="kim")
    assert gate(house) == "fail", "the word is recorded and the fact stands"
    reconcile(house.services)
    (again,) = house.investigations()
    assert again["subject"] == f"{question['subject']}#2"
    assert gate(house) == "pass"


def test_a_notification_that_was_given_up_is_settled_by_a_decision(house: ReconcileBench, clock: FakeClock) -> None:
    job = house.finished(key="one")
    house.edit("UPDATE deliveries SET outcome = 'failed' WHERE job_id = :job", job=job["job_id"])
    house.edit("UPDATE outbox SET state = 'abandoned' WHERE job_id = :job", job=job["job_id"])
    house.edit(
        "UPDATE effects SET state = 'failed', required = (1 = 1) WHERE job_id = :job AND kind = 'notification'",
        job=job["job_id"],
    )
    clock.advance(house.limits.delivery.effect_deadline_s + 1)
    assert gate(house) == "fail"
    reconcile(house.services)
    (abandoned,) = [row for row in house.investigations() if row["subject"].endswith("required_effect_given_up")]
    decide_investigation(house.services, abandoned["investigation_id"], note="told by phone", actor="kim")
    assert gate(house) == "pass"
    reconcile(house.services)
    remaining = {row["subject"].partition("#")[0] for row in house.investigations()}
    assert abandoned["subject"] not in remaining


def test_a_held_job_is_not_released_by_a_word(house: ReconcileBench) -> None:
    job_id = house.bench.accept(items=1, limits=LimitsRequest(max_attempts=1))
    job = claimed(house.ledger, job_id, limits=house.limits)
    finish_items(house.ledger, job, limits=house.limits)
    with house.ledger.transaction() as tx:
        fail_attempt(
            tx, job.token, failure_class=FailureClass.AMBIGUOUS_UPLOAD, reason=UPLOAD_UNKNOWN, limits=house.limits
        )
    (question,) = house.investigations()
    with pytest.raises(NotAllowed) as refused:
        decide_investigation(house.services, question["investigation_id"], note="surely not there", actor="kim")
    assert refused.value.reason.code == "INVESTIGATION.FACT_STANDS.v1"
    assert house.bench.job(job_id)["phase"] == "reconciling"
    assert house.investigations() == [question]
