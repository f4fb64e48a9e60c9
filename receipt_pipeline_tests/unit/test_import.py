"""A file of a legacy system's jobs: every row is accounted for, and the same file again changes nothing."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from receipt_pipeline.app import admin, analyst, maintenance, operator, submitter
from receipt_pipeline.cli import output
from receipt_pipeline.cli.main import app
from receipt_pipeline.core.errors import InputRefused, NotAllowed
from receipt_pipeline.core.principals import Role
from receipt_pipeline.ledger.schema.admin import imported_jobs
from receipt_pipeline.ledger.schema.jobs import submission_rows
from receipt_pipeline_tests.conformance.ledger_rows import all_rows
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

HEADER = "external_id,state,submitted_at,ended_at,items,caller,idempotency_key,decision"
ROWS = (
    "1,DONE,2026-11-27T08:00:00Z,2026-11-27T09:00:00Z,3,kim,key-1,review",
    "2,Error,2026-11-27T08:00:00+01:00,2026-11-27T09:00:00Z,,,,",
    "3,running,2026-11-27T08:00:00Z,,2,,,",
    "4,cancelled,2026-11-27T08:00:00Z,2026-11-27T08:30:00Z,1,,,",
)
STATES = ("done=complete", "error=attempts_exhausted", "cancelled=canceled", "running=open", "queued=open")
OPTIONS = ("--origin", "old", *(word for state in STATES for word in ("--state", state)))
BAD_ROWS = {
    "5,half-baked,2026-11-27T08:00:00Z,2026-11-27T08:30:00Z,,,,": ("IMPORT.STATE_UNKNOWN.v1", "/rows/4/state"),
    "6,DONE,2026-11-27T08:00:00Z,,,,,": ("FIELD.MISSING.v1", "/rows/5/ended_at"),
    "7,DONE,yesterday,2026-11-27T08:30:00Z,,,,": ("FIELD.INVALID.v1", "/rows/6/submitted_at"),
    "8,DONE,2026-11-27T08:00:00Z,2026-11-27T07:30:00Z,,,,": ("FIELD.INVALID.v1", "/rows/7/submitted_at"),
    "9,queued,2026-11-27T08:00:00Z,2026-11-27T08:30:00Z,,,,": ("FIELD.INVALID.v1", "/rows/8/ended_at"),
    "10,DONE,2026-11-27T08:00:00Z,2026-11-27T08:30:00Z,none,,,": ("FIELD.INVALID.v1", "/rows/9/items"),
    ",DONE,2026-11-27T08:00:00Z,2026-11-27T08:30:00Z,,,,": ("FIELD.MISSING.v1", "/rows/10/external_id"),
    "12,DONE,2026-11-27T08:00:00Z,2026-11-27T08:30:00Z,,,,maybe": ("FIELD.INVALID.v1", "/rows/11/decision"),
    "1,ERROR,2026-11-27T08:00:00Z,2026-11-27T09:00:00Z,3,kim,key-1,review": ("IMPORT.CONFLICT.v1", ""),
}


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    opened = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    monkeypatch.setattr(output, "open_app", lambda _settings: opened.app)
    return opened


def a_file(folder: Path, *rows: str, header: str = HEADER, name: str = "old.csv") -> Path:
    path = folder / name
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def imported(home: OpenedHome, path: Path, *states: str) -> dict[str, Any]:
    return admin.import_legacy_jobs(home.app, home.principal, path, origin="old", states=states or STATES).as_document()


def counts(answer: dict[str, Any]) -> tuple[int, ...]:
    told = tuple(answer[name] for name in ("imported", "known", "ended", "conflict", "refused"))
    assert sum(told) == answer["rows"]
    return told


@pytest.mark.requirement("R150")
def test_every_row_is_taken_over_or_refused_by_code_and_the_totals_balance(home: OpenedHome, tmp_path: Path) -> None:
    answer = imported(home, a_file(tmp_path, *ROWS, *BAD_ROWS))
    assert counts(answer) == (4, 0, 0, 1, 8)
    classes = {"attempts_exhausted": 1, "canceled": 1, "complete": 1, "investigation": 1}
    assert answer["classes"] == classes
    told = [(line["code"], line["pointer"]) for line in answer["rejected"]]
    assert told == list(BAD_ROWS.values())
    recorded = all_rows(home.app.ledger, submission_rows)
    assert Counter(row["outcome"] for row in recorded) == {"accepted": 4, "conflict": 1, "refused": 8}
    status = submitter.read_submission(home.app, home.principal, answer["submission_id"])
    assert status["rows"] == {"accepted": 4, "joined": 0, "refused": 8, "conflicts": 1}
    assert all(row["terminal_class"] or row["investigation_id"] for row in all_rows(home.app.ledger, imported_jobs))


@pytest.mark.requirement("R150")
def test_a_file_that_comes_twice_is_taken_over_once(home: OpenedHome, tmp_path: Path) -> None:
    path = a_file(tmp_path, *ROWS)
    assert counts(imported(home, path)) == (4, 0, 0, 0, 0)
    before = all_rows(home.app.ledger, imported_jobs)
    assert counts(imported(home, path)) == (0, 4, 0, 0, 0)
    assert all_rows(home.app.ledger, imported_jobs) == before


def test_an_import_that_was_ended_half_way_is_completed_by_the_same_command(
    home: OpenedHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receipt_pipeline.intake.legacy_import.ROWS_AT_ONCE", 2)
    path = a_file(tmp_path, *ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(
            "receipt_pipeline.intake.legacy_import._count", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            imported(home, path)
    assert len(all_rows(home.app.ledger, imported_jobs)) == 2
    assert counts(imported(home, path)) == (2, 2, 0, 0, 0)


def test_json_lines_hold_the_same_rows_as_csv(home: OpenedHome, tmp_path: Path) -> None:
    imported(home, a_file(tmp_path, *ROWS))
    rows = [{name: text for name, text in row.items() if text} for row in csv.DictReader([HEADER, *ROWS])]
    lines = [json.dumps(row | ({"items": int(row["items"])} if "items" in row else {})) for row in rows]
    path = tmp_path / "old.jsonl"
    path.write_text("\n".join(lines))
    assert counts(imported(home, path)) == (0, 4, 0, 0, 0)


@pytest.mark.requirement("R150")
def test_no_state_is_guessed(home: OpenedHome, tmp_path: Path) -> None:
    answer = imported(home, a_file(tmp_path, *ROWS), "done=complete")
    assert counts(answer) == (1, 0, 0, 0, 3)
    assert {line["code"] for line in answer["rejected"]} == {"IMPORT.STATE_UNKNOWN.v1"}


def test_the_operator_maps_the_states_of_the_legacy_system(home: OpenedHome, tmp_path: Path) -> None:
    path = a_file(
        tmp_path,
        "1,Wurst,2026-11-27T08:00:00Z,2026-11-27T09:00:00Z,,,,",
        "2,Käse,2026-11-27T08:00:00Z,,,,,",
        "3,failed,2026-11-27T08:00:00Z,2026-11-27T09:00:00Z,,,,",
    )
    answer = imported(home, path, "WURST=partial", "käse=open", "failed=rejected")
    assert answer["classes"] == {"investigation": 1, "partial": 1, "rejected": 1}
    for wrong in ("failed", "=complete", "failed=great"):
        with pytest.raises(InputRefused, match=r"FIELD\.INVALID\.v1"):
            imported(home, path, wrong)


def test_a_file_that_is_no_table_of_jobs_is_refused_whole_and_nothing_is_recorded(
    home: OpenedHome, tmp_path: Path
) -> None:
    refused = {
        tmp_path / "absent.csv": "IMPORT.UNREADABLE.v1",
        a_file(tmp_path, header="external_id,state", name="short.csv"): "FIELD.MISSING.v1",
        a_file(tmp_path, header=f"{HEADER},error_text", name="wide.csv"): "FIELD.UNKNOWN.v1",
        a_file(tmp_path, ROWS[0], '2,"open', name="torn.csv"): "FIELD.INVALID.v1",
        a_file(tmp_path, name="no.parquet"): "IMPORT.UNREADABLE.v1",
    }
    for path, code in refused.items():
        with pytest.raises(InputRefused) as error:
            imported(home, path)
        assert error.value.reason.code == code
    assert all_rows(home.app.ledger, submission_rows) == []


def test_the_name_of_the_legacy_system_cannot_be_ours(home: OpenedHome, tmp_path: Path) -> None:
    for origin in ("here", "", "a/b"):
        with pytest.raises(InputRefused, match=r"FIELD\.INVALID\.v1"):
            admin.import_legacy_jobs(home.app, home.principal, a_file(tmp_path, *ROWS), origin=origin, states=())


def test_only_an_operator_imports(home: OpenedHome, tmp_path: Path) -> None:
    object.__setattr__(home.app.settings, "roles", frozenset({Role.SUBMITTER}))
    with pytest.raises(NotAllowed, match=r"NOT_PERMITTED\.v1"):
        imported(home, a_file(tmp_path, *ROWS))


@pytest.mark.requirement("R150")
def test_the_account_tells_imported_jobs_apart_and_is_red_only_without_an_owner(
    home: OpenedHome, tmp_path: Path
) -> None:
    maintenance.sweep_objects(home.app)
    own = home.submit("own")
    imported(home, a_file(tmp_path, *ROWS))
    document = analyst.read_report(home.app, home.principal)
    assert (document["accepted"], document["succeeded"], document["verified_succeeded"]) == (1, 0, 0)
    classes = {"attempts_exhausted": 1, "canceled": 1, "complete": 1}
    told = {"total": 4, "terminal": 3, "decided": 0, "open": 1, "classes": classes}
    assert document["imported"] == told
    [open_id] = document["imported_open"]
    assert (document["state"], document["gate"]) == ("investigate", "pass")
    maintenance.publish_report(home.app)
    rows = analyst.query_report(home.app, home.principal, "SELECT * FROM job_report ORDER BY origin, terminal_class")
    assert [(row["origin"], row["state"]) for row in rows] == [("here", "accepted"), *[("old", "imported")] * 4]
    assert {row["output_check"] for row in rows if row["origin"] == "old"} == {"not verified here"}
    assert rows[0]["job_id"] == own
    for row in rows:
        events = analyst.query_report(home.app, home.principal, row["evidence_query"])
        assert {event["job_id"] for event in events} == {row["job_id"]}
    assert analyst.query_report(home.app, home.principal, "SELECT sum(jobs) AS n FROM time_to_reconciled_truth") == [
        {"n": 1}
    ]
    [question] = operator.list_investigations(home.app, home.principal, only_open=True)
    assert question["job_id"] == open_id
    home.clock.advance(home.app.settings.limits.staffing.investigation_deadline_s + 1)
    late = analyst.read_report(home.app, home.principal)
    assert (late["gate"], late["unowned"]) == ("fail", [f"imported_open:{open_id}", f"unowned_question:{open_id}"])
    operator.resolve_investigation(home.app, home.principal, question["investigation_id"], note="never ran")
    decided = analyst.read_report(home.app, home.principal)
    assert (decided["imported"]["decided"], decided["imported_open"]) == (1, [])


@pytest.mark.requirement("R150")
def test_two_systems_with_the_same_requests_are_compared_by_key(home: OpenedHome, tmp_path: Path) -> None:
    ids = {key: home.submit(key) for key in ("agree", "differ", "open-here", "only-here")}
    home.clock.advance(3600)
    for wave in home.dispatch():
        home.run_wave(wave)
    ids["open-here"] = home.submit("open-too")
    began = "2026-11-28T08:00:00Z,2026-11-28T08:30:00Z"
    path = a_file(
        tmp_path,
        f"1,done,{began},1,,agree,",
        f"2,rejected,{began},1,,differ,",
        "3,running,2026-11-28T08:00:00Z,,1,,open-here,",
        f"4,done,{began},1,,only-there,",
        f"5,done,{began},1,,,",
    )
    imported(home, path, *STATES, "rejected=rejected")
    maintenance.publish_report(home.app)
    rows = analyst.query_report(home.app, home.principal, "SELECT * FROM rollout_comparison")
    told = {row["idempotency_key"]: row["verdict"] for row in rows}
    assert told == {
        "agree": "agree",
        "differ": "differ",
        "open-here": "open",
        "only-here": "missing there",
        "only-there": "missing here",
    }
    assert next(row["job_id"] for row in rows if row["verdict"] == "differ") == ids["differ"]


def test_the_command_prints_the_totals_writes_the_list_and_shows_the_record(home: OpenedHome, tmp_path: Path) -> None:
    path, target = a_file(tmp_path, *ROWS, *BAD_ROWS), tmp_path / "rejected.csv"
    run = CliRunner().invoke(app, ["import", str(path), *OPTIONS, "--rejections", str(target)])
    assert run.exit_code == 2
    assert "13 rows of old: 4 imported" in run.output
    with target.open(newline="") as handle:
        listed = list(csv.DictReader(handle))
    assert [line["code"] for line in listed] == [code for code, _ in BAD_ROWS.values()]
    again = CliRunner().invoke(app, ["import", str(a_file(tmp_path, *ROWS)), *OPTIONS, "--json"])
    assert (again.exit_code, json.loads(again.output)["known"]) == (0, 4)
    first = next(row for row in all_rows(home.app.ledger, imported_jobs) if row["external_id"] == "1")
    shown = CliRunner().invoke(app, ["status", first["job_id"]])
    assert shown.exit_code == 0
    assert shown.output.index("Outcome:") < shown.output.index("Evidence") < shown.output.index("Identity")


def test_a_list_that_cannot_be_written_is_refused_before_anything_is_imported(home: OpenedHome, tmp_path: Path) -> None:
    path = str(a_file(tmp_path, *ROWS))
    for target in (tmp_path, tmp_path / "nowhere" / "rejected.csv"):
        run = CliRunner().invoke(app, ["import", path, "--origin", "old", "--rejections", str(target), "--json"])
        assert (run.exit_code, json.loads(run.stdout)["error"]["code"]) == (2, "FIELD.INVALID.v1")
    assert all_rows(home.app.ledger, imported_jobs) == []


def test_the_way_back_is_asked_for_twice_and_never_under_running_services(
    home: OpenedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = CliRunner().invoke(app, ["rollback", "0001", "--json"])
    assert (asked.exit_code, json.loads(asked.stdout)["error"]["code"]) == (2, "FIELD.INVALID.v1")
    with monkeypatch.context() as patch:
        patch.setattr("receipt_pipeline.app.admin.is_served", lambda settings: True)
        served = CliRunner().invoke(app, ["rollback", "0001", "--yes", "--json"])
    assert json.loads(served.stdout)["error"]["code"] == "ROLLBACK.SERVED.v1"
    assert all_rows(home.app.ledger, imported_jobs) == []
    done = CliRunner().invoke(app, ["rollback", "0001", "--yes", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["dropped"]) == (0, [])
