"""Days of the report are days of the zone that the setting names, around midnight and where clocks change."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from receipt_pipeline.app import analyst, maintenance
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.builders import an_accepted_job
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import open_home

# Berlin goes from +1 to +2 on 2026-03-29 at 01:00 UTC, and back on 2026-10-25.
MOMENTS = (
    "2026-03-28T22:59:59Z",
    "2026-03-28T23:00:00Z",
    "2026-03-29T21:59:59Z",
    "2026-03-29T22:00:00Z",
    "2026-10-24T21:59:59Z",
    "2026-10-24T22:00:00Z",
    "2026-10-25T22:59:59Z",
    "2026-10-25T23:00:00Z",
)
BERLIN = {"03-28": 1, "03-29": 2, "03-30": 1, "10-24": 1, "10-25": 2, "10-26": 1}
UTC = {"03-28": 2, "03-29": 2, "10-24": 2, "10-25": 2}


@pytest.mark.parametrize(("zone", "wanted"), [("Europe/Berlin", BERLIN), ("", UTC)])
def test_a_day_is_from_midnight_to_midnight_there(
    migrated_sqlite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str, wanted: dict[str, int]
) -> None:
    clock = FakeClock()
    clock.set(dt.datetime.fromisoformat(MOMENTS[0]))
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch, {"RECEIPTS_TIME_ZONE": zone})
    for moment in MOMENTS:
        clock.set(dt.datetime.fromisoformat(moment))
        an_accepted_job(home.app.ledger)
    maintenance.publish_report(home.app)
    rows = analyst.query_report(home.app, home.principal, "SELECT * FROM jobs_per_day")
    assert {f"{row['day']:%m-%d}": row["jobs"] for row in rows} == wanted
    assert {row["time_zone"] for row in rows} == {zone or "UTC"}
    other = analyst.query_report(home.app, home.principal, "SELECT * FROM jobs_per_day_in('Europe/Berlin')")
    assert {f"{row['day']:%m-%d}": row["jobs"] for row in other} == BERLIN


def test_the_days_of_one_tenant_are_there_in_a_report_of_several(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    an_accepted_job(home.app.ledger)
    an_accepted_job(home.app.ledger, tenant="another")
    maintenance.publish_report(home.app)
    assert [row["jobs"] for row in analyst.query_report(home.app, home.principal, "SELECT * FROM jobs_per_day")] == [1]
    told = analyst.query_report(home.app, home.principal, "SELECT state, gate, document, time_zone FROM report_info")
    assert told == [{"state": None, "gate": None, "document": None, "time_zone": "UTC"}]


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "/etc/localtime"])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(InputRefused, match=r"SETTING\.INVALID\.v1"):
        read_settings({"RECEIPTS_TIME_ZONE": name})
