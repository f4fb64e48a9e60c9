"""While an older system still serves, jobs are worked and compared, and nothing of them leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from receipt_pipeline.app import analyst, maintenance, operator, submitter
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.limits import Rollout, RolloutStage
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.ledger.schema.effects import effects, outbox, review_tasks
from receipt_pipeline.ledger.schema.jobs import items
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.builders import CALLER
from receipt_pipeline_tests.conformance.ledger_rows import all_rows
from receipt_pipeline_tests.fakes.effects_home import an_event
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

SHADOW = "ROLLOUT.SHADOW.v1"


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    environment = {"RECEIPTS_ROLLOUT": "shadow"}
    return open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch, environment)


def switch(home: OpenedHome, rollout: Rollout) -> None:
    home.app.__dict__["intake"] = replace(home.app.intake, rollout=rollout)


def settle(home: OpenedHome) -> None:
    for wave in home.dispatch():
        home.run_wave(wave)
    maintenance.deliver_and_consume(home.app)


@pytest.mark.requirement("R150")
def test_a_shadow_is_worked_and_verified_and_nothing_of_it_leaves(home: OpenedHome) -> None:
    job_id = home.submit("shadowed", effects={"notification": "required", "review_tasks": "required"})
    settle(home)
    job = home.job(job_id)
    assert (job["state"], job["warnings"]) == ("succeeded", [SHADOW])
    assert job["settled_at"] is not None
    receive_event(home.app.effects, an_event(job, "someone's"), source="notification")
    ledger = home.app.ledger
    assert [all_rows(ledger, table) for table in (review_tasks, outbox)] == [[], []]
    assert [row["kind"] for row in all_rows(ledger, effects)] == ["result_object"]
    assert submitter.read_result(home.app, home.principal, job_id)["items"][0]["decision"] == "clear"
    document = analyst.read_report(home.app, home.principal)
    assert (document["verified_succeeded"], document["state"], document["gate"]) == (1, "accounted", "pass")


@pytest.mark.requirement("R150")
def test_a_later_stage_changes_no_accepted_job_and_a_shadow_makes_no_repetition(home: OpenedHome) -> None:
    shadow = home.submit("same")
    settle(home)
    switch(home, Rollout(RolloutStage.TRUTH))
    assert home.submit("same") == shadow, "the same key is the same job for ever"
    served = home.submit("served")
    settle(home)
    ledger = home.app.ledger
    assert [row["job_id"] for row in all_rows(ledger, review_tasks)] == [served]
    assert [row["earlier_job_id"] for row in all_rows(ledger, items, served)] == [None]
    assert [row["state"] for row in all_rows(ledger, outbox)] == ["sent"]


@pytest.mark.requirement("R150")
def test_a_limited_cohort_is_served_and_everybody_else_is_a_shadow(home: OpenedHome) -> None:
    switch(home, Rollout(RolloutStage.COHORT, frozenset({"somebody-else"})))
    outside = home.submit("outside")
    switch(home, Rollout(RolloutStage.COHORT, frozenset({CALLER})))
    inside = home.submit("inside")
    assert [home.job(job_id)["warnings"] for job_id in (outside, inside)] == [[SHADOW], []]


def test_a_retry_of_a_shadow_is_a_shadow(home: OpenedHome) -> None:
    job_id = home.submit("expiring", limits={"max_queue_age_s": 60})
    home.clock.advance(61)
    operator.reconcile(home.app, home.principal)
    switch(home, Rollout(RolloutStage.TRUTH))
    child = submitter.retry_job(home.app, home.principal, job_id, cutoff=None)
    assert home.job(child["job_id"])["warnings"] == [SHADOW]


def test_a_stage_and_its_cohort_are_read_from_the_environment() -> None:
    assert read_settings({}).rollout == Rollout()
    given = {"RECEIPTS_ROLLOUT": "cohort", "RECEIPTS_ROLLOUT_COHORT": "kim, night-batch"}
    assert read_settings(given).rollout.cohort == {"kim", "night-batch"}


@pytest.mark.parametrize(
    "given",
    [
        {"RECEIPTS_ROLLOUT": "maybe"},
        {"RECEIPTS_ROLLOUT": "cohort"},
        {"RECEIPTS_ROLLOUT_COHORT": "kim"},
        {"RECEIPTS_ROLLOUT": "cohort", "RECEIPTS_ROLLOUT_COHORT": "a/b"},
    ],
)
def test_a_stage_that_says_not_whom_it_serves_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InputRefused, match=r"SETTING\.INVALID\.v1"):
        read_settings(given)
