"""What the ledger records of objects and questions, and the findings over them."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.effects.objects import (
    ObjectObservation,
    ObjectOutcome,
    explained_keys,
    held_keys,
    hold_objects,
    record_object_check,
    release_holds,
)
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests.builders import claimed
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_nothing_left

KEY = "results/job_x/1-aa"


def faults(house: ReconcileBench) -> list[tuple[str, str]]:
    with house.ledger.reading() as tx:
        rows = tx.rows(select(events.c.data).where(events.c.kind == "object_fault").order_by(events.c.seq))
    return [(row["data"]["before"], row["data"]["outcome"]) for row in rows]


def check(house: ReconcileBench, outcome: ObjectOutcome, **found: Any) -> bool:
    with house.ledger.transaction() as tx:
        return record_object_check(tx, ObjectObservation(object_key=KEY, job_id=None, outcome=outcome, **found))


def test_a_repeated_look_writes_nothing_and_a_new_fault_one_event(house: ReconcileBench) -> None:
    assert check(house, ObjectOutcome.OK, found_digest="sha256:aa")
    assert not check(house, ObjectOutcome.OK, found_digest="sha256:aa")
    assert faults(house) == []
    assert check(house, ObjectOutcome.MISSING)
    house.clock.advance(60)
    assert not check(house, ObjectOutcome.MISSING)
    assert faults(house) == [("ok", "missing")]
    assert check(house, ObjectOutcome.MISMATCH, found_digest="sha256:bb")
    assert check(house, ObjectOutcome.MISMATCH, found_digest="sha256:cc")
    assert check(house, ObjectOutcome.OK, found_digest="sha256:aa")
    assert faults(house)[1:] == [("missing", "mismatch"), ("mismatch", "mismatch"), ("mismatch", "ok")]


def test_holds_are_taken_once_and_let_go_by_holder(house: ReconcileBench) -> None:
    keys = [f"scans/acme/{number:03d}" for number in range(900)]
    with house.ledger.transaction() as tx:
        hold_objects(tx, [*keys, keys[0]], holder="a", hold_kind="submission")
        hold_objects(tx, keys[:1], holder="b", hold_kind="job")
        assert held_keys(tx, [*keys, "scans/acme/other"]) == set(keys)
        assert explained_keys(tx, [keys[0], "results/job_y/1-bb"]) == {keys[0]}
        assert release_holds(tx, holder="a") == 900
        assert held_keys(tx, keys) == {keys[0]}


@pytest.mark.parametrize("explained_by", ["success", "intent", "nothing"])
def test_a_success_and_an_intent_explain_their_key(house: ReconcileBench, explained_by: str) -> None:
    job = house.succeeded(key="one")
    if explained_by != "success":
        house.edit("UPDATE jobs SET result_key = 'results/elsewhere/1-aa' WHERE job_id = :job", job=job["job_id"])
    if explained_by != "intent":
        house.edit("UPDATE effects SET idempotency_key = effect_id || '-gone' WHERE kind = 'result_object'")
    with house.ledger.reading() as tx:
        found = explained_keys(tx, [job["result_key"]])
    assert found == (set() if explained_by == "nothing" else {job["result_key"]})


@pytest.mark.requirement("R139")
def test_a_question_past_its_deadline_or_of_an_inactive_owner_is_unowned(house: ReconcileBench) -> None:
    house.store_at("results/job_nobody/1-aa", b"strange", age_s=house.limits.retention.orphan_grace_s)
    reconcile(house.services)
    (question,) = house.investigations()

    def unowned() -> list[str]:
        return [row["investigation_id"] for row in house.find("unowned_investigations")]

    assert unowned() == []
    house.clock.set(question["deadline_at"] + dt.timedelta(microseconds=1))
    assert unowned() == [question["investigation_id"]]
    house.clock.set(question["deadline_at"])
    assert unowned() == []
    house.edit("UPDATE investigations SET owner = 'somebody who left'")
    assert unowned() == [question["investigation_id"]]


def test_an_orphan_record_is_found_by_itself(house: ReconcileBench) -> None:
    house.succeeded(key="one")
    house.edit("UPDATE events SET job_id = 'job_nobody' WHERE kind = 'terminal'")
    assert [row["job_id"] for row in house.find("orphan_terminals")] == ["job_nobody"]


def test_an_upload_of_a_lost_attempt_with_another_digest_is_divergence(house: ReconcileBench) -> None:
    job = house.finished(key="one")
    house.edit(
        "INSERT INTO effects (effect_id, job_id, lease_epoch, kind, required, idempotency_key, state,"
        " expected_digest, size_bytes, provider_reference, reason_code, intended_at, updated_at)"
        " SELECT 'lost', job_id, 0, kind, required, 'lost', 'abandoned', 'sha256:lost', 1, '', '',"
        " intended_at, updated_at FROM effects WHERE kind = 'result_object' AND job_id = :job",
        job=job["job_id"],
    )
    (row,) = house.find("unheld_divergence")
    assert (row["subject"], row["other_digest"], row["source"]) == ("result", "sha256:lost", "intent")
    assert row["known_digest"] == job["result_digest"]
    reconcile(house.services)
    [held] = house.bench.quarantines(job["job_id"])
    assert {entry["digest"] for entry in held["digests"]} == {job["result_digest"], "sha256:lost"}
    assert_nothing_left(house)


def test_open_quarantines_are_listed_with_their_question(house: ReconcileBench) -> None:
    job_id = house.finished(key="one")["job_id"]
    other = [{"digest": "sha256:other", "source": "test", "lease_epoch": None}]
    with house.ledger.transaction() as tx:
        hold_divergent(tx, job_id=job_id, subject="result", limits=house.limits, further=other)
    (row,) = house.find("held_divergence")
    assert (row["job_id"], row["subject"]) == (job_id, "result")
    assert row["investigation_id"] == house.investigations()[0]["investigation_id"]


@pytest.mark.requirement("R158")
def test_two_passes_at_once_end_where_one_would(house: ReconcileBench) -> None:
    for number in range(4):
        job = house.finished(key=f"missing-{number}")
        house.path(job["result_key"]).unlink()
        house.bench.accept(key=f"late-{number}", limits=LimitsRequest(max_queue_age_s=60))
        claimed(house.ledger, house.bench.accept(key=f"lost-{number}"))
    house.clock.advance(61)
    with ThreadPoolExecutor(2) as passes:
        done = [passes.submit(reconcile, house.services) for _ in range(2)]
        summaries = [one.result() for one in done]
    assert sum(len(summary.expired) for summary in summaries) == 4
    assert sum(len(summary.taken_over) for summary in summaries) == 4
    with house.ledger.reading() as tx:
        asked = tx.rows(select(effect_tables.investigations))
    assert len(asked) == len({(row["kind"], row["subject"]) for row in asked}) == 4
    reconcile(house.services)
    assert_nothing_left(house)
