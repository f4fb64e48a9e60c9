"""Divergent outputs are found late too, held, and end with one recorded decision: keep or withdraw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.lifecycle import Phase
from receipt_pipeline.core.reasons import (
    QUARANTINE_DIGEST_UNKNOWN,
    QUARANTINE_NOT_HELD,
    RESULT_QUARANTINED,
    RESULT_WITHDRAWN,
    STATE_REFUSES,
)
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.effects.results import read_result
from receipt_pipeline.ledger.investigations import resolve_investigation
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult
from receipt_pipeline.ledger.jobs.publication import record_intent
from receipt_pipeline.ledger.jobs.quarantine import record_rejected_write
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.reconciliation.quarantine import resolve_quarantine
from receipt_pipeline.reconciliation.repair import reconcile, reconcile_ledger
from receipt_pipeline_tests.builders import TENANT, claimed
from receipt_pipeline_tests.fakes.effects_home import an_event
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_red
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan

OTHER = digest_of_bytes(b"another output")


def refuse_other(house: ReconcileBench, job_id: str, *, ordinal: int | None, digest: str = OTHER) -> None:
    with house.ledger.transaction() as tx:
        record_rejected_write(
            tx,
            FencingToken(job_id, 0),
            write_kind="checkpoint" if ordinal is not None else "commit",
            ordinal=ordinal,
            digest=digest,
        )


def held_open(house: ReconcileBench, *, items: int = 1) -> str:
    job_id = house.bench.accept(key="open", items=items)
    refuse_other(house, job_id, ordinal=0)
    house.bench.work(job_id)
    assert house.bench.job(job_id)["phase"] == Phase.QUARANTINED
    return job_id


def tasks(house: ReconcileBench, job_id: str) -> list[tuple[str, bool]]:
    return [(row["state"], row["disputed"]) for row in house.bench.rows(effect_tables.review_tasks, job_id)]


def refused(house: ReconcileBench, job_id: str) -> str:
    try:
        read_result(house.effects, job_id, tenant=TENANT)
    except NotAllowed as error:
        return error.reason.code
    return ""


def decide(house: ReconcileBench, job_id: str, **decision: Any) -> None:
    resolve_quarantine(house.services, job_id=job_id, actor="kim", **decision)


def assert_recorded_once(house: ReconcileBench, job_id: str, **decision: Any) -> None:
    before = house.snapshot()
    decide(house, job_id, **decision)
    assert house.snapshot() == before
    reconcile(house.services)
    before = house.snapshot()
    reconcile(house.services)
    assert house.snapshot() == before


@pytest.mark.requirement("R085")
@pytest.mark.parametrize("ordinal", [0, None])
def test_divergence_found_late_is_held_and_named_until_then(house: ReconcileBench, ordinal: int | None) -> None:
    job = house.finished(key="one")
    refuse_other(house, job["job_id"], ordinal=ordinal)
    (row,) = assert_red(house, "no_divergent_result_served", job["job_id"])
    assert row["fault"] == "not_held"

    assert reconcile_ledger(house.services).quarantined == (job["job_id"],)
    assert house.check("no_divergent_result_served").passed
    assert refused(house, job["job_id"]) == RESULT_QUARANTINED.code == "RESULT.QUARANTINED.v1"
    assert all(disputed for _, disputed in tasks(house, job["job_id"]))
    [held] = house.bench.quarantines(job["job_id"])
    assert OTHER in {entry["digest"] for entry in held["digests"]}
    assert house.bench.job(job["job_id"])["state"] == "succeeded"
    before = house.snapshot()
    assert reconcile_ledger(house.services).quarantined == ()
    assert house.snapshot() == before


def test_a_held_result_whose_tasks_are_not_disputed_or_whose_question_is_closed_is_named(house: ReconcileBench) -> None:
    job_id = house.finished(key="one")["job_id"]
    refuse_other(house, job_id, ordinal=0)
    reconcile(house.services)
    house.edit("UPDATE review_tasks SET disputed = (1 = 0) WHERE job_id = :job AND ordinal = 0", job=job_id)
    (row,) = assert_red(house, "no_divergent_result_served", job_id)
    assert row["fault"] == "tasks_not_disputed"
    house.edit("UPDATE review_tasks SET disputed = (1 = 1) WHERE job_id = :job", job=job_id)

    (question,) = house.investigations()
    with house.ledger.transaction() as tx:
        resolve_investigation(tx, question["investigation_id"], resolution="looked at it", actor="kim")
    (row,) = assert_red(house, "no_divergent_result_served", job_id)
    assert row["fault"] == "question_closed"
    decide(house, job_id, withdraw=True)
    assert house.check("no_divergent_result_served").passed


@pytest.mark.requirement("R085")
def test_keeping_the_committed_digest_serves_the_result_again(house: ReconcileBench) -> None:
    job = house.finished(key="one")
    job_id = job["job_id"]
    refuse_other(house, job_id, ordinal=None)
    reconcile(house.services)
    decide(house, job_id, keep=job["result_digest"])

    assert refused(house, job_id) == ""
    assert not any(disputed for _, disputed in tasks(house, job_id))
    [row] = house.bench.quarantines(job_id)
    assert (row["state"], row["resolution"]) == ("resolved", f"keep {job['result_digest']}")
    (question,) = house.investigations(only_open=False)
    assert (question["state"], question["resolved_by"]) == ("resolved", "kim")
    assert_recorded_once(house, job_id, keep=job["result_digest"])
    assert house.red_checks() == set()


def test_a_third_digest_after_the_decision_is_new_evidence(house: ReconcileBench) -> None:
    job = house.finished(key="one")
    refuse_other(house, job["job_id"], ordinal=None)
    reconcile(house.services)
    decide(house, job["job_id"], keep=job["result_digest"])
    refuse_other(house, job["job_id"], ordinal=None, digest=digest_of_bytes(b"a third output"))
    assert_red(house, "no_divergent_result_served", job["job_id"])
    assert reconcile_ledger(house.services).quarantined == (job["job_id"],)
    assert refused(house, job["job_id"]) == RESULT_QUARANTINED.code
    decide(house, job["job_id"], keep=job["result_digest"])
    assert refused(house, job["job_id"]) == ""
    assert_recorded_once(house, job["job_id"], keep=job["result_digest"])


@pytest.mark.requirement("R085")
def test_a_withdrawn_result_is_never_served_and_makes_no_task(house: ReconcileBench) -> None:
    job_id = house.succeeded(key="one")["job_id"]
    key = house.bench.job(job_id)["result_key"]
    receive_event(house.effects, an_event(house.bench.job(job_id), "event-1", result_digest=OTHER), source="t")
    assert refused(house, job_id) == RESULT_QUARANTINED.code
    decide(house, job_id, withdraw=True, note="both totals are wrong")

    (question,) = house.bench.rows(effect_tables.investigations, job_id)
    assert question["resolution"] == "withdraw: both totals are wrong"
    assert refused(house, job_id) == RESULT_WITHDRAWN.code == "RESULT.WITHDRAWN.v1"
    house.finish_effects()
    assert tasks(house, job_id) == []
    assert house.bench.effects(job_id, "review_tasks")[0]["state"] == "abandoned"
    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"]) == ("succeeded", "complete")
    assert job["settled_at"] is not None
    assert house.path(key).exists()
    house.clock.advance(house.limits.delivery.effect_deadline_s + 1)
    assert house.red_checks() == set()
    assert_recorded_once(house, job_id, withdraw=True)


def test_only_what_the_ledger_committed_can_be_kept(house: ReconcileBench) -> None:
    job_id = house.finished(key="one")["job_id"]
    refuse_other(house, job_id, ordinal=0)
    reconcile(house.services)
    before = house.snapshot()
    with pytest.raises(NotAllowed, match=r"QUARANTINE\.OUTPUT_NOT_HELD\.v1") as known_by_digest_only:
        decide(house, job_id, keep=OTHER)
    with pytest.raises(InputRefused, match=r"QUARANTINE\.DIGEST_UNKNOWN\.v1") as unknown:
        decide(house, job_id, keep=digest_of_bytes(b"nobody wrote this"))
    assert known_by_digest_only.value.reason == QUARANTINE_NOT_HELD
    assert unknown.value.reason == QUARANTINE_DIGEST_UNKNOWN
    assert house.snapshot() == before


def test_a_decision_about_nothing_is_refused(house: ReconcileBench) -> None:
    job_id = house.finished(key="one")["job_id"]
    with pytest.raises(NotAllowed) as refusal:
        decide(house, job_id, withdraw=True)
    assert refusal.value.reason == STATE_REFUSES
    with pytest.raises(NotFound, match=r"NOT_FOUND\.v1"):
        decide(house, "job_nobody", withdraw=True)


def test_keeping_the_outcome_of_an_open_job_lets_it_close_without_another_invocation(house: ReconcileBench) -> None:
    job_id = held_open(house)
    kept = house.bench.items(job_id)[0]["outcome_digest"]
    decide(house, job_id, keep=kept)
    assert house.bench.job(job_id)["phase"] == Phase.CLOSING
    assert_recorded_once(house, job_id, keep=kept)

    house.bench.work(job_id)
    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == ("succeeded", "complete", "")
    assert len(house.bench.chain.asked) == 1
    assert refused(house, job_id) == ""
    house.finish_effects()
    assert house.red_checks() == set()


def test_an_open_job_with_unfinished_items_goes_back_to_work(house: ReconcileBench) -> None:
    job_id = held_open(house, items=3)
    decide(house, job_id, keep=house.bench.items(job_id)[0]["outcome_digest"])
    assert house.bench.job(job_id)["phase"] == Phase.QUEUED
    house.bench.work(job_id)
    assert house.bench.job(job_id)["terminal_class"] == "complete"
    assert len(house.bench.chain.asked) == 3


def test_withdrawing_from_an_open_job_closes_it_as_an_identity_failure(house: ReconcileBench) -> None:
    job_id = held_open(house, items=2)
    decide(house, job_id, withdraw=True)
    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["reason_code"]) == (
        "failed",
        "identity_failed",
        "RESULT.WITHDRAWN.v1",
    )
    assert [item["item_class"] for item in house.bench.items(job_id)] == ["classified", "unresolved"]
    assert house.open_subjects() == {("unresolved_items", job_id)}
    house.finish_effects()
    assert tasks(house, job_id) == []
    assert_recorded_once(house, job_id, withdraw=True)


def two_results_of_an_open_job(house: ReconcileBench) -> tuple[str, str]:
    job_id = house.bench.accept(key="twice")

    def lose_the_lease() -> None:
        house.clock.advance(house.limits.work.lease_ttl_s)
        reconcile_ledger(house.services)

    with ActingPlan({"commit.before": lose_the_lease}):
        house.bench.work(job_id)
    [stored] = house.bench.effects(job_id)
    house.clock.advance(PAST_RETRY_S)
    again = claimed(house.ledger, job_id, owner="worker-b", limits=house.limits)
    with house.ledger.transaction() as tx:
        intended = record_intent(
            tx,
            again.token,
            VerifiedResult(key=f"results/{job_id}/9-x", digest=OTHER, size_bytes=1),
            limits=house.limits,
        )
    assert not intended
    assert house.bench.job(job_id)["phase"] == Phase.QUARANTINED
    return job_id, stored["expected_digest"]


def test_an_open_job_closes_on_the_stored_result_that_is_kept(house: ReconcileBench) -> None:
    job_id, stored = two_results_of_an_open_job(house)
    puts = list(house.bench.objects.puts)
    with pytest.raises(NotAllowed, match=r"QUARANTINE\.OUTPUT_NOT_HELD\.v1"):
        decide(house, job_id, keep=OTHER)
    decide(house, job_id, keep=stored)

    job = house.bench.job(job_id)
    assert (job["state"], job["terminal_class"], job["result_digest"]) == ("succeeded", "complete", stored)
    assert house.bench.objects.puts == puts
    house.finish_effects()
    assert house.red_checks() == set()
    assert refused(house, job_id) == ""
    assert_recorded_once(house, job_id, keep=stored)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"{}\n"),
        lambda path: path.write_bytes(path.read_bytes().replace(b"clear", b"CLEAR", 1)),
    ],
)
def test_a_stored_result_that_is_gone_or_altered_cannot_be_kept(
    house: ReconcileBench, spoil: Callable[[Path], object]
) -> None:
    job_id, stored = two_results_of_an_open_job(house)
    path = house.path(house.bench.effects(job_id)[0]["idempotency_key"])
    path.chmod(0o600)
    spoil(path)
    with pytest.raises(NotAllowed) as refusal:
        decide(house, job_id, keep=stored)
    assert refusal.value.reason == QUARANTINE_NOT_HELD
    decide(house, job_id, withdraw=True)
    assert house.bench.job(job_id)["terminal_class"] == "identity_failed"


def test_items_are_decided_before_the_result_of_an_open_job(house: ReconcileBench) -> None:
    job_id, stored = two_results_of_an_open_job(house)
    refuse_other(house, job_id, ordinal=0)
    reconcile_ledger(house.services)
    assert len(house.bench.quarantines(job_id)) == 2
    with pytest.raises(NotAllowed, match=r"STATE\.REFUSES\.v1"):
        decide(house, job_id, keep=stored)
    decide(house, job_id, keep=house.bench.items(job_id)[0]["outcome_digest"])
    assert house.bench.job(job_id)["phase"] == Phase.QUARANTINED
    decide(house, job_id, keep=stored)
    assert house.bench.job(job_id)["state"] == "succeeded"


@pytest.mark.requirement("R085")
def test_both_outputs_stay_readable_and_are_no_orphans_after_the_decision(house: ReconcileBench) -> None:
    job = house.finished(key="one")
    other = f"results/{job['job_id']}/7-{OTHER.removeprefix('sha256:')}"
    path = house.store_at(other, b"another output", age_s=house.limits.retention.orphan_grace_s * 2)
    assert_red(house, "no_object_without_success", None)
    refuse_other(house, job["job_id"], ordinal=None)
    reconcile(house.services)
    assert house.check("no_object_without_success").passed
    decide(house, job["job_id"], withdraw=True)
    reconcile(house.services)
    assert house.check("no_object_without_success").passed
    assert path.exists()
    assert house.path(job["result_key"]).exists()
