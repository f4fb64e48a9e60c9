"""Results are purged after their retention: tombstone first, record kept, nothing that is held."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.reasons import RESULT_RETIRED
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.effects.results import read_result
from receipt_pipeline.ledger.effects.objects import add_tombstone, hold_objects, rejected_output_key
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline.reconciliation.retention import expire_diagnostics, expire_results
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.failing_objects import PutFault
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
from receipt_pipeline_tests.fakes.worker_bench import ActingPlan

RETENTION_S = 86_400


class Killed(BaseException):
    """Ends a pass where a crash would."""


def old(house: ReconcileBench, *, key: str = "old", retention_s: int = RETENTION_S) -> dict[str, Any]:
    job = house.finished(key=key, limits=LimitsRequest(result_retention_s=retention_s))
    house.clock.advance(retention_s)
    return job


@pytest.mark.requirement("R050")
def test_after_its_retention_the_payload_is_gone_and_the_record_stays(house: ReconcileBench) -> None:
    job = old(house)
    house.clock.advance(-1)
    assert expire_results(house.services) == []
    house.clock.advance(1)
    assert expire_results(house.services) == [job["job_id"]]

    assert not house.path(job["result_key"]).exists()
    kept = house.bench.job(job["job_id"])
    changed = {name for name in kept if kept[name] != job[name]}
    assert changed == {"result_purged_at", "latest_seq"}
    assert kept["result_purged_at"] == house.clock.now()
    for item in house.bench.items(job["job_id"]):
        assert (item["fields"], item["evidence"]) == (None, None)
        assert (item["item_class"], item["decision"]) == ("classified", "clear")
        assert item["outcome_digest"]
        assert item["decision_id"]
    [tombstone] = house.bench.rows(effect_tables.tombstones, job["job_id"])
    assert (tombstone["object_key"], tombstone["digest"]) == (job["result_key"], job["result_digest"])
    with pytest.raises(NotAllowed, match=r"RESULT\.RETENTION_PASSED\.v1") as refusal:
        read_result(house.effects, job["job_id"], tenant=TENANT)
    assert refusal.value.reason == RESULT_RETIRED


@pytest.mark.requirement("R050")
def test_a_purge_is_explained_and_repeating_it_changes_nothing(house: ReconcileBench) -> None:
    old(house)
    expire_results(house.services)
    assert house.red_checks() == set()
    reconcile(house.services)
    before = house.snapshot()
    assert expire_results(house.services) == []
    reconcile(house.services)
    assert house.snapshot() == before


def test_what_is_inside_its_retention_stays(house: ReconcileBench) -> None:
    old(house)
    younger = house.finished(key="younger", limits=LimitsRequest(result_retention_s=RETENTION_S))
    longer = house.finished(key="longer", limits=LimitsRequest(result_retention_s=2**31 - 1))
    assert len(expire_results(house.services)) == 1
    for job in (younger, longer):
        assert house.path(job["result_key"]).exists()
        assert house.bench.job(job["job_id"])["result_purged_at"] is None


@pytest.mark.parametrize(
    ("hold", "let_go"),
    [
        (
            "UPDATE effects SET state = 'intended' WHERE job_id = :job AND kind = 'review_tasks'",
            "UPDATE effects SET state = 'committed' WHERE job_id = :job AND kind = 'review_tasks'",
        ),
        (
            "UPDATE effects SET required = (1 = 1), state = 'failed' WHERE job_id = :job AND kind = 'notification'",
            "UPDATE effects SET state = 'committed' WHERE job_id = :job AND kind = 'notification'",
        ),
        (
            "INSERT INTO quarantine (quarantine_id, job_id, subject, digests, before_terminal, state,"
            " opened_at, investigation_id) VALUES ('q', :job, 'result', '[]', (1 = 0), 'open', 0, 'i')",
            "UPDATE quarantine SET state = 'resolved' WHERE job_id = :job",
        ),
        (
            "INSERT INTO investigations (investigation_id, job_id, kind, subject, owner, escalation, state,"
            " opened_at, deadline_at, reason_code, suspected_effect, allowed_repair, evidence)"
            " VALUES ('i', :job, 'effect_gap', 's', 'o', 'e', 'open', 0, 0, 'r', '', '', '{}')",
            "UPDATE investigations SET state = 'resolved' WHERE job_id = :job",
        ),
        (
            "UPDATE jobs SET parent_job_id = :job WHERE idempotency_key = 'child'",
            "UPDATE jobs SET parent_job_id = NULL WHERE parent_job_id = :job",
        ),
    ],
    ids=["unconsumed decision", "required effect", "quarantine", "question", "open child"],
)
def test_what_something_still_needs_is_never_purged(house: ReconcileBench, hold: str, let_go: str) -> None:
    job = old(house)
    house.bench.accept(key="child")
    house.edit(hold, job=job["job_id"])
    assert expire_results(house.services) == []
    assert house.path(job["result_key"]).exists()

    house.edit(let_go, job=job["job_id"])
    assert expire_results(house.services) == [job["job_id"]]


def test_a_held_object_is_never_purged(house: ReconcileBench) -> None:
    job = old(house)
    with house.ledger.transaction() as tx:
        hold_objects(tx, [job["result_key"]], holder="audit", hold_kind="audit")
        hold_objects(tx, [job["result_key"]], holder="audit", hold_kind="audit")
    assert expire_results(house.services) == []


def test_a_hold_that_comes_between_finding_and_burying_wins(house: ReconcileBench) -> None:
    first, second = old(house, key="first", retention_s=100), old(house, key="second", retention_s=100)

    def hold_the_other() -> None:
        with house.ledger.transaction() as tx:
            hold_objects(tx, [second["result_key"]], holder="audit", hold_kind="audit")

    with ActingPlan({"retention.before": hold_the_other}):
        purged = expire_results(house.services)
    assert purged == [first["job_id"]]
    assert house.path(second["result_key"]).exists()


@pytest.mark.requirement("R050")
@pytest.mark.parametrize("place", ["retention.before", "retention.after"])
def test_a_crash_between_tombstone_and_record_is_finished_by_the_next_pass(house: ReconcileBench, place: str) -> None:
    job = old(house)

    def die() -> None:
        raise Killed

    with pytest.raises(Killed), ActingPlan({place: die}):
        expire_results(house.services)
    assert house.bench.job(job["job_id"])["result_purged_at"] is None
    assert house.check("every_success_has_its_object").passed
    assert house.path(job["result_key"]).exists() == (place == "retention.before")

    assert expire_results(house.services) == [job["job_id"]]
    assert not house.path(job["result_key"]).exists()
    assert house.red_checks() == set()


@pytest.mark.requirement("R129")
def test_hosts_runs_and_measurements_of_attempts_go_before_the_payload(house: ReconcileBench) -> None:
    job = house.finished(key="diagnosed")
    house.clock.advance(house.limits.retention.diagnostics_retention_s)
    assert expire_diagnostics(house.services) == [job["job_id"]]
    [attempt] = house.bench.attempts(job["job_id"])
    assert (attempt["owner"], attempt["run_id"], attempt["facts"]) == ("", "", {})
    assert attempt["outcome"] == "committed"
    assert expire_diagnostics(house.services) == []
    assert house.bench.job(job["job_id"])["result_purged_at"] is None
    assert house.path(job["result_key"]).exists()


def test_an_open_question_keeps_the_diagnostics_of_its_job(house: ReconcileBench) -> None:
    job = house.finished(key="asked")
    house.path(job["result_key"]).unlink()
    reconcile(house.services)
    assert [row["job_id"] for row in house.investigations()] == [job["job_id"]]
    house.clock.advance(house.limits.retention.diagnostics_retention_s)
    assert expire_diagnostics(house.services) == []


@pytest.mark.parametrize("uploads_failed", [1, 3])
def test_an_upload_that_certainly_failed_keeps_no_payload(house: ReconcileBench, uploads_failed: int) -> None:
    house.bench.objects.put_faults.extend([PutFault.REFUSED] * uploads_failed)
    job_id = house.bench.accept(
        key="failed upload", limits=LimitsRequest(result_retention_s=RETENTION_S, max_attempts=3)
    )
    house.bench.work_until_closed(job_id)
    house.finish_effects()
    assert house.bench.job(job_id)["state"] == ("succeeded" if uploads_failed == 1 else "failed")
    house.clock.advance(RETENTION_S)
    assert expire_results(house.services) == [job_id]
    assert house.bench.job(job_id)["result_purged_at"] == house.clock.now()
    assert {item["fields"] for item in house.bench.items(job_id)} == {None}
    assert house.red_checks() == set()


@pytest.mark.requirement("R129")
def test_what_a_stale_worker_carried_is_no_orphan_and_goes_with_the_payload(house: ReconcileBench) -> None:
    job = house.finished(key="stale", limits=LimitsRequest(result_retention_s=RETENTION_S))
    digest = house.bench.items(job["job_id"])[0]["outcome_digest"]
    with house.ledger.transaction() as tx:
        record_rejected_write(tx, FencingToken(job["job_id"], 0), write_kind="checkpoint", ordinal=0, digest=digest)
    key = rejected_output_key(job_id=job["job_id"], ordinal=0, lease_epoch=0, digest=digest)
    house.store_at(key, b"what it carried", age_s=house.limits.retention.orphan_grace_s + 1)
    reconcile(house.services)
    assert (house.red_checks(), house.investigations()) == (set(), [])
    house.clock.advance(RETENTION_S)
    assert expire_results(house.services) == [job["job_id"]]
    assert not house.path(key).exists()
    assert house.red_checks() == set()


def test_a_tombstone_is_written_once(house: ReconcileBench) -> None:
    for digest in ("sha256:first", "sha256:second"):
        with house.ledger.transaction() as tx:
            add_tombstone(tx, object_key="results/a/1-b", job_id=None, reason="TEST.v1", digest=digest)
    with house.ledger.reading() as tx:
        assert [row["digest"] for row in tx.rows(select(effect_tables.tombstones))] == ["sha256:first"]
