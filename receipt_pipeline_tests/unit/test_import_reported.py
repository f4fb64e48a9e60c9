"""What is imported after a publication is in the next one, also across the way back and forward again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app import admin, analyst, maintenance
from receipt_pipeline.ledger.schema.admin import imported_jobs
from receipt_pipeline_tests.conformance.ledger_rows import all_rows
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home
from receipt_pipeline_tests.unit.test_import import ROWS, a_file, imported

ENDED = "3,done,2026-11-27T08:00:00Z,2026-11-27T10:00:00Z,2,,,"


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    opened = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    opened.submit("own")
    maintenance.publish_report(opened.app)
    return opened


def reported(home: OpenedHome) -> list[tuple[Any, ...]]:
    maintenance.publish_report(home.app)
    rows = analyst.query_report(home.app, home.principal, "SELECT * FROM imported_jobs ORDER BY job_id")
    return [(row["job_id"], row["state_as_written"], row["terminal_class"]) for row in rows]


def kept(home: OpenedHome) -> list[tuple[Any, ...]]:
    rows = all_rows(home.app.ledger, imported_jobs)
    return [(row["job_id"], row["state_as_written"], row["terminal_class"]) for row in rows]


def test_a_refresh_shows_what_was_imported_and_what_ended_since(home: OpenedHome, tmp_path: Path) -> None:
    assert reported(home) == []
    for rows in (ROWS[:3], (*ROWS, ENDED)):
        imported(home, a_file(tmp_path, *rows))
        assert reported(home) == kept(home)
    assert ("done", "complete") in [row[1:] for row in kept(home)]
    assert len(kept(home)) == 4


def test_the_report_follows_the_ledger_back_and_forward_again(home: OpenedHome, tmp_path: Path) -> None:
    imported(home, a_file(tmp_path, *ROWS))
    assert len(reported(home)) == 4
    admin.roll_back_ledger(home.app, home.principal, "0001")
    home.app.ledger.migrate()
    later = home.submit("later")
    assert reported(home) == kept(home)
    assert len(kept(home)) == 4
    jobs = analyst.query_report(home.app, home.principal, "SELECT job_id FROM jobs")
    assert {"job_id": later} in jobs
    assert maintenance.run_check(home.app, "report_matches_ledger").passed
