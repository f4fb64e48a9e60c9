"""A narrow retry on every ledger: only what was left, under renewed authority, as a linked child job."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.core.items import ItemClass, ItemOutcome
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.reasons import UPLOAD_UNKNOWN
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.retry import preview_retry, retry_unresolved
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.grants import give_grant, put_submitter, revoke_grant
from receipt_pipeline.ledger.jobs.expire import expire_job
from receipt_pipeline.ledger.jobs.failures import fail_attempt
from receipt_pipeline.ledger.releases import retire_release
from receipt_pipeline.ledger.schema.effects import object_refs
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline.reconciliation.retention import sweep_scans
from receipt_pipeline_tests.builders import CALLER, TENANT, claimed, finish_items
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, assert_invariants, event_kinds, open_questions
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain

KIM = Principal(TENANT, CALLER, frozenset(Role))
PINS = ("release_id", "image_digest", "chain_revision", "risk_model_digest", "policy_revision")
REJECTION = ItemOutcome(item_class=ItemClass.REJECTED, reason_code="SCAN.BROKEN.v1")


@dataclass(frozen=True, slots=True)
class Desk:
    """A house with jobs, and the door at which retries are asked for."""

    house: ReconcileBench
    intake: IntakeContext
    told: list[str]

    def a_partial_job(self, **given: Any) -> str:
        bench = self.house.bench
        job_id = bench.accept(items=4, **given)
        scans = bench.scans(4, given.get("content") or given.get("key") or "key-1")
        bench.chain = ScriptedChain(answers={scans[3]: REJECTION})
        self.house.lose_item(job_id, times=bench.limits.work.item_losses_max)
        bench.work_until_closed(job_id)
        job = bench.job(job_id)
        assert (job["state"], job["terminal_class"]) == ("succeeded", "partial")
        bench.chain.asked.clear()
        return job_id

    def retry(self, job_id: str, principal: Principal = KIM, **given: Any) -> dict[str, Any]:
        return retry_unresolved(self.intake, job_id, principal=principal, **given)

    def kept(self, job_id: str) -> list[Any]:
        job = {name: value for name, value in self.house.bench.job(job_id).items() if name != "latest_seq"}
        return [job, self.house.bench.items(job_id), self.house.bench.attempts(job_id)]


@pytest.fixture
def desk(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> Desk:
    house = ReconcileBench.build(ledger, clock, tmp_path)
    told: list[str] = []
    intake = IntakeContext(
        ledger=ledger,
        objects=house.bench.objects,
        limits=house.limits,
        home=tmp_path,
        status_location=lambda tenant, job_id: f"{tenant}/{job_id}",
        after_accept=told.append,
    )
    return Desk(house, intake, told)


class Killed(BaseException):
    """Ends a command where it stands, as SIGKILL does."""


class KilledAt:
    """A failure plan that ends the process at one point."""

    def __init__(self, where: str) -> None:
        self.where = where

    def reached(self, point_name: str) -> None:
        if point_name == self.where:
            raise Killed

    def altered(self, alteration: str, value: Any) -> Any:
        return value


def test_what_a_killed_retry_held_is_let_go_by_the_sweep_and_by_the_same_retry(desk: Desk, clock: FakeClock) -> None:
    def held_by_retries() -> int:
        return sum(row["holder"].startswith("retry/") for row in all_rows(desk.house.ledger, object_refs))

    parent_id = desk.a_partial_job()
    install_plan(KilledAt("accept.before"))
    for _ in range(2):
        with pytest.raises(Killed):
            desk.retry(parent_id)
    assert held_by_retries() == 1
    remove_plan()
    clock.advance(desk.house.limits.retention.copy_hold_s)
    sweep_scans(desk.house.services)
    assert held_by_retries() == 0
    install_plan(KilledAt("accept.before"))
    with pytest.raises(Killed):
        desk.retry(parent_id)
    remove_plan()
    assert desk.retry(parent_id)["touched"] == ["r-001"]
    assert held_by_retries() == 0


@pytest.mark.requirement("R114", "R107", "R077")
def test_a_retry_touches_only_what_was_left_and_keeps_pins_and_input(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    before = desk.kept(parent_id)
    desk.house.bench.approve_other()

    answer = desk.retry(parent_id)

    bench = desk.house.bench
    assert answer["touched"] == ["r-001"]
    child = bench.job(answer["job_id"])
    assert [child[pin] for pin in PINS] == [bench.job(parent_id)[pin] for pin in PINS]
    assert (child["parent_job_id"], child["lineage"]) == (parent_id, parent_id)
    [item], first = bench.items(child["job_id"]), bench.items(parent_id)[0]
    assert [item[name] for name in ("item_id", "sha256", "size_bytes")] == [
        first[name] for name in ("item_id", "sha256", "size_bytes")
    ]
    bench.work(child["job_id"])
    assert bench.chain.asked == [bench.scans(1)[0]]
    assert bench.job(child["job_id"])["terminal_class"] == "complete"
    assert desk.kept(parent_id) == before
    assert bench.result(parent_id).digest == before[0]["result_digest"]
    assert_invariants(bench.ledger, bench.limits)


@pytest.mark.requirement("R115")
def test_a_preview_names_the_touched_units_and_writes_nothing(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    before = desk.house.snapshot()
    scope = preview_retry(desk.intake, parent_id, principal=KIM).as_document()
    assert [(unit["item_id"], unit["class"], unit["reason"]) for unit in scope["touched"]] == [
        ("r-001", "unresolved", "WORKER.LOST.v1")
    ]
    assert (scope["untouched"], scope["items"]["requested"], scope["child"]) == (3, 4, None)
    assert (scope["items"]["classified"], scope["items"]["rejected"]) == (2, 1)
    assert desk.house.snapshot() == before


@pytest.mark.requirement("R115")
def test_parent_and_child_name_each_other_and_the_parent_points_at_the_child(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    child_id = desk.retry(parent_id)["job_id"]
    with desk.intake.ledger.reading() as tx:
        parent, child = read_status(tx, parent_id), read_status(tx, child_id)
    assert (parent["links"]["children"], child["links"]["parent"]) == ([child_id], parent_id)
    assert (parent["state"], parent["terminal_class"]) == ("succeeded", "partial")
    assert parent["next_action"] == "follow_the_child_job"
    assert event_kinds(desk.intake.ledger, parent_id)[-1] == "retried"
    assert desk.told == [child_id, parent_id], "both status documents are written anew"


def test_an_identical_retry_joins_the_first_child(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    first = desk.retry(parent_id)
    desk.house.bench.work(first["job_id"])
    again = desk.retry(parent_id)
    assert (again["job_id"], again["replayed"], again["state"]) == (first["job_id"], True, "succeeded")
    assert event_kinds(desk.intake.ledger, parent_id).count("retried") == 1


def test_a_retry_holds_its_caller_to_the_quota_and_joining_costs_nothing(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    ledger = desk.house.ledger

    def allow(items: int) -> None:
        with ledger.transaction() as tx:
            put_submitter(tx, tenant=KIM.tenant, caller=KIM.caller, quota_items=items, actor="operations")

    desk.house.bench.accept(key="open already")
    allow(1)
    with pytest.raises(InputRefused) as refused:
        desk.retry(parent_id)
    assert refused.value.reason.code == "QUOTA.EXCEEDED.v1"
    assert refused.value.facts["asked_items"] == 1
    allow(10)
    child = desk.retry(parent_id)["job_id"]
    allow(1)
    assert desk.retry(parent_id)["job_id"] == child


def test_retries_at_once_make_one_child(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    start = threading.Barrier(3)
    answers: list[dict[str, Any]] = []

    def retry() -> None:
        start.wait()
        answers.append(desk.retry(parent_id))

    threads = [threading.Thread(target=retry) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer["job_id"] for answer in answers}) == 1
    assert sorted(answer["replayed"] for answer in answers) == [False, True, True]


@pytest.mark.requirement("R115")
def test_a_grant_that_has_expired_is_refused_by_name_until_it_is_renewed(desk: Desk, clock: FakeClock) -> None:
    parent_id = desk.a_partial_job()
    with desk.intake.ledger.transaction() as tx:
        give_grant(tx, tenant=TENANT, caller=CALLER, roles=["submitter"], actor="operations", lasts_s=60)
    clock.advance(60)
    before = desk.kept(parent_id)
    with pytest.raises(NotAllowed) as refused:
        desk.retry(parent_id)
    assert refused.value.reason.code == "AUTHORITY.EXPIRED.v1"
    assert desk.kept(parent_id) == before
    with desk.intake.ledger.transaction() as tx:
        give_grant(tx, tenant=TENANT, caller=CALLER, roles=["submitter"], actor="operations", lasts_s=60)
    assert not desk.retry(parent_id)["replayed"]


@pytest.mark.requirement("R042")
def test_a_revoked_caller_is_denied_by_name_and_the_denominator_stays(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    with desk.intake.ledger.transaction() as tx:
        revoke_grant(tx, tenant=TENANT, caller=CALLER, actor="operations")
    with pytest.raises(NotAllowed) as refused:
        desk.retry(parent_id)
    assert refused.value.reason.code == "AUTHORITY.REVOKED.v1"
    assert desk.house.bench.job(parent_id)["items_requested"] == 4
    # An operator whose own grant holds may do it instead; the child is his.
    other = Principal(TENANT, "operations", frozenset({Role.OPERATOR}))
    child = desk.house.bench.job(desk.retry(parent_id, other)["job_id"])
    assert (child["caller"], child["items_requested"]) == ("operations", 1)


@pytest.mark.requirement("R104")
def test_nothing_is_retried_while_an_upload_is_unknown_or_the_job_is_open(desk: Desk) -> None:
    bench = desk.house.bench
    job_id = bench.accept(items=1, limits=LimitsRequest(max_attempts=1))
    with pytest.raises(NotAllowed) as still_open:
        desk.retry(job_id)
    assert still_open.value.reason.code == "RETRY.JOB_OPEN.v1"
    job = claimed(bench.ledger, job_id)
    finish_items(bench.ledger, job)
    with bench.ledger.transaction() as tx:
        fail_attempt(
            tx, job.token, failure_class=FailureClass.AMBIGUOUS_UPLOAD, reason=UPLOAD_UNKNOWN, limits=bench.limits
        )
    with pytest.raises(NotAllowed) as unknown:
        desk.retry(job_id)
    assert unknown.value.reason.code == "UPLOAD.UNKNOWN.v1"


def test_a_job_without_anything_left_is_not_retried(desk: Desk) -> None:
    done = desk.house.succeeded(key="done")
    with pytest.raises(NotAllowed) as refused:
        desk.retry(done["job_id"])
    assert refused.value.reason.code == "RETRY.NOTHING_LEFT.v1"
    for principal in (Principal("globex", "eve", frozenset(Role)), KIM):
        unknown = done["job_id"] if principal is not KIM else "job_unknown"
        with pytest.raises(NotFound):
            desk.retry(unknown, principal)


def test_items_whose_stored_scan_is_gone_are_left_out_and_named(desk: Desk) -> None:
    bench = desk.house.bench
    job_id = bench.accept(items=2, limits=LimitsRequest(max_queue_age_s=60))
    desk.house.clock.advance(61)
    with bench.ledger.transaction() as tx:
        assert expire_job(tx, job_id=job_id, limits=bench.limits)
    first, second = (bench.scan_key(scan) for scan in bench.scans(2))
    bench.objects.inner.delete(first)
    scope = preview_retry(desk.intake, job_id, principal=KIM)
    assert [row.item_id for row in scope.touched] == ["r-002"]
    assert [row.item_id for row in scope.unreadable] == ["r-001"]
    bench.objects.inner.delete(second)
    with pytest.raises(NotAllowed) as refused:
        desk.retry(job_id)
    assert refused.value.reason.code == "RETRY.INPUT_GONE.v1"
    assert refused.value.facts["item_ids"] == ["r-001", "r-002"]


def test_a_rejection_for_the_stores_sake_is_retried_once_the_scan_is_back(desk: Desk) -> None:
    bench = desk.house.bench
    job_id = bench.accept(items=2)
    scan = bench.scans(2)[0]
    bench.objects.inner.delete(bench.scan_key(scan))
    bench.work(job_id)
    assert [row["reason_code"] for row in bench.items(job_id)] == ["INPUT.GONE.v1", ""]
    bench.objects.inner.put(bench.scan_key(scan), scan)
    answer = desk.retry(job_id)
    assert answer["touched"] == ["r-001"]
    bench.work(answer["job_id"])
    assert bench.job(answer["job_id"])["terminal_class"] == "complete"


def test_a_retry_after_the_cutoff_has_none_unless_one_is_given(desk: Desk, clock: FakeClock) -> None:
    cutoff = clock.now() + dt.timedelta(seconds=3600)
    job_id = desk.house.bench.accept(items=1, cutoff=cutoff)
    clock.advance(3600)
    with desk.intake.ledger.transaction() as tx:
        assert expire_job(tx, job_id=job_id, limits=desk.house.limits)
    later = clock.now() + dt.timedelta(hours=3)
    child = desk.house.bench.job(desk.retry(job_id, cutoff=later)["job_id"])
    assert child["cutoff_at"] == later
    with pytest.raises(Exception, match=r"KEY\.CONFLICT\.v1"):
        desk.retry(job_id)


def test_a_retired_release_is_never_replaced_by_another(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    with desk.intake.ledger.transaction() as tx:
        retire_release(tx, release_id=desk.house.bench.job(parent_id)["release_id"], retired_by="kim")
    with pytest.raises(InputRefused) as refused:
        desk.retry(parent_id)
    assert refused.value.reason.code == "RELEASE.RETIRED.v1"


def test_a_settled_child_answers_the_parents_question(desk: Desk) -> None:
    parent_id = desk.a_partial_job()
    [question] = open_questions(desk.intake.ledger, parent_id)
    child_id = desk.retry(parent_id)["job_id"]
    reconcile(desk.house.services)
    assert open_questions(desk.intake.ledger, parent_id) == [question]
    desk.house.bench.work(child_id)
    reconcile(desk.house.services)
    assert open_questions(desk.intake.ledger, parent_id) == []
    [answered] = desk.house.bench.investigations(parent_id)
    assert answered["resolution"] == f"settled by the retry in {child_id}"
