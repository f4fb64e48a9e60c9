"""From every figure of the account to the jobs behind it: its query runs and gives what the figure counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from typer.testing import CliRunner

from receipt_pipeline.accounting.figures import FIGURES, counted
from receipt_pipeline.app import admin, analyst, maintenance
from receipt_pipeline.cli.main import app
from receipt_pipeline_tests.e2e.documented import Documented, documented
from receipt_pipeline_tests.fakes.every_outcome import every_outcome
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home
from receipt_pipeline_tests.suite_results import PROJECT
from receipt_pipeline_tests.unit.test_import import ROWS, STATES, a_file

# What is no aggregate: the verdict and when it was given.
VERDICT = {"state", "gate", "as_of", "cutoff", "seq", "found_by", "imported.classes"}


@pytest.fixture(scope="module")
def home(
    migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OpenedHome, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        opened = open_home(folder / "home", migrated_sqlite, FakeClock(), patch)
        admin.shipped_release_id(opened.app, "production")
        made = every_outcome(opened.bench)
        admin.import_legacy_jobs(opened.app, opened.principal, a_file(folder, *ROWS), origin="old", states=STATES)
        maintenance.sweep_objects(opened.app)
        maintenance.review_alerts(opened.app)
        opened.bench.edit(
            "INSERT INTO events (job_id, tenant, kind, at, data)"
            " SELECT 'job_nobody', tenant, kind, at, data FROM events"
            " WHERE kind = 'terminal' AND job_id = :job",
            job=made["complete"],
        )
        opened.bench.edit("UPDATE jobs SET state = 'expired' WHERE job_id = :job", job=made["canceled"])
        document = dict(maintenance.publish_report(opened.app).document)
        patch.setattr("receipt_pipeline.cli.output.open_app", lambda _settings: opened.app)
        yield opened, document


def leaves(document: Mapping[str, Any], *path: str) -> Iterator[str]:
    for name, value in document.items():
        dotted = ".".join((*path, name))
        if dotted in VERDICT:
            continue
        if isinstance(value, dict) and dotted != "time_to_completion_s":
            yield from leaves(value, *path, name)
        else:
            yield dotted


@pytest.mark.requirement("R146")
def test_every_figure_of_the_account_names_its_query(home: tuple[OpenedHome, dict[str, Any]]) -> None:
    _, document = home
    told = set(leaves(document))
    assert told - set(FIGURES) == set()
    assert {name for name in set(FIGURES) - told if not name.startswith("attempts.")} == set()
    assert document["found_by"] == FIGURES


@pytest.mark.requirement("R146")
@pytest.mark.parametrize("name", FIGURES)
def test_a_figures_query_gives_a_row_for_everything_it_counts(
    home: tuple[OpenedHome, dict[str, Any]], name: str
) -> None:
    opened, document = home
    rows = analyst.query_report(opened.app, opened.principal, FIGURES[name])
    if name == "time_to_completion_s":
        assert rows[0]["total_s"] == document[name]["max"]
        return
    assert len(rows) == counted(document, name)
    value = document.get(name)
    if isinstance(value, list) and value and isinstance(value[0], str):
        key = next(iter(rows[0]))
        assert sorted(str(row[key]) for row in rows) == sorted(value)


@pytest.mark.requirement("R146")
def test_every_row_leads_to_its_job(home: tuple[OpenedHome, dict[str, Any]]) -> None:
    opened, _ = home
    seen = set()
    for name, query in FIGURES.items():
        for row in analyst.query_report(opened.app, opened.principal, query):
            job_id, shown = row.get("job_id"), row.get("status_command")
            if job_id is None or shown is None:
                continue
            assert shown == f"receipts status {job_id}", name
            seen.add(job_id)
    for job_id in sorted(seen - {"job_nobody"}):
        shown = CliRunner().invoke(app, ["status", job_id])
        assert shown.exit_code == 0, job_id
    assert len(seen) > 15


def test_a_figure_is_listed_by_its_name_on_the_command_line(home: tuple[OpenedHome, dict[str, Any]]) -> None:
    _, document = home
    run = CliRunner().invoke(app, ["report", "--published", "--figure", "failed"])
    assert run.exit_code == 0
    assert FIGURES["failed"] in run.stdout
    rows = CliRunner().invoke(app, ["report", "--published", "--figure", "failed", "--json"])
    assert len(json.loads(rows.stdout)) == document["failed"]
    wrong = CliRunner().invoke(app, ["report", "--published", "--figure", "nothing"])
    assert wrong.exit_code == 2


COOKBOOK = [entry for entry in documented("sql") if entry.place.startswith(("analysts", "rollout"))]


def test_the_cookbook_has_twenty_questions_and_more() -> None:
    assert len(COOKBOOK) >= 20


@pytest.mark.parametrize("query", COOKBOOK, ids=lambda query: query.place)
def test_a_question_of_the_cookbook_is_answered_alike_from_duckdb_and_pandas(
    home: tuple[OpenedHome, dict[str, Any]], query: Documented
) -> None:
    opened, _ = home
    told = analyst.query_report(opened.app, opened.principal, query.text)
    with duckdb.connect(str(opened.app.accountant.published), read_only=True) as report:
        report.execute("SET TimeZone = 'UTC'")
        rows = report.execute(query.text).fetchall()
        frame = report.execute(query.text).df()
    assert sorted(map(repr, rows)) == sorted(repr(tuple(row.values())) for row in told)
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == len(told)
    if told:
        assert list(frame.columns) == list(told[0])


def test_the_command_line_of_an_older_duckdb_answers_the_cookbook_alike(
    home: tuple[OpenedHome, dict[str, Any]],
) -> None:
    opened, _ = home
    published = str(opened.app.accountant.published)
    assert version("duckdb-cli").split(".")[0] < version("duckdb").split(".")[0]
    for query in COOKBOOK:
        asked = [sys.executable, "-m", "duckdb_cli", "-readonly", "-json", published, query.text]
        answer = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout
        rows = json.loads(answer) if answer.strip() else []
        told = analyst.query_report(opened.app, opened.principal, query.text)
        assert [list(row) for row in rows] == [list(row) for row in told], query.place
        plain = [
            name for name in (told[0] if told else ()) if all(isinstance(row[name], str | int | None) for row in told)
        ]
        assert sorted(repr([_alike(row[name]) for name in plain]) for row in rows) == sorted(
            repr([_alike(row[name]) for name in plain]) for row in told
        ), query.place


def _alike(value: Any) -> str:
    return str(json.loads(value)) if isinstance(value, str) and value[:1] in ("{", "[") else str(value)


def test_the_notebook_runs_from_its_first_cell_to_its_last(
    home: tuple[OpenedHome, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, document = home
    notebook = json.loads((PROJECT / "docs" / "analysts.ipynb").read_text())
    monkeypatch.setenv("RECEIPTS_HOME", str(opened.folder))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for cell in cells:
        exec(compile(cell, "analysts.ipynb", "exec"), names)
    try:
        assert int(names["by_class"]["jobs"].sum()) == document["accepted"] + document["imported"]["total"]
        assert len(names["open_questions"]) == sum(row["state"] == "open" for row in document["investigations"])
    finally:
        names["report"].close()
