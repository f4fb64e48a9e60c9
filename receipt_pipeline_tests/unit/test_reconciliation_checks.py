"""Every check can fail: what it guards is broken by hand, it names the offenders, then is green again."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.core.alerts import AlertKind, AlertThresholds
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.invariants import CHECKED, INVARIANTS
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests.builders import claimed
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_red, job_of, two_finished_jobs

SHORT = LimitsRequest(max_queue_age_s=600, processing_timeout_s=900)


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> ReconcileBench:
    return two_finished_jobs(ledger, clock, tmp_path)


def test_a_healthy_house_passes_every_check_and_names_its_asset(house: ReconcileBench) -> None:
    assert house.red_checks() == set()
    assert {name: check.asset for name, check in CHECKED.items()} == {
        "one_terminal_record_per_job": "job_ledger",
        "items_balance_to_accepted": "job_ledger",
        "every_accepted_job_is_terminal_or_owned": "job_ledger",
        "attempts_within_budget": "job_ledger",
        "no_abandoned_lease": "job_ledger",
        "effects_have_no_gaps": "job_ledger",
        "queue_age_within_capacity": "job_ledger",
        "no_standing_alert": "job_ledger",
        "every_success_has_its_object": "result_objects",
        "objects_match_the_ledger": "result_objects",
        "no_object_without_success": "result_objects",
        "results_state_their_pins": "result_objects",
        "every_notification_delivered_or_explained": "notifications",
        "one_task_per_decision": "review_tasks",
        "no_divergent_result_served": "review_tasks",
    }


def test_the_registry_keeps_the_stored_names_and_blocks_nothing() -> None:
    assert {line.finding for line in INVARIANTS if not line.warns} == {
        "terminal_record_conflicts",
        "orphan_terminals",
        "unbalanced_items",
        "missing_terminal",
        "unowned_jobs",
        "unowned_investigations",
        "attempts_beyond_budget",
        "abandoned_leases",
        "effect_gaps",
        "unexplained_notifications",
        "task_faults",
        "unheld_divergence",
        "held_divergence",
        "divergent_and_served",
        "success_without_object",
        "object_mismatch",
        "object_without_success",
        "pins_not_stated",
    }
    assert {line.alert for line in INVARIANTS} - {None} == set(AlertKind) - {AlertKind.TEST}
    for key in ("name", "finding"):
        assert len({getattr(line, key) for line in INVARIANTS}) == len(INVARIANTS)
    assert not any(line.blocking for line in INVARIANTS)
    assert {
        line.finding: (line.investigation.kind.value, line.investigation.reason.code)
        for line in INVARIANTS
        if line.investigation
    } == {
        "terminal_record_conflicts": ("unbalanced", "TERMINAL.CONFLICT.v1"),
        "unbalanced_items": ("unbalanced", "ITEMS.UNBALANCED.v1"),
        "missing_terminal": ("missing_terminal", "TERMINAL.MISSING.v1"),
        "attempts_beyond_budget": ("attempts_beyond_budget", "ATTEMPTS.BEYOND_BUDGET.v1"),
        "effect_gaps": ("effect_gap", "EFFECT.GAP.v1"),
        "unexplained_notifications": ("effect_gap", "EFFECT.GAP.v1"),
        "task_faults": ("effect_gap", "EFFECT.GAP.v1"),
        "success_without_object": ("missing_object", "RESULT.MISSING.v1"),
        "object_mismatch": ("altered_object", "RESULT.MISMATCH.v1"),
        "pins_not_stated": ("altered_object", "RESULT.MISMATCH.v1"),
        "object_without_success": ("orphan_object", "OBJECT.UNEXPLAINED.v1"),
    }


@pytest.mark.requirement("R081")
def test_a_deleted_object_is_named_until_it_is_restored(house: ReconcileBench) -> None:
    job = job_of(house, "one")
    kept = house.path(job["result_key"]).read_bytes()
    house.path(job["result_key"]).unlink()
    (row,) = assert_red(house, "every_success_has_its_object", job["job_id"])
    assert (row["fault"], row["object_key"]) == ("missing", job["result_key"])

    house.path(job["result_key"]).write_bytes(kept)
    assert house.red_checks() == set()


def test_an_edited_byte_is_named_until_it_is_set_right(house: ReconcileBench) -> None:
    job = job_of(house, "two")
    path = house.path(job["result_key"])
    kept = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(kept.replace(b'"clear"', b'"cleaR"', 1))
    (row,) = assert_red(house, "objects_match_the_ledger", job["job_id"])
    assert row["expected_digest"] == job["result_digest"]
    assert row["found_digest"] == digest_of_bytes(path.read_bytes()) != job["result_digest"]
    assert house.check("every_success_has_its_object").passed

    path.write_bytes(kept)
    assert house.red_checks() == set()


def test_a_shortened_object_is_noticed_without_reading_every_object(house: ReconcileBench) -> None:
    job = job_of(house, "one")
    path = house.path(job["result_key"])
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    house.check("every_success_has_its_object")
    assert [row["job_id"] for row in house.find("object_mismatch")] == [job["job_id"]]


def test_an_unreadable_object_proves_no_success(house: ReconcileBench) -> None:
    job = job_of(house, "one")
    house.bench.objects.unreadable.add(job["result_key"])
    house.check("objects_match_the_ledger")
    (row,) = assert_red(house, "every_success_has_its_object", job["job_id"])
    assert row["fault"] == "unreadable"

    house.bench.objects.unreadable.clear()
    assert house.red_checks() == set()


@pytest.mark.requirement("R039")
@pytest.mark.parametrize("lie", ["another model", "no header", "another job"])
def test_a_result_that_does_not_state_its_pins_is_named(house: ReconcileBench, lie: str) -> None:
    job = job_of(house, "one")
    path = house.path(job["result_key"])
    kept = path.read_bytes()
    header, _, lines = kept.partition(b"\n")
    forged = {
        "another model": header.replace(job["risk_model_digest"].encode(), digest_of_bytes(b"x").encode()),
        "no header": canonical_json({"contract": "receipt-result/v1"}),
        "another job": header.replace(job["job_id"].encode(), b"job_unknown"),
    }[lie]
    path.chmod(0o600)
    path.write_bytes(forged + b"\n" + lines)
    assert_red(house, "results_state_their_pins", job["job_id"])

    path.write_bytes(kept)
    assert house.red_checks() == set()


def test_an_object_that_nothing_explains_is_named_once_it_is_older_than_the_grace(house: ReconcileBench) -> None:
    key = f"results/job_nobody/1-{'a' * 64}"
    house.store_at(key, b"strange", age_s=house.limits.retention.orphan_grace_s - 1)
    assert house.check("no_object_without_success").passed
    house.clock.advance(1)
    (row,) = assert_red(house, "no_object_without_success", None)
    assert row["object_key"] == key

    house.path(key).unlink()
    assert house.red_checks() == set()


@pytest.mark.requirement("R080")
def test_a_withheld_terminal_record_is_named(house: ReconcileBench) -> None:
    job_id = job_of(house, "one")["job_id"]
    house.edit("UPDATE events SET kind = 'withheld' WHERE job_id = :job AND kind = 'terminal'", job=job_id)
    (row,) = assert_red(house, "one_terminal_record_per_job", job_id)
    assert row["fault"] == "terminal_without_record"

    house.edit("UPDATE events SET kind = 'terminal' WHERE kind = 'withheld'")
    assert house.red_checks() == set()


@pytest.mark.parametrize(
    ("forgery", "fault"),
    [
        ("UPDATE jobs SET state = 'failed' WHERE job_id = :job", "record_differs"),
        ("UPDATE jobs SET terminal_class = 'partial' WHERE job_id = :job", "record_differs"),
        ("UPDATE jobs SET result_digest = 'sha256:00' WHERE job_id = :job", "record_differs"),
    ],
)
def test_a_forged_row_contradicts_its_record(house: ReconcileBench, forgery: str, fault: str) -> None:
    job = job_of(house, "two")
    house.edit(forgery, job=job["job_id"])
    (row,) = assert_red(house, "one_terminal_record_per_job", job["job_id"])
    assert row["fault"] == fault

    restore = "UPDATE jobs SET state = :state, terminal_class = :class, result_digest = :digest WHERE job_id = :job"
    values = {"state": job["state"], "class": job["terminal_class"], "digest": job["result_digest"]}
    house.edit(restore, job=job["job_id"], **values)
    assert house.red_checks() == set()


@pytest.mark.parametrize(
    ("job_id", "fault"),
    [("job_nobody", "record_of_unknown_job"), ("one", "several_records"), ("open", "record_of_open_job")],
)
def test_a_forged_terminal_record_is_named(house: ReconcileBench, job_id: str, fault: str) -> None:
    if job_id == "open":
        house.bench.accept(key="open")
    known = job_id if job_id == "job_nobody" else job_of(house, job_id)["job_id"]
    house.edit(
        "INSERT INTO events (job_id, tenant, kind, at, data)"
        " SELECT :job, tenant, kind, at, data FROM events WHERE kind = 'terminal' AND job_id = :of",
        job=known,
        of=job_of(house, "one")["job_id"],
    )
    (row,) = assert_red(house, "one_terminal_record_per_job", known)
    assert row["fault"] == fault

    house.edit("DELETE FROM events WHERE seq = (SELECT MAX(seq) FROM events)")
    assert house.check("one_terminal_record_per_job").passed


@pytest.mark.parametrize(
    ("statement", "undo"),
    [
        (
            "UPDATE items SET item_class = NULL WHERE job_id = :job AND ordinal = 0",
            "UPDATE items SET item_class = 'classified' WHERE job_id = :job AND ordinal = 0",
        ),
        (
            "UPDATE items SET item_class = 'rejected' WHERE job_id = :job AND ordinal = 1",
            "UPDATE items SET item_class = 'classified' WHERE job_id = :job AND ordinal = 1",
        ),
        (
            "UPDATE jobs SET items_requested = 3 WHERE job_id = :job",
            "UPDATE jobs SET items_requested = 2 WHERE job_id = :job",
        ),
    ],
)
def test_items_that_do_not_sum_to_the_scope_are_named(house: ReconcileBench, statement: str, undo: str) -> None:
    job_id = job_of(house, "one")["job_id"]
    house.edit(statement, job=job_id)
    assert_red(house, "items_balance_to_accepted", job_id)

    house.edit(undo, job=job_id)
    assert house.red_checks() == set()


@pytest.mark.requirement("R139", "R157")
def test_a_job_past_its_deadline_is_named_until_it_is_closed_or_owned(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="slow", limits=SHORT)
    claimed(house.ledger, job_id)
    house.edit("UPDATE jobs SET phase = 'quarantined' WHERE job_id = :job", job=job_id)
    assert_red(house, "every_accepted_job_is_terminal_or_owned", job_id)

    reconcile(house.services)
    assert ("missing_terminal", job_id) in house.open_subjects()
    assert house.check("every_accepted_job_is_terminal_or_owned").passed

    house.clock.advance(house.limits.staffing.investigation_deadline_s + 1)
    assert_red(house, "every_accepted_job_is_terminal_or_owned", job_id)


def test_unresolved_items_without_their_question_are_named(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="lossy", items=2)
    house.lose_item(job_id, times=3)
    house.bench.work_until_closed(job_id)
    house.finish_effects()
    assert house.bench.job(job_id)["terminal_class"] == "partial"
    assert house.check("every_accepted_job_is_terminal_or_owned").passed

    house.edit("UPDATE investigations SET owner = 'nobody' WHERE job_id = :job", job=job_id)
    (row,) = assert_red(house, "every_accepted_job_is_terminal_or_owned", job_id)
    assert row["fault"] == "unresolved_items"

    house.edit("UPDATE investigations SET owner = 'operations' WHERE job_id = :job", job=job_id)
    assert house.check("every_accepted_job_is_terminal_or_owned").passed


def test_attempts_beyond_their_bounds_are_named(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="lossy", items=2)
    house.lose_item(job_id, times=3)
    house.bench.work_until_closed(job_id)
    assert house.check("attempts_within_budget").passed

    house.edit("UPDATE jobs SET attempts_spent = 4 WHERE job_id = :job", job=job_id)
    assert_red(house, "attempts_within_budget", job_id)
    house.edit("UPDATE jobs SET attempts_spent = 0, max_attempts = 0 WHERE job_id = :job", job=job_id)
    house.edit("UPDATE items SET losses = 4 WHERE job_id = :job AND ordinal = 0", job=job_id)
    assert_red(house, "attempts_within_budget", job_id)
    house.edit("UPDATE items SET losses = 3 WHERE job_id = :job AND ordinal = 0", job=job_id)
    assert house.check("attempts_within_budget").passed
    house.edit(
        "INSERT INTO attempts (job_id, lease_epoch, attempt_no, kind, owner, run_id, opened_at, closed_at,"
        " outcome, spent_budget, reason_code, invocations, facts)"
        " SELECT job_id, lease_epoch + 100 + n, attempt_no, kind, owner, run_id, opened_at, opened_at,"
        " 'failed', spent_budget, reason_code, 0, facts FROM attempts,"
        " (SELECT 0 AS n UNION SELECT 10 UNION SELECT 20) AS more WHERE job_id = :job AND attempt_no = 1",
        job=job_id,
    )
    (row,) = assert_red(house, "attempts_within_budget", job_id)
    assert (row["attempts"], row["allowed"]) == (7, 6)


def test_a_lease_that_ended_untouched_is_named_until_it_is_taken_over(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="left")
    token = claimed(house.ledger, job_id, limits=house.limits).token
    house.clock.advance(house.limits.work.lease_ttl_s * 2 - 1)
    assert house.check("no_abandoned_lease").passed
    house.clock.advance(1)
    (row,) = assert_red(house, "no_abandoned_lease", job_id)
    assert (row["fault"], row["lease_epoch"]) == ("lease_expired", token.lease_epoch)

    reconcile(house.services)
    assert house.check("no_abandoned_lease").passed

    house.edit("UPDATE attempts SET closed_at = NULL WHERE job_id = :job", job=job_id)
    (row,) = assert_red(house, "no_abandoned_lease", job_id)
    assert row["fault"] == "attempt_never_closed"


def test_a_long_wait_for_the_first_claim_is_named(house: ReconcileBench) -> None:
    job_id = house.bench.accept(key="waiting")
    house.clock.advance(AlertThresholds().queue_age_s)
    assert house.check("queue_age_within_capacity").passed
    house.clock.advance(1)
    assert_red(house, "queue_age_within_capacity", job_id)

    house.bench.work(job_id)
    assert house.check("queue_age_within_capacity").passed
