"""The verdict of the crash matrix: what it accepts, and that everything else is broken."""

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
from receipt_pipeline.drill import four_jobs
from receipt_pipeline.drill.failure_plan import Fault, PlannedFault, plan_text
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, claim_job
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import MATRIX_LIMITS
from receipt_pipeline_tests.chaos.crash_matrix.steps import StepOrder, run_step_order
from receipt_pipeline_tests.chaos.crash_matrix.verify import note_outcomes, verify

LIMITS = {**MATRIX_LIMITS, "RECEIPTS_LIMIT_LEASE_TTL_S": "60", "RECEIPTS_LIMIT_RETRY_BASE_S": "0.05"}


class Scenario:
    """An instance in which steps of the matrix run in this process."""

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
        """Open the services once more."""
        return new_context(read_settings(self.environment))

    def play(self, *steps: str, plan: str = "") -> None:
        """Play steps, all under one plan."""
        for step in steps:
            run_step_order(
                StepOrder(step, str(self.folder), self.environment, plan, facts={"items": 2, "job_limits": {}})
            )
        remove_plan()

    @property
    def job_id(self) -> str:
        """Return the id of the one job."""
        return str(submitter.list_jobs(self.services, self.services.principal())[0]["job_id"])

    def verdict(self, services: AppContext | None = None) -> tuple[str, str]:
        """Return the verdict and everything that was found."""
        found = verify(services or self.services, self.folder)
        return found["verdict"], "; ".join([*found["faults"], found["ending"]])


@pytest.fixture
def scenario(postgres_or_sqlite: str, tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(tmp_path, postgres_or_sqlite)
    yield made
    remove_plan()
    made.services.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def postgres_or_sqlite(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated PostgreSQL ledger, or "" for the instance's own SQLite file."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_ledger_url"))


@pytest.fixture
def finished(scenario: Scenario) -> Scenario:
    """An instance whose one job has succeeded, was announced and consumed."""
    scenario.play("submit", "passes")
    return scenario


@pytest.mark.requirement("R156", "R158")
def test_a_scenario_without_a_fault_converges_and_a_second_reconciliation_changes_nothing(finished: Scenario) -> None:
    assert finished.verdict() == ("converged", "committed → succeeded/complete")
    assert finished.verdict() == ("converged", "committed → succeeded/complete")


@pytest.mark.requirement("R157")
def test_a_job_that_waits_or_runs_without_an_owned_investigation_is_broken(scenario: Scenario) -> None:
    scenario.play("submit")
    verdict, found = scenario.verdict()
    assert (verdict, "is still accepted/" in found, "owned: False" in found) == ("BROKEN", True, True)
    with scenario.services.ledger.transaction() as tx:
        claim = claim_job(tx, job_id=scenario.job_id, owner="w", run_id="r", limits=scenario.services.settings.limits)
    assert isinstance(claim, ClaimedJob)
    verdict, found = scenario.verdict()
    assert (verdict, "is still running/working, owned: False" in found) == ("BROKEN", True)
    assert "was never closed" in found


@pytest.mark.requirement("R156")
def test_a_lost_object_is_owned_with_owner_deadline_and_repair(finished: Scenario) -> None:
    four_jobs.remove_result_object(finished.services, finished.job_id)
    assert finished.verdict() == ("owned", "committed → succeeded/complete; owned: missing_object")
    (investigation,) = operator.list_investigations(finished.services, finished.services.principal(), only_open=True)
    assert investigation["owner"] in finished.services.settings.limits.staffing.principals
    assert investigation["deadline_at"] > investigation["opened_at"]
    assert investigation["allowed_repair"]


def _another_notification(scenario: Scenario) -> None:
    (sent,) = scenario.services.settings.outbox.glob("*/notifications/*.json")
    sent.with_name("another.1.json").write_text(sent.read_text())


def _another_object(scenario: Scenario) -> None:
    key = f"results/{scenario.job_id}/9-{digest_of('other').removeprefix('sha256:')}"
    scenario.services.store.put(key, b"other")


def _another_outcome(scenario: Scenario) -> None:
    note_outcomes(scenario.services, scenario.folder)
    with scenario.services.ledger.transaction() as tx:
        tx.execute(sa.update(jobs).values(reason_code="ANOTHER.v1"))


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        (_another_notification, "notification local/notifications/another.1.json has no delivery"),
        (_another_object, "has no finished upload"),
        (_another_outcome, "the recorded job of"),
    ],
)
def test_a_second_effect_and_a_changed_outcome_are_broken(
    finished: Scenario, harm: Callable[[Scenario], None], named: str
) -> None:
    harm(finished)
    verdict, found = finished.verdict()
    assert (verdict, named in found) == ("BROKEN", True), found


@pytest.mark.requirement("R158")
def test_a_reconciliation_that_keeps_changing_something_is_broken(
    finished: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconcile = maintenance.reconcile_everything

    def reconcile_and_deliver_again(context: AppContext) -> dict[str, int]:
        counts = reconcile(context)
        four_jobs.deliver_again(context, finished.job_id)
        return counts

    monkeypatch.setattr(maintenance, "reconcile_everything", reconcile_and_deliver_again)
    verdict, found = finished.verdict()
    assert (verdict, "a second reconciliation changed consumed" in found) == ("BROKEN", True)


@pytest.mark.requirement("R154")
def test_a_delayed_delivery_arrives_later_and_once(scenario: Scenario) -> None:
    dropped = plan_text(PlannedFault("outbox_send.drop", Fault.ALTER, times=2))
    scenario.play("submit", "passes", plan=dropped)
    status = submitter.read_status(scenario.services, scenario.services.principal(), scenario.job_id)
    assert (status["notifications"]["delivered"], status["notifications"]["dropped"] > 0) == (1, True)
    assert scenario.verdict() == ("converged", "committed → succeeded/complete")


@pytest.mark.requirement("R154")
def test_a_duplicate_message_makes_no_second_task(finished: Scenario) -> None:
    before = reviewer.list_tasks(finished.services, finished.services.principal(), only_open=False)
    assert [four_jobs.deliver_again(finished.services, finished.job_id) for _ in range(2)] == ["duplicate"] * 2
    assert reviewer.list_tasks(finished.services, finished.services.principal(), only_open=False) == before
    assert finished.verdict() == ("converged", "committed → succeeded/complete")


@pytest.mark.requirement("R154")
def test_exhausted_retries_end_in_a_terminal_record(scenario: Scenario) -> None:
    refused = plan_text(PlannedFault("upload.before", Fault.ERROR, times=1_000))
    scenario.play("submit", "passes", plan=refused)
    verdict, found = scenario.verdict()
    assert (verdict, found.rpartition(" → ")[2]) == ("converged", "failed/dependency_failed")
    with scenario.services.ledger.reading() as tx:
        bound = tx.scalar(sa.select(jobs.c.max_attempts))
    tried = four_jobs.read_attempts(scenario.services, scenario.job_id)
    assert [row["outcome"] for row in tried] == ["failed"] * bound


@pytest.mark.requirement("R154", "R158")
def test_reconciling_again_and_again_leaves_every_row_as_it_was(finished: Scenario) -> None:
    def rows() -> list[Any]:
        with finished.services.ledger.reading() as tx:
            return json.loads(json.dumps(tx.rows(sa.select(jobs)), default=str))  # type: ignore[no-any-return]

    finished.play("reconcile")
    before = rows()
    finished.play("reconcile", "reconcile", "reconcile")
    assert rows() == before
