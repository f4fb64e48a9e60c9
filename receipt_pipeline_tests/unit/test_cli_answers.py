"""What every command promises: exit status by kind of answer, one JSON document, errors that help."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from receipt_pipeline.cli import answers
from receipt_pipeline.cli.answers import Exit, exit_status, plain
from receipt_pipeline.cli.main import app
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import (
    IdentityMismatch,
    InputRefused,
    KeyConflict,
    LeaseLost,
    LedgerUnavailable,
    NotAllowed,
    NotFound,
    ObjectFault,
    PipelineError,
    ReportFault,
)
from receipt_pipeline.core.reasons import NOT_FOUND, REASONS
from receipt_pipeline_tests.intake_home import as_bytes, job_document


class Answer:
    """A command's exit status and what it printed."""

    def __init__(self, result: Any) -> None:
        self.status = result.exit_code
        self.text: str = result.stdout
        self.remarks: str = result.stderr

    @property
    def document(self) -> Any:
        """Return the one JSON document on standard output."""
        return json.loads(self.text)

    def assert_explains(self, code: str) -> None:
        """Assert that people are told the code, its meaning and the next step."""
        said = " ".join(self.remarks.split())
        for part in (code, REASONS[code].meaning, REASONS[code].next_step):
            assert " ".join(part.split()) in said


Receipts = Callable[..., Answer]


@pytest.fixture
def receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Receipts:
    """Runs one command in a home of this test's own."""
    monkeypatch.setenv("RECEIPTS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECEIPTS_IMAGE_DIGEST", digest_of("image"))
    for console in (answers.people, answers.remarks):
        monkeypatch.setattr(console, "width", 400)
    return lambda *arguments: Answer(CliRunner().invoke(app, list(map(str, arguments))))


def a_manifest(folder: Path, *, count: int = 1, key: str = "key-1") -> Path:
    """Write a manifest and its scans."""
    document = job_document(folder, count=count, key=key)
    path = folder / "manifest.json"
    path.write_bytes(as_bytes(document))
    return path


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (InputRefused, Exit.USAGE),
        (KeyConflict, Exit.CONFLICT),
        (NotFound, Exit.NOT_FOUND),
        (NotAllowed, Exit.NOT_FOUND),
        (LedgerUnavailable, Exit.INFRASTRUCTURE),
        (ObjectFault, Exit.INFRASTRUCTURE),
        (ReportFault, Exit.INFRASTRUCTURE),
        (IdentityMismatch, Exit.INFRASTRUCTURE),
        (LeaseLost, Exit.INFRASTRUCTURE),
        (PipelineError, Exit.INFRASTRUCTURE),
    ],
)
def test_every_kind_of_error_has_its_exit_status(kind: type[PipelineError], status: Exit) -> None:
    assert exit_status(kind(NOT_FOUND)) is status


def test_the_exit_statuses_are_stable() -> None:
    assert [(status.name, int(status)) for status in Exit] == [
        ("DONE", 0),
        ("BAD_NEWS", 1),
        ("USAGE", 2),
        ("CONFLICT", 3),
        ("NOT_FOUND", 4),
        ("INFRASTRUCTURE", 5),
    ]


@pytest.mark.parametrize(
    "command", [("jobs",), ("release", "list"), ("investigations", "list"), ("tasks", "list")]
)
def test_a_list_is_one_json_document_and_done(receipts: Receipts, command: tuple[str, ...]) -> None:
    answer = receipts(*command, "--json")
    assert answer.status == Exit.DONE
    assert isinstance(answer.document, list)
    assert receipts(*command).status == Exit.DONE


def test_an_acceptance_is_done_and_says_that_it_decides_nothing(receipts: Receipts, tmp_path: Path) -> None:
    manifest = a_manifest(tmp_path / "in")
    first = receipts("submit", manifest, "--json")
    assert first.status == Exit.DONE
    assert first.document["replayed"] is False
    again = receipts("submit", manifest)
    assert again.status == Exit.DONE
    assert "already accepted (replayed)" in again.text
    assert "accepted is not decided" in again.text
    status = receipts("status", first.document["job_id"], "--json")
    assert (status.status, status.document["state"]) == (Exit.DONE, "accepted")
    assert receipts("status", first.document["job_id"]).status == Exit.DONE


@pytest.mark.requirement("R019")
def test_another_request_under_a_used_key_is_a_conflict(receipts: Receipts, tmp_path: Path) -> None:
    assert receipts("submit", a_manifest(tmp_path / "one")).status == Exit.DONE
    answer = receipts("submit", a_manifest(tmp_path / "two", count=2))
    assert answer.status == Exit.CONFLICT
    answer.assert_explains("KEY.CONFLICT.v1")
    assert len(receipts("jobs", "--json").document) == 1


def test_an_unknown_job_is_not_found(receipts: Receipts) -> None:
    for command in ("status", "result", "cancel"):
        answer = receipts(command, "job_unknown")
        assert answer.status == Exit.NOT_FOUND
        answer.assert_explains("NOT_FOUND.v1")
        assert answer.text == ""


def test_an_error_is_one_json_document_too(receipts: Receipts) -> None:
    answer = receipts("status", "job_unknown", "--json")
    assert answer.status == Exit.NOT_FOUND
    error = answer.document["error"]
    assert (error["code"], error["meaning"]) == ("NOT_FOUND.v1", NOT_FOUND.meaning)
    assert error["next_step"] == NOT_FOUND.next_step


def test_what_the_role_does_not_permit_is_not_found_and_names_the_role(
    receipts: Receipts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECEIPTS_ROLES", "analyst")
    answer = receipts("release", "retire", "2026-10")
    assert answer.status == Exit.NOT_FOUND
    answer.assert_explains("NOT_PERMITTED.v1")
    assert "operator" in answer.remarks


@pytest.mark.parametrize(
    "command",
    [
        ("status", "job_unknown", "--audience", "everyone"),
        ("jobs", "--state", "lost"),
        ("report", "--cutoff", "yesterday", "--published"),
        ("submit", "no-such-file.json"),
        ("jobs", "--no-such-option"),
        ("no-such-command",),
    ],
)
def test_what_cannot_be_understood_is_an_error_of_usage(receipts: Receipts, command: tuple[str, ...]) -> None:
    assert receipts(*command).status == Exit.USAGE


def test_a_setting_that_cannot_be_used_is_explained(
    receipts: Receipts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECEIPTS_LIMIT_WAVE_SLOTS", "many")
    answer = receipts("jobs")
    assert answer.status == Exit.USAGE
    answer.assert_explains("SETTING.INVALID.v1")
    assert "RECEIPTS_LIMIT_WAVE_SLOTS" in answer.remarks


def test_a_ledger_that_cannot_be_reached_is_infrastructure(
    receipts: Receipts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "ledger.db").mkdir(parents=True)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    answer = receipts("jobs", "--json")
    assert answer.status == Exit.INFRASTRUCTURE
    assert answer.document["error"]["code"] == "LEDGER.UNAVAILABLE.v1"
    answer.assert_explains("LEDGER.UNAVAILABLE.v1")


def test_a_gate_that_fails_is_bad_news_and_still_one_document(receipts: Receipts) -> None:
    answer = receipts("report", "--json")
    assert answer.status == Exit.BAD_NEWS
    assert (answer.document["state"], answer.document["gate"]) == ("empty", "fail")
    query = receipts("report", "--published", "--sql", "SELECT count(*) AS jobs FROM jobs", "--json")
    assert (query.status, query.document) == (Exit.DONE, [{"jobs": 0}])


def test_a_canceled_job_says_what_stopped_and_cannot_be_canceled_again(
    receipts: Receipts, tmp_path: Path
) -> None:
    job_id = receipts("submit", a_manifest(tmp_path / "in", count=2), "--json").document["job_id"]
    answer = receipts("cancel", job_id)
    assert answer.status == Exit.DONE
    assert "2 items stopped" in answer.text
    again = receipts("cancel", job_id)
    assert again.status == Exit.NOT_FOUND
    again.assert_explains("STATE.REFUSES.v1")


def test_a_decision_of_an_accepted_job_is_not_there_yet(receipts: Receipts, tmp_path: Path) -> None:
    job_id = receipts("submit", a_manifest(tmp_path / "in"), "--json").document["job_id"]
    answer = receipts("result", job_id, "--json")
    assert answer.status == Exit.NOT_FOUND
    assert answer.document["error"]["code"] == "RESULT.NOT_READY.v1"


def test_times_and_sets_become_plain_json() -> None:
    moment = dt.datetime(2026, 11, 28, 8, tzinfo=dt.UTC)
    assert plain({"at": moment, 1: (moment, {"a"})}) == {
        "at": "2026-11-28T08:00:00+00:00",
        "1": ["2026-11-28T08:00:00+00:00", ["a"]],
    }
