"""The judge of the crash matrix: what it lets pass, and that it calls everything else broken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from receipt_pipeline.app import maintenance, operator, reviewer, submitter
from receipt_pipeline.app.context import AppContext, new_context
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.failure_points import remove_plan
from receipt_pipeline.drill import hands
from receipt_pipeline.drill.failure_plan import Fault, PlannedFault, plan_text
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, claim_job
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import MATRIX_LIMITS
from receipt_pipeline_tests.chaos.crash_matrix.steps import StepOrder, run_step_order
from receipt_pipeline_tests.chaos.crash_matrix.verify import note_outcomes, verify

LIMITS = MATRIX_LIMITS | {"RECEIPTS_LIMIT_LEASE_TTL_S": "60", "RECEIPTS_LIMIT_RETRY_BASE_S": "0.05"}


class Story:
    """A home in which steps of the matrix are played in this very process."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environment = {
            **LIMITS,
            "RECEIPTS_HOME": str(folder / "home"),
            "RECEIPTS_IMAGE_DIGEST": digest_of("image"),
        }
        if url.startswith("postgresql"):
            self.environment["RECEIPTS_POSTGRES_URL"] = url
        self.services = self.opened()

    def opened(self) -> AppContext:
        """Open the home once more."""
        return new_context(read_settings(self.environment))

    def play(self, *steps: str, plan: str = "") -> None:
        """Play steps, all under one plan."""
        for step in steps:
            run_step_order(
                StepOrder(
                    step, str(self.folder), self.environment, plan, facts={"items": 2, "job_limits": {}}
                )
            )
        remove_plan()

    @property
    def job_id(self) -> str:
        """Return the id of the one job."""
        return str(submitter.list_jobs(self.services, self.services.principal())[0]["job_id"])

    def judged(self, services: AppContext | None = None) -> tuple[str, str]:
        """Return the verdict and everything that was found."""
        found = verify(services or self.services, self.folder)
        return found["verdict"], "; ".join([*found["faults"], found["ending"]])


@pytest.fixture
def story(postgres_or_sqlite: str, tmp_path: Path) -> Iterator[Story]:
    made = Story(tmp_path, postgres_or_sqlite)
    yield made
    remove_plan()
    made.services.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def postgres_or_sqlite(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated PostgreSQL ledger, or "" for the home's own SQLite file."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_ledger_url"))


@pytest.fixture
def settled(story: Story) -> Story:
    """A home whose one job has succeeded, was notified of and consumed."""
    story.play("submit", "passes")
    return story


@pytest.mark.requirement("R156", "R158")
def test_a_story_without_a_fault_converges_and_a_second_reconciliation_changes_nothing(
    settled: Story,
) -> None:
    assert settled.judged() == ("converged", "committed → succeeded/complete")
    assert settled.judged() == ("converged", "committed → succeeded/complete")


@pytest.mark.requirement("R157")
def test_a_job_that_waits_or_runs_without_an_owned_question_is_broken(story: Story) -> None:
    story.play("submit")
    verdict, found = story.judged()
    assert (verdict, "is still accepted/" in found, "nobody owns it" in found) == ("BROKEN", True, True)
    with story.services.ledger.transaction() as tx:
        claim = claim_job(
            tx, job_id=story.job_id, owner="w", run_id="r", limits=story.services.settings.limits
        )
    assert isinstance(claim, ClaimedJob)
    verdict, found = story.judged()
    assert (verdict, "is still running/working and nobody owns it" in found) == ("BROKEN", True)
    assert "was never closed" in found


@pytest.mark.requirement("R156")
def test_a_lost_object_is_owned_with_owner_deadline_and_repair(settled: Story) -> None:
    hands.remove_result_object(settled.services, settled.job_id)
    assert settled.judged() == ("owned", "committed → succeeded/complete; owned: missing_object")
    (question,) = operator.list_investigations(settled.services, settled.services.principal(), only_open=True)
    assert question["owner"] in settled.services.settings.limits.staffing.principals
    assert question["deadline_at"] > question["opened_at"]
    assert question["allowed_repair"]


def _another_notification(story: Story) -> None:
    (sent,) = story.services.settings.outbox.glob("*/notifications/*.json")
    sent.with_name("another.1.json").write_text(sent.read_text())


def _another_object(story: Story) -> None:
    key = f"results/{story.job_id}/9-{digest_of('other').removeprefix('sha256:')}"
    story.services.store.put(key, b"other")


def _another_outcome(story: Story) -> None:
    note_outcomes(story.services, story.folder)
    with story.services.ledger.transaction() as tx:
        tx.execute(sa.update(jobs).values(reason_code="ANOTHER.v1"))


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (_another_notification, "notification local/notifications/another.1.json has no delivery"),
        (_another_object, "has no settled upload"),
        (_another_outcome, "the settled job of"),
    ],
)
def test_a_second_effect_and_a_changed_outcome_are_broken(
    settled: Story, harm: Callable[[Story], None], named: str
) -> None:
    harm(settled)
    verdict, found = settled.judged()
    assert (verdict, named in found) == ("BROKEN", True), found


@pytest.mark.requirement("R158")
def test_a_reconciliation_that_keeps_changing_something_is_broken(
    settled: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile = maintenance.reconcile_everything

    def reconcile_and_deliver_again(context: AppContext) -> dict[str, int]:
        counts = reconcile(context)
        hands.deliver_again(context, settled.job_id)
        return counts

    monkeypatch.setattr(maintenance, "reconcile_everything", reconcile_and_deliver_again)
    verdict, found = settled.judged()
    assert (verdict, "a second reconciliation changed consumed" in found) == ("BROKEN", True)


@pytest.mark.requirement("R154")
def test_a_delayed_delivery_arrives_later_and_once(story: Story) -> None:
    dropped = plan_text(PlannedFault("outbox_send.drop", Fault.ALTER, times=2))
    story.play("submit", "passes", plan=dropped)
    status = submitter.read_status(story.services, story.services.principal(), story.job_id)
    assert (status["notifications"]["delivered"], status["notifications"]["dropped"] > 0) == (1, True)
    assert story.judged() == ("converged", "committed → succeeded/complete")


@pytest.mark.requirement("R154")
def test_a_duplicate_message_makes_no_second_task(settled: Story) -> None:
    before = reviewer.list_tasks(settled.services, settled.services.principal(), only_open=False)
    assert [hands.deliver_again(settled.services, settled.job_id) for _ in range(2)] == ["duplicate"] * 2
    assert reviewer.list_tasks(settled.services, settled.services.principal(), only_open=False) == before
    assert settled.judged() == ("converged", "committed → succeeded/complete")


@pytest.mark.requirement("R154")
def test_exhausted_retries_end_in_a_terminal_record(story: Story) -> None:
    refused = plan_text(PlannedFault("upload.before", Fault.ERROR, times=1_000))
    story.play("submit", "passes", plan=refused)
    verdict, found = story.judged()
    assert (verdict, found.rpartition(" → ")[2]) == ("converged", "failed/dependency_failed")
    with story.services.ledger.reading() as tx:
        bound = tx.scalar(sa.select(jobs.c.max_attempts))
    tried = hands.read_attempts(story.services, story.job_id)
    assert [row["outcome"] for row in tried] == ["failed"] * bound


@pytest.mark.requirement("R154", "R158")
def test_reconciling_again_and_again_leaves_every_row_as_it_was(settled: Story) -> None:
    def rows() -> list[Any]:
        with settled.services.ledger.reading() as tx:
            return json.loads(json.dumps(tx.rows(sa.select(jobs)), default=str))  # type: ignore[no-any-return]

    settled.play("reconcile")
    before = rows()
    settled.play("reconcile", "reconcile", "reconcile")
    assert rows() == before
