"""Objects, items and effects that disagree get one owned question, which ends when they agree again."""

from __future__ import annotations

import pytest

from receipt_pipeline.ledger.investigations import resolve_investigation
from receipt_pipeline.reconciliation.repair import reconcile, sweep_objects
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_nothing_left


@pytest.mark.requirement("R081", "R096", "R158")
def test_a_missing_object_is_asked_about_and_the_question_ends_when_it_is_back(house: ReconcileBench) -> None:
    job = house.finished(key="one")
    path = house.path(job["result_key"])
    kept = path.read_bytes()
    path.unlink()
    summary = sweep_objects(house.services)
    assert summary.objects is not None
    assert (summary.objects.faults, summary.questions_opened) == (1, 1)
    (question,) = house.investigations()
    assert (question["kind"], question["subject"], question["job_id"], question["reason_code"]) == (
        "missing_object",
        job["result_key"],
        job["job_id"],
        "RESULT.MISSING.v1",
    )
    assert_nothing_left(house)

    path.write_bytes(kept)
    assert sweep_objects(house.services).questions_healed == 1
    (answered,) = house.investigations(only_open=False)
    assert (answered["state"], answered["resolved_by"]) == ("resolved", "system:reconcile")
    assert house.bench.job(job["job_id"])["state"] == "succeeded"
    assert_nothing_left(house)

    path.unlink()
    sweep_objects(house.services)
    assert house.open_subjects() == {("missing_object", f"{job['result_key']}#2")}
    assert_nothing_left(house)


@pytest.mark.requirement("R082")
def test_a_notification_for_a_missing_object_is_not_acted_upon(house: ReconcileBench) -> None:
    job = house.succeeded(key="one")
    kept = house.path(job["result_key"]).read_bytes()
    house.path(job["result_key"]).unlink()
    house.finish_effects()
    reconcile(house.services)
    assert house.bench.effects(job["job_id"], "review_tasks")[0]["state"] != "committed"
    assert ("missing_object", job["result_key"]) in house.open_subjects()

    house.path(job["result_key"]).write_bytes(kept)
    house.finish_effects()
    reconcile(house.services)
    assert house.red_checks() == set()
    assert house.open_subjects() == set()


def test_an_altered_object_is_asked_about_with_both_digests(house: ReconcileBench) -> None:
    job = house.finished(key="one")
    path = house.path(job["result_key"])
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"clear", b"CLEAR", 1))
    reconcile(house.services)
    (question,) = house.investigations()
    assert (question["kind"], question["reason_code"]) == ("altered_object", "RESULT.MISMATCH.v1")
    assert question["evidence"]["expected_digest"] == job["result_digest"]
    assert question["evidence"]["found_digest"] != job["result_digest"]
    assert_nothing_left(house)


def test_an_orphan_is_asked_about_until_it_is_removed_or_answered(house: ReconcileBench) -> None:
    key = f"results/job_nobody/1-{'a' * 64}"
    path = house.store_at(key, b"strange", age_s=house.limits.retention.orphan_grace_s)
    reconcile(house.services)
    (question,) = house.investigations()
    assert (question["kind"], question["job_id"], question["reason_code"]) == (
        "orphan_object",
        None,
        "OBJECT.UNEXPLAINED.v1",
    )
    assert not house.check("no_object_without_success").passed
    assert_nothing_left(house)

    path.unlink()
    reconcile(house.services)
    assert house.open_subjects() == set()

    house.store_at(key, b"strange", age_s=house.limits.retention.orphan_grace_s)
    reconcile(house.services)
    (question,) = house.investigations()
    assert question["subject"] == f"{key}#2"
    with house.ledger.transaction() as tx:
        resolve_investigation(tx, question["investigation_id"], resolution="kept: a drill's", actor="kim")
    reconcile(house.services)
    assert house.check("no_object_without_success").passed
    assert house.investigations() == []
    assert path.exists()
    assert_nothing_left(house)


@pytest.mark.parametrize(
    ("statement", "undo", "kind", "reason"),
    [
        (
            "UPDATE items SET item_class = NULL WHERE job_id = :job AND ordinal = 0",
            "UPDATE items SET item_class = 'classified' WHERE job_id = :job AND ordinal = 0",
            "unbalanced",
            "ITEMS.UNBALANCED.v1",
        ),
        (
            "UPDATE events SET kind = 'withheld' WHERE job_id = :job AND kind = 'terminal'",
            "UPDATE events SET kind = 'terminal' WHERE job_id = :job AND kind = 'withheld'",
            "unbalanced",
            "TERMINAL.CONFLICT.v1",
        ),
        (
            "UPDATE outbox SET sends = 2 WHERE job_id = :job",
            "UPDATE outbox SET sends = 1 WHERE job_id = :job",
            "effect_gap",
            "EFFECT.GAP.v1",
        ),
    ],
)
def test_what_only_a_person_can_settle_is_asked_once_and_heals_by_itself(
    house: ReconcileBench, statement: str, undo: str, kind: str, reason: str
) -> None:
    job_id = house.finished(key="one")["job_id"]
    house.edit(statement, job=job_id)
    sweep_objects(house.services)
    assert {(row["kind"], row["job_id"], row["reason_code"]) for row in house.investigations()} >= {
        (kind, job_id, reason)
    }
    assert_nothing_left(house)

    house.edit(undo, job=job_id)
    reconcile(house.services)
    assert house.open_subjects() == set()
