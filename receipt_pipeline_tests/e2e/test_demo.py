"""The demo, through the real daemon and web server, in a temporary data directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from receipt_pipeline.app import analyst
from receipt_pipeline.app.context import open_app
from receipt_pipeline.cli.serve import run_demo
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.e2e.command import processes_of, run_receipts

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_demo_ends_accounted_and_leaves_its_page_and_no_process(tmp_path: Path) -> None:
    done = run_receipts(tmp_path / "home", "demo", environment={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-2:] == ["state: accounted", "gate: pass"]
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (page,) = folder.iterdir()
    assert f"HTML page: {page}\n" in done.stdout
    assert processes_of(tmp_path) == []


@pytest.mark.postgres
def test_the_main_job_runs_with_ledger_and_dagster_on_postgres_by_configuration_only(
    tmp_path: Path, postgres_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    environment = {**os.environ, "RECEIPTS_HOME": str(home), "RECEIPTS_POSTGRES_URL": postgres_database}
    settings = read_settings(environment)
    for _ in range(2):  # The samples are accepted once, however often they are dropped.
        assert run_demo(settings, environment) == 0
    assert not (home / "ledger.db").exists()
    app = open_app(settings)
    rows = analyst.query_report(app, app.principal(), "SELECT state FROM job_report")
    assert [row["state"] for row in rows] == ["succeeded"]
    app.close()
    engine = sa.create_engine(postgres_database)
    with engine.connect() as connection:
        query = sa.text("SELECT pipeline_name, status FROM dagster.runs")
        runs = [(name, status) for name, status in connection.execute(query)]
    engine.dispose()
    assert {("classify_wave", "SUCCESS"), ("accounting", "SUCCESS")} <= set(runs)
    # The end of the demo may interrupt a run that a schedule began at that moment, and nothing else.
    assert {name for name, status in runs if status != "SUCCESS"}.isdisjoint({"classify_wave"})
    assert processes_of(home) == []
