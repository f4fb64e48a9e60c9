"""The checks on effects, notifications and tasks: each gap is broken by hand and named, then green again."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_red, job_of, two_finished_jobs


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> ReconcileBench:
    return two_finished_jobs(ledger, clock, tmp_path)


@pytest.mark.requirement("R096")
@pytest.mark.parametrize(
    ("statement", "fault", "effect"),
    [
        ("DELETE FROM effects WHERE job_id = :job AND kind = 'review_tasks'", "effect_never_intended", "review_tasks"),
        ("DELETE FROM effects WHERE job_id = :job AND kind = 'notification'", "effect_never_intended", "notification"),
        (
            "UPDATE effects SET state = 'intended' WHERE job_id = :job AND kind = 'result_object'",
            "success_without_published_effect",
            "result_object",
        ),
        ("UPDATE deliveries SET outcome = 'dropped' WHERE job_id = :job", "ledger_without_effect", "notification"),
        (
            "UPDATE effects SET state = 'failed' WHERE job_id = :job AND kind = 'notification'",
            "effect_without_ledger",
            "notification",
        ),
        (
            "UPDATE effects SET state = 'abandoned' WHERE job_id = :job AND kind = 'review_tasks'",
            "effect_without_ledger",
            "review_tasks",
        ),
    ],
)
def test_each_gap_between_effect_and_ledger_is_found(
    house: ReconcileBench, statement: str, fault: str, effect: str
) -> None:
    job_id = job_of(house, "one")["job_id"]
    house.edit(statement, job=job_id)
    rows = assert_red(house, "effects_have_no_gaps", job_id)
    assert (fault, effect) in {(row["fault"], row["effect"]) for row in rows}
    assert {row["effect"] for row in rows} == {effect}


@pytest.mark.requirement("R096")
def test_a_required_effect_is_a_gap_from_its_deadline_until_it_is_committed(house: ReconcileBench) -> None:
    job_id = house.succeeded(key="unconsumed")["job_id"]
    house.clock.advance(house.limits.delivery.effect_deadline_s)
    assert house.check("effects_have_no_gaps").passed
    house.clock.advance(1)
    (row,) = assert_red(house, "effects_have_no_gaps", job_id)
    assert (row["fault"], row["effect"]) == ("required_effect_overdue", "review_tasks")
    reconcile(house.services)
    assert ("effect_gap", f"{job_id}:review_tasks:required_effect_overdue") in house.open_subjects()

    house.finish_effects()
    assert house.check("effects_have_no_gaps").passed
    reconcile(house.services)
    assert house.open_subjects() == set()


def test_a_dropped_outbox_row_is_named_by_both_checks_that_guard_it(house: ReconcileBench) -> None:
    job_id = house.succeeded(key="silent")["job_id"]
    house.edit("DELETE FROM outbox WHERE job_id = :job", job=job_id)
    (row,) = assert_red(house, "every_notification_delivered_or_explained", job_id)
    assert row["fault"] == "no_message"
    (row,) = assert_red(house, "effects_have_no_gaps", job_id)
    assert row["fault"] == "message_missing"


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM deliveries WHERE job_id = :job", "sent_without_delivery"),
        ("UPDATE outbox SET state = 'abandoned', sends = 1 WHERE job_id = :job", "given_up_too_early"),
        ("UPDATE outbox SET sends = 2 WHERE job_id = :job", "delivery_unrecorded"),
    ],
)
def test_a_notification_without_its_delivery_ledger_is_named(house: ReconcileBench, statement: str, fault: str) -> None:
    job_id = job_of(house, "two")["job_id"]
    house.edit(statement, job=job_id)
    (row,) = assert_red(house, "every_notification_delivered_or_explained", job_id)
    assert row["fault"] == fault


def test_a_notification_nobody_sends_is_named_after_the_effect_deadline(house: ReconcileBench) -> None:
    job_id = house.succeeded(key="unsent")["job_id"]
    house.clock.advance(house.limits.delivery.effect_deadline_s + 1)
    (row,) = assert_red(house, "every_notification_delivered_or_explained", job_id)
    assert row["fault"] == "never_sent"

    house.finish_effects()
    assert house.red_checks() == set()


def test_a_job_that_wants_no_effects_has_no_gaps(house: ReconcileBench) -> None:
    house.succeeded(key="quiet", notification=EffectDemand.NONE, review_tasks=EffectDemand.NONE)
    house.clock.advance(house.limits.delivery.effect_deadline_s + 1)
    assert house.red_checks() == set()


def test_a_doubled_task_is_named_until_it_is_removed(house: ReconcileBench) -> None:
    job_id = job_of(house, "one")["job_id"]
    house.edit(
        "INSERT INTO review_tasks (decision_id, job_id, tenant, ordinal, item_id, decision, reasons,"
        " result_digest, outcome_digest, state, disputed, created_at)"
        " SELECT 'sha256:double', job_id, tenant, ordinal, item_id, decision, reasons, result_digest,"
        " outcome_digest, state, disputed, created_at FROM review_tasks"
        " WHERE job_id = :job AND ordinal = 0",
        job=job_id,
    )
    (row,) = assert_red(house, "one_task_per_decision", job_id)
    assert (row["fault"], row["decision_id"]) == ("task_without_decision", "sha256:double")

    house.edit("DELETE FROM review_tasks WHERE decision_id = 'sha256:double'")
    assert house.red_checks() == set()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM review_tasks WHERE job_id = :job AND ordinal = 0", "decision_without_task"),
        ("UPDATE review_tasks SET decision = 'review' WHERE job_id = :job AND ordinal = 0", "task_differs"),
        ("UPDATE review_tasks SET outcome_digest = 'sha256:00' WHERE job_id = :job AND ordinal = 0", "task_differs"),
        (
            "UPDATE jobs SET state = 'failed', terminal_class = 'timed_out' WHERE job_id = :job",
            "task_of_unsuccessful_job",
        ),
    ],
)
def test_a_task_and_its_decision_belong_together(house: ReconcileBench, statement: str, fault: str) -> None:
    job_id = job_of(house, "one")["job_id"]
    house.edit(statement, job=job_id)
    rows = assert_red(house, "one_task_per_decision", job_id)
    assert {row["fault"] for row in rows} == {fault}
