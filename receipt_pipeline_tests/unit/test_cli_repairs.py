"""Commands that repair one job: what they ask for, what they print, and their exit status."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.cli import output
from receipt_pipeline.cli.main import app
from receipt_pipeline.core.items import ItemOutcome
from receipt_pipeline.ledger.schema.jobs import submissions
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import ScriptedChain
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

Receipts = Callable[..., Any]


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    monkeypatch.setattr(output, "open_app", lambda _settings: home.app)
    for console in (output.stdout, output.stderr):
        monkeypatch.setattr(console, "width", 400)
    return home


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


def an_expired_job(home: OpenedHome) -> str:
    job_id = home.submit("late", items=2, limits={"max_queue_age_s": 60})
    home.clock.advance(61)
    maintenance.reconcile_ledger(home.app)
    return job_id


def test_a_retry_wants_to_be_looked_at_or_confirmed_first(home: OpenedHome) -> None:
    job_id = an_expired_job(home)
    for arguments in (("retry", job_id), ("retry", job_id, "--unresolved")):
        refused = run(*arguments)
        assert (refused.exit_code, "FIELD.INVALID.v1" in refused.stderr) == (2, True)
    looked = run("retry", job_id, "--unresolved", "--preview")
    assert looked.exit_code == 0
    assert "2 items would be retried" in looked.stdout
    assert len(submitter.list_jobs(home.app, home.principal)) == 1
    scope = json.loads(run("retry", job_id, "--unresolved", "--preview", "--json").stdout)
    assert [unit["item_id"] for unit in scope["touched"]] == ["r-001", "r-002"]
    started = json.loads(run("retry", job_id, "--yes", "--json").stdout)
    assert (started["parent"], started["replayed"], len(submitter.list_jobs(home.app, home.principal))) == (
        job_id,
        False,
        2,
    )
    again = run("retry", job_id, "--unresolved", "--yes")
    assert f"Joined the existing child job with 2 items of {job_id}: {started['job_id']}" in again.stdout


@pytest.mark.requirement("R106")
def test_the_next_action_and_its_command_can_be_read_from_the_status_alone(home: OpenedHome) -> None:
    job_id = an_expired_job(home)
    for audience in ("customer", "support", "engineering"):
        shown = run("status", job_id, "--audience", audience)
        assert f"receipts retry {job_id} --preview" in shown.stdout
    child_id = json.loads(run("retry", job_id, "--unresolved", "--yes", "--json").stdout)["job_id"]
    for audience in ("customer", "support", "engineering"):
        shown = run("status", job_id, "--audience", audience)
        assert f"(`receipts status {child_id}`)" in shown.stdout


@pytest.mark.requirement("R101")
def test_the_rejection_list_is_written_to_a_file(home: OpenedHome, tmp_path: Path) -> None:
    outcomes: tuple[ItemOutcome, ...] = (builders.an_outcome(), builders.a_rejection())
    job = builders.a_succeeded_job(home.app.ledger, *outcomes)
    target = tmp_path / "refused.csv"
    done = run("result", job.token.job_id, "--rejections", target)
    assert (done.exit_code, "Wrote 1 rejected file to" in done.stdout) == (0, True)
    (line,) = csv.DictReader(target.open())
    assert (line["item_id"], line["reason_code"]) == ("r-002", "SCAN.BROKEN.v1")
    nowhere = run("result", job.token.job_id, "--rejections", tmp_path / "no" / "folder.csv")
    assert nowhere.exit_code == 2


def test_cancel_supersede_and_requeue_say_what_they_did(home: OpenedHome) -> None:
    old, new, third = home.submit("old", items=2), home.submit("new"), home.submit("third")
    assert isinstance(home.chain, ScriptedChain)
    replaced = run("supersede", old, "--by", new)
    assert f"{old} is replaced by {new}: 2 items abandoned (r-001, r-002)" in replaced.stdout
    assert run("supersede", old, "--by", third).exit_code == 4
    assert run("supersede", new, "--by", new).exit_code == 2
    assert "Nothing was changed" in run("requeue", new).stdout
    canceled = run("cancel", new)
    assert "stopped: r-001" in canceled.stdout
    assert "to undo it: None is needed" in canceled.stdout
    assert run("cancel", new).exit_code == run("requeue", new).exit_code == 4


def test_grants_are_given_listed_and_revoked(home: OpenedHome) -> None:
    assert run("grants", "give", "robin", "--roles", "submitter", "--days", "1").exit_code == 0
    assert run("grants", "give", "robin", "--roles", "king").exit_code == 2
    assert run("grants", "give", "no name").exit_code == 2
    assert "The grant of robin is revoked" in run("grants", "revoke", "robin").stdout
    (row,) = json.loads(run("grants", "list", "--json").stdout)
    assert (row["caller"], row["roles"], row["revoked_by"]) == ("robin", ["submitter"], builders.CALLER)


def test_the_status_of_a_submission_is_asked_by_its_id(home: OpenedHome) -> None:
    home.submit("job")
    with home.app.ledger.reading() as tx:
        (row,) = tx.rows(submissions.select())
    shown = json.loads(run("status", row["submission_id"], "--json").stdout)
    assert (shown["state"], shown["progress"]["denominator"]) == ("accepted", 1)
    assert run("status", "sub_unknown").exit_code == 4
