"""What the functions of the application answer: tasks, releases, repairs and reconciliation."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.app import admin, maintenance, operator, reviewer, submitter
from receipt_pipeline.core.errors import NotAllowed, NotFound
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.receipt_text import compensation
from receipt_pipeline.ledger.effects.consumption import make_review_tasks
from receipt_pipeline.ledger.effects.objects import COPYING, hold_objects
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline.reconciliation.repair import ReconcileSummary
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.builders import CALLER
from receipt_pipeline_tests.conformance.ledger_rows import job_row
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    return open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)


def test_a_task_is_finished_once(home: OpenedHome) -> None:
    job = builders.a_succeeded_job(home.app.ledger, builders.an_outcome(Decision.REVIEW))
    with home.app.ledger.transaction() as tx:
        make_review_tasks(tx, JobRow.from_row(job_row(home.app.ledger, job.token.job_id)))
    (task,) = reviewer.list_tasks(home.app, home.principal, only_open=True)
    reviewer.finish_task(home.app, home.principal, task["decision_id"])
    with pytest.raises(NotAllowed) as again:
        reviewer.finish_task(home.app, home.principal, task["decision_id"])
    assert (again.value.reason.code, again.value.facts["state"]) == ("TASK.DONE.v1", "done")
    with pytest.raises(NotFound):
        reviewer.finish_task(home.app, home.principal, "sha256:00")


def test_the_last_live_release_is_retired_only_by_force(home: OpenedHome) -> None:
    admin.retire_release(home.app, home.principal, "2027-01")
    with pytest.raises(NotAllowed) as refused:
        admin.retire_release(home.app, home.principal, "2027-02")
    assert refused.value.reason.code == "RELEASE.LAST_LIVE.v1"
    assert [row["name"] for row in admin.list_releases(home.app) if row["retired_at"] is None] == ["2027-02"]
    admin.retire_release(home.app, home.principal, "2027-02", even_the_last=True)
    assert [row["name"] for row in admin.list_releases(home.app) if row["retired_at"] is None] == []


def test_a_requeue_names_the_old_worker_and_keeps_finished_items(home: OpenedHome) -> None:
    job_id = home.submit("job", items=2)
    unclaimed = operator.requeue_job(home.app, home.principal, job_id)
    assert (unclaimed["changed"], unclaimed["fenced"]) == (False, None)
    assert "Nothing was changed" in unclaimed["sentence"]
    builders.claimed(home.app.ledger, job_id)
    did = operator.requeue_job(home.app, home.principal, job_id)
    assert (did["changed"], did["fenced"], did["lease_epoch"]) == (True, builders.WORKER, {"before": 1, "now": 2})
    assert (did["state"], did["phase"], did["next_action"]) == ("running", "queued", "wait")
    assert f"Worker {builders.WORKER} can no longer write" in did["sentence"]


def test_a_cancellation_lists_stopped_items_and_a_second_one_is_refused(home: OpenedHome) -> None:
    job_id = home.submit("job", items=2)
    answer = submitter.cancel_job(home.app, home.principal, job_id)
    assert (answer["stopped"], answer["stands"]) == (["r-001", "r-002"], [])
    assert "2 items stopped" in answer["sentence"]
    with pytest.raises(NotAllowed) as again:
        submitter.cancel_job(home.app, home.principal, job_id)
    assert again.value.reason.code == "STATE.REFUSES.v1"
    assert again.value.facts["stands"] == {"cancelled": 2}
    assert again.value.facts["compensating_action"] == compensation([])["what"]


def test_a_supersession_names_the_abandoned_items(home: OpenedHome) -> None:
    old_id, new_id = home.submit("old", items=2), home.submit("new")
    answer = submitter.supersede_job(home.app, home.principal, old_id, by=new_id)
    assert (answer["abandoned"], answer["replaced_by"]) == (["r-001", "r-002"], new_id)
    assert submitter.read_status(home.app, home.principal, new_id)["links"]["supersedes"] == [old_id]


@pytest.mark.requirement("R042")
def test_a_revoked_caller_is_refused_everything_and_his_files_wait(home: OpenedHome) -> None:
    job_id = home.submit("job")
    admin.revoke_grant(home.app, home.principal, CALLER)
    for order in (submitter.read_status, submitter.cancel_job, submitter.read_result, submitter.retry_job):
        with pytest.raises(NotAllowed) as denied:
            order(home.app, home.principal, job_id)
        assert denied.value.reason.code == "AUTHORITY.REVOKED.v1"
    sentence = maintenance.sweep_inbox(home.app).sentence
    assert sentence.startswith("inbox: nothing read, AUTHORITY.REVOKED.v1")
    assert home.job(job_id)["items_requested"] == 1


@pytest.mark.requirement("R112")
def test_only_a_person_gives_held_jobs_a_new_closing_bound(home: OpenedHome, monkeypatch: pytest.MonkeyPatch) -> None:
    granted: list[bool] = []

    def noted(reconciler: ReconciliationContext, **given: bool) -> ReconcileSummary:
        granted.append(given["granted"])
        return ReconcileSummary()

    monkeypatch.setattr(maintenance.repair, "reconcile", noted)
    maintenance.reconcile_everything(home.app)
    operator.reconcile(home.app, home.principal)
    assert granted == [False, True]


def test_reconciliation_counts_unreferenced_scans_and_removes_them_after_the_grace_period(home: OpenedHome) -> None:
    job_id, limits = home.submit("wanted"), home.app.settings.limits
    home.bench.store_at("scans/acme/00ff", b"never accepted", age_s=limits.retention.orphan_grace_s + 1)
    with home.app.ledger.transaction() as tx:
        hold_objects(tx, ["scans/acme/00ff"], holder="acme/never answered", hold_kind=COPYING)

    def counted() -> tuple[int, int, int]:
        counts = operator.reconcile(home.app, home.principal)
        return counts["copy_holds_released"], counts["scans_marked"], counts["scans_removed"]

    assert counted() == (0, 0, 0)
    home.clock.advance(limits.retention.copy_hold_s)
    assert [counted(), counted()] == [(1, 1, 0), (0, 0, 0)]
    home.clock.advance(limits.retention.orphan_grace_s)
    assert [counted(), counted()] == [(0, 0, 1), (0, 0, 0)]
    [kept] = home.app.store.listing("scans/")
    assert kept.key.endswith(home.bench.bench.items(job_id)[0]["sha256"].removeprefix("sha256:"))
