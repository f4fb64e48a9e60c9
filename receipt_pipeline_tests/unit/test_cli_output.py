"""What every command promises: exit status by kind of answer, one JSON document, text for people."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from receipt_pipeline import cli
from receipt_pipeline.cli import output
from receipt_pipeline.cli.main import PANELS, app
from receipt_pipeline.cli.output import Exit, exit_status, format_time, format_value, plain
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
from receipt_pipeline.core.reasons import NOT_FOUND, REASONS, STORAGE_FULL
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline_tests.intake_home import as_bytes, job_document, names_in


class Answer:
    """A command's exit status and what it printed."""

    def __init__(self, result: Any) -> None:
        self.status = result.exit_code
        self.text: str = result.stdout
        self.errors: str = result.stderr

    @property
    def document(self) -> Any:
        return json.loads(self.text)

    def assert_explains(self, code: str) -> None:
        said = " ".join(self.errors.split())
        for part in (code, REASONS[code].meaning, REASONS[code].next_step):
            assert " ".join(part.split()) in said


Receipts = Callable[..., Answer]


@pytest.fixture
def receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Receipts:
    monkeypatch.setenv("RECEIPTS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RECEIPTS_IMAGE_DIGEST", digest_of("image"))
    for console in (output.stdout, output.stderr):
        monkeypatch.setattr(console, "width", 400)
    return lambda *arguments: Answer(CliRunner().invoke(app, list(map(str, arguments))))


def a_manifest(folder: Path, *, count: int = 1, key: str = "key-1") -> Path:
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


@pytest.mark.parametrize("command", [("jobs",), ("release", "list"), ("investigations", "list"), ("tasks", "list")])
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
    assert "Already accepted: job" in again.text
    assert "Nothing is decided yet" in again.text
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
    answer = receipts("release", "retire", "2027-01")
    assert answer.status == Exit.NOT_FOUND
    answer.assert_explains("NOT_PERMITTED.v1")
    assert "needed: operator" in answer.errors


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


def test_a_setting_that_cannot_be_used_is_explained(receipts: Receipts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIPTS_LIMIT_WAVE_SLOTS", "many")
    answer = receipts("jobs")
    assert answer.status == Exit.USAGE
    answer.assert_explains("SETTING.INVALID.v1")
    assert "RECEIPTS_LIMIT_WAVE_SLOTS" in answer.errors


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


def test_a_canceled_job_says_what_stopped_and_cannot_be_canceled_again(receipts: Receipts, tmp_path: Path) -> None:
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


def test_help_groups_every_command_by_role(receipts: Receipts) -> None:
    text = receipts("--help").text
    at = [text.index(f"─ {panel} ─") for panel in PANELS]
    assert at == sorted(at)
    assert sum(len(commands) for commands in PANELS.values()) == len(app.registered_commands) + len(
        app.registered_groups
    )


def test_people_read_times_digests_and_counts_instead_of_literals() -> None:
    moment = dt.datetime(2026, 11, 30, 18, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert format_time(moment) == "30 Nov 2026, 17:00 UTC"
    shown = {
        None: "none",
        True: "yes",
        2.0: "2",
        "2026-11-30T18:00:00.5+00:00": "30 Nov 2026, 18:00 UTC",
        "sha256:" + "ab" * 32: "abababababab",
    }
    assert {value: format_value(value) for value in shown} == shown
    assert format_value({"accepted": 2, "failed": 0, "lost": 1}) == "2 accepted, 1 lost"
    assert format_value({"by_hand": [1, "x"], "of": {"kind": "a"}, "empty": []}) == "by hand: 1, x, of (kind: a)"


@pytest.mark.parametrize("audience", ["customer", "support", "engineering"])
def test_a_status_for_people_contains_no_python_literal(receipts: Receipts, tmp_path: Path, audience: str) -> None:
    job_id = receipts("submit", a_manifest(tmp_path / "in", count=2), "--json").document["job_id"]
    receipts("cancel", job_id)
    shown = receipts("status", job_id, "--audience", audience)
    assert shown.status == Exit.DONE
    assert not re.search(r"[{}\[\]]|None|True|False|datetime", shown.text), shown.text


def test_times_and_sets_become_plain_json() -> None:
    moment = dt.datetime(2026, 11, 28, 8, tzinfo=dt.UTC)
    assert plain({"at": moment, 1: (moment, {"a"})}) == {
        "at": "2026-11-28T08:00:00+00:00",
        "1": ["2026-11-28T08:00:00+00:00", ["a"]],
    }


def test_what_a_caller_wrote_is_printed_as_it_is(receipts: Receipts, tmp_path: Path) -> None:
    key = "[/red] [bold]odd[/]"
    answer = receipts("submit", a_manifest(tmp_path / "in", key=key))
    assert answer.status == Exit.DONE
    assert key in answer.text
    assert receipts("report", "--json").status == Exit.DONE
    row = receipts("report", "--published", "--sql", f"SELECT '{key}' AS \"[bold]\"")
    assert (row.status, "[bold]" in row.text, key in row.text) == (Exit.DONE, True, True)


def test_a_query_answers_in_strict_json_and_a_refused_one_is_wrong_input(receipts: Receipts, tmp_path: Path) -> None:
    receipts("report")
    answer = receipts("report", "--published", "--json", "--sql", "SELECT 'nan'::DOUBLE AS a, 0.5 AS b")
    assert answer.text == '[\n {\n  "a": "nan",\n  "b": "0.5"\n }\n]\n'
    for sql in ("SELEC 1", "DROP TABLE jobs", "-- nothing"):
        refused = receipts("report", "--published", "--sql", sql)
        assert refused.status == Exit.USAGE
        refused.assert_explains("REPORT.SQL.v1")


@pytest.mark.parametrize("cutoff", ["tomorrow", "2026-11-29T06:00:00", "0001-01-01T00:00:00+14:00"])
def test_a_cutoff_that_is_no_time_is_refused_before_anything_is_published(
    receipts: Receipts, tmp_path: Path, cutoff: str
) -> None:
    answer = receipts("report", "--cutoff", cutoff)
    assert answer.status == Exit.USAGE
    answer.assert_explains("FIELD.INVALID.v1")
    assert names_in(tmp_path / "home" / "report") == set()


def test_waiting_for_a_submission_that_was_refused_says_why(receipts: Receipts, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    answer = receipts("submit", empty, "--wait", "--json")
    assert answer.status == Exit.USAGE
    assert answer.document["reason"]["code"] == "ITEMS.EMPTY.v1"
    answer.assert_explains("ITEMS.EMPTY.v1")


def test_an_empty_word_is_no_path_and_no_key(receipts: Receipts, tmp_path: Path) -> None:
    scan = a_manifest(tmp_path / "in").parent / "scans" / "1.png"
    for arguments in ([""], [scan, "--key", ""], [scan, "--key", " "], [scan, "--key", "k" * 201]):
        answer = receipts("submit", *arguments)
        assert answer.status == Exit.USAGE
        answer.assert_explains("FIELD.INVALID.v1")
    assert receipts("jobs", "--json").document == []


def test_a_full_disk_is_not_the_submitters_mistake(
    receipts: Receipts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object, **_named: object) -> None:
        raise ObjectFault(STORAGE_FULL, cause="ENOSPC")

    monkeypatch.setattr(LocalObjectStore, "copy_in", full)
    answer = receipts("submit", a_manifest(tmp_path / "in"))
    assert answer.status == Exit.INFRASTRUCTURE
    answer.assert_explains("STORAGE.FULL.v1")


@pytest.mark.parametrize("alias", ["", "a b", "../up", "2027-01", "sha256:" + "0" * 64])
def test_an_alias_that_is_no_name_or_hides_a_release_is_refused(receipts: Receipts, alias: str) -> None:
    answer = receipts("release", "promote", "2027-01", "--alias", alias)
    assert answer.status == Exit.USAGE
    answer.assert_explains("FIELD.INVALID.v1")
    names = {name for row in receipts("release", "list", "--json").document for name in row["aliases"]}
    assert names == {"production", "previous"}


def test_a_home_that_cannot_be_made_and_a_broken_ledger_are_explained(
    receipts: Receipts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    file = tmp_path / "file"
    file.write_text("no folder")
    monkeypatch.setenv("RECEIPTS_HOME", str(file))
    answer = receipts("jobs")
    assert answer.status == Exit.USAGE
    answer.assert_explains("SETTING.INVALID.v1")
    half = tmp_path / "half"
    half.mkdir()
    (half / "report").write_text("no folder")
    monkeypatch.setenv("RECEIPTS_HOME", str(half))
    answer = receipts("report")
    assert answer.status == Exit.USAGE
    answer.assert_explains("SETTING.INVALID.v1")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "ledger.db").write_text("this is no database " * 500)
    monkeypatch.setenv("RECEIPTS_HOME", str(broken))
    answer = receipts("jobs")
    assert answer.status == Exit.INFRASTRUCTURE
    answer.assert_explains("LEDGER.UNAVAILABLE.v1")


def test_a_table_that_would_break_its_ids_is_printed_row_by_row(
    receipts: Receipts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = receipts("submit", a_manifest(tmp_path / "in"), "--json").document["job_id"]
    monkeypatch.setattr(output.stdout, "width", 60)
    assert f"job id: {job_id}\n" in receipts("jobs").text


def test_an_interruption_while_a_command_still_loads_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    cli._report_interruption(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "Stopped before anything was started.\n"
    cli._report_interruption(ValueError, ValueError("a defect"), None)
    assert "ValueError: a defect" in capsys.readouterr().err
