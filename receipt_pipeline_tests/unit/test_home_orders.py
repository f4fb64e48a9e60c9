"""Orders whose answer depends on what was done before: a task done twice, the last release, a repair."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.app import passes
from receipt_pipeline.core.errors import NotAllowed, NotFound
from receipt_pipeline.core.items import Decision
from receipt_pipeline.ledger.effects.consumption import make_review_tasks
from receipt_pipeline.ledger.effects.objects import COPYING, hold_objects
from receipt_pipeline.reconciliation.context import Reconciler
from receipt_pipeline.reconciliation.repair import ReconcileSummary
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.builders import CALLER
from receipt_pipeline_tests.conformance.ledger_rows import job_row
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home


@pytest.fixture
def home(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenedHome:
    """An empty home."""
    return open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)


def test_a_task_that_is_done_already_is_said_to_be_done(home: OpenedHome) -> None:
    job = builders.a_succeeded_job(home.services.ledger, builders.an_outcome(Decision.REVIEW))
    with home.services.ledger.transaction() as tx:
        make_review_tasks(tx, job_row(home.services.ledger, job.token.job_id))
    (task,) = home.services.review_tasks(only_open=True)
    home.services.finish_review_task(task["decision_id"])
    with pytest.raises(NotAllowed) as again:
        home.services.finish_review_task(task["decision_id"])
    assert (again.value.reason.code, again.value.facts["state"]) == ("TASK.DONE.v1", "done")
    with pytest.raises(NotFound):
        home.services.finish_review_task("sha256:00")


def test_the_last_live_release_is_retired_only_by_force(home: OpenedHome) -> None:
    for older in ("2026-10", "2026-11", "2026-12", "2027-01"):
        home.services.retire_release(older)
    with pytest.raises(NotAllowed) as refused:
        home.services.retire_release("2027-02")
    assert refused.value.reason.code == "RELEASE.LAST_LIVE.v1"
    assert [row["name"] for row in home.services.releases() if row["retired_at"] is None] == ["2027-02"]
    home.services.retire_release("2027-02", even_the_last=True)
    assert [row["name"] for row in home.services.releases() if row["retired_at"] is None] == []


def test_a_requeue_says_whom_it_fenced_and_what_stays(home: OpenedHome) -> None:
    job_id = home.submit("job", items=2)
    unclaimed = home.services.requeue(job_id)
    assert (unclaimed["changed"], unclaimed["fenced"]) == (False, None)
    assert "nothing was changed" in unclaimed["sentence"]
    builders.claimed(home.services.ledger, job_id)
    did = home.services.requeue(job_id)
    assert (did["changed"], did["fenced"], did["lease_epoch"]) == (
        True,
        builders.WORKER,
        {"before": 1, "now": 2},
    )
    assert (did["state"], did["phase"], did["next_action"]) == ("running", "queued", "wait")
    assert f"{builders.WORKER} is fenced" in did["sentence"]


def test_a_cancellation_says_what_stopped_and_a_second_one_what_stands(home: OpenedHome) -> None:
    job_id = home.submit("job", items=2)
    answer = home.services.cancel(job_id)
    assert (answer["stopped"], answer["stands"]) == (["r-001", "r-002"], [])
    assert "2 items stopped" in answer["sentence"]
    with pytest.raises(NotAllowed) as again:
        home.services.cancel(job_id)
    assert again.value.reason.code == "STATE.REFUSES.v1"
    assert again.value.facts["stands"] == {"cancelled": 2}
    assert "nothing of the job was sent on" in again.value.facts["compensating_action"]


def test_a_supersession_names_the_work_that_is_given_up(home: OpenedHome) -> None:
    old_id, new_id = home.submit("old", items=2), home.submit("new")
    answer = home.services.supersede(old_id, by=new_id)
    assert (answer["abandoned"], answer["replaced_by"]) == (["r-001", "r-002"], new_id)
    assert home.services.status(new_id)["links"]["supersedes"] == [old_id]


@pytest.mark.requirement("R042")
def test_a_revoked_caller_is_denied_every_order_and_his_files_wait(home: OpenedHome) -> None:
    job_id = home.submit("job")
    home.services.revoke_grant(CALLER)
    for order in (home.services.status, home.services.cancel, home.services.result, home.services.retry):
        with pytest.raises(NotAllowed) as denied:
            order(job_id)
        assert denied.value.reason.code == "AUTHORITY.REVOKED.v1"
    assert home.services.sweep_inbox().sentence == "inbox: left as it is, AUTHORITY.REVOKED.v1"
    assert home.job(job_id)["items_requested"] == 1


@pytest.mark.requirement("R112")
def test_only_a_person_gives_held_jobs_a_new_closing_bound(
    home: OpenedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted: list[bool] = []

    def noted(reconciler: Reconciler, **given: bool) -> ReconcileSummary:
        granted.append(given["granted"])
        return ReconcileSummary()

    monkeypatch.setattr(passes, "reconcile", noted)
    home.services.reconcile_everything()
    home.services.reconcile_everything(by_person=True)
    assert granted == [False, True]


def test_reconciling_counts_the_scans_that_nobody_wants_and_removes_them_a_grace_later(
    home: OpenedHome,
) -> None:
    job_id, limits = home.submit("wanted"), home.services.settings.limits
    home.bench.store_at("scans/acme/00ff", b"never accepted", age_s=limits.retention.orphan_grace_s + 1)
    with home.services.ledger.transaction() as tx:
        hold_objects(tx, ["scans/acme/00ff"], holder="acme/never answered", hold_kind=COPYING)

    def counted() -> tuple[int, int, int]:
        counts = home.services.reconcile_everything(by_person=True)
        return counts["copy_holds_released"], counts["scans_marked"], counts["scans_removed"]

    assert counted() == (0, 0, 0)
    home.clock.advance(limits.retention.copy_hold_s)
    assert [counted(), counted()] == [(1, 1, 0), (0, 0, 0)]
    home.clock.advance(limits.retention.orphan_grace_s)
    assert [counted(), counted()] == [(0, 0, 1), (0, 0, 0)]
    [kept] = home.services.objects.listing("scans/")
    assert kept.key.endswith(home.bench.bench.items(job_id)[0]["sha256"].removeprefix("sha256:"))
