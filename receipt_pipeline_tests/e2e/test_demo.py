"""The demo, through the real daemon and web server, on an empty home and once more on the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from receipt_pipeline_tests.e2e.command import answer_of, processes_of, run_receipts

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the demo has run once."""
    home = tmp_path_factory.mktemp("demo") / "home"
    done = run_receipts(home, "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-2:]
    assert last == ["state: accounted", "gate: pass"]
    return home


def test_demo_leaves_no_process_behind(demo_home: Path) -> None:
    assert processes_of(demo_home) == []


def test_demo_can_be_run_twice_and_accepts_nothing_new(demo_home: Path) -> None:
    before = [job["job_id"] for job in answer_of(run_receipts(demo_home, "jobs", "--json"))]

    again = run_receipts(demo_home, "demo")

    assert again.returncode == 0, again.stdout + again.stderr
    assert [job["job_id"] for job in answer_of(run_receipts(demo_home, "jobs", "--json"))] == before
    assert again.stdout.strip().splitlines()[-2:] == ["state: accounted", "gate: pass"]
    assert processes_of(demo_home) == []


@pytest.mark.postgres
def test_the_main_job_runs_with_ledger_and_dagster_on_postgres_by_configuration_only(
    tmp_path: Path, postgres_database: str
) -> None:
    home = tmp_path / "home"
    storage = {"RECEIPTS_POSTGRES_URL": postgres_database}

    done = run_receipts(home, "demo", environment=storage)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-2:] == ["state: accounted", "gate: pass"]
    assert not (home / "ledger.db").exists()
    engine = sa.create_engine(postgres_database)
    with engine.connect() as connection:
        states = connection.execute(sa.text("SELECT state FROM jobs")).scalars().all()
        query = sa.text("SELECT pipeline_name, status FROM dagster.runs")
        runs = [(name, status) for name, status in connection.execute(query)]
    engine.dispose()
    assert states == ["succeeded"]
    assert {("classify_wave", "SUCCESS"), ("accounting", "SUCCESS")} <= set(runs)
    # The end of the demo may interrupt a run that a schedule began at that moment, and nothing else.
    assert {name for name, status in runs if status != "SUCCESS"} <= {"accounting", "sweep", "retention"}
    assert processes_of(home) == []


def test_demo_publishes_a_report_whose_every_job_is_terminal(demo_home: Path) -> None:
    rows = answer_of(
        run_receipts(demo_home, "report", "--published", "--json", "--sql", "SELECT state FROM job_report")
    )
    assert rows
    assert {row["state"] for row in rows} <= {"succeeded", "failed", "expired", "canceled"}
