"""When operators are warned is read from one file, and a slip in it is named, never guessed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.app import maintenance, operator
from receipt_pipeline.core.alerts import DEFAULT_PHASE_S, AlertThresholds, read_thresholds
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.lifecycle import Phase
from receipt_pipeline.settings import ALERTS_FILE, read_settings
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import open_home


def test_the_file_that_ships_says_what_the_code_does_without_it(tmp_path: Path) -> None:
    settings = read_settings({"RECEIPTS_HOME": str(tmp_path / "home")})
    shipped = settings.shipped / ALERTS_FILE
    assert read_thresholds(shipped.read_text(), name="alerts.toml") == AlertThresholds()
    assert settings.alert_thresholds() == AlertThresholds()


def test_every_phase_of_an_open_job_has_its_limit() -> None:
    assert set(DEFAULT_PHASE_S) == {phase.value for phase in Phase} - {Phase.CLOSED.value}


def test_a_home_may_have_its_own_and_names_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / ALERTS_FILE).write_text("owner_changes = 5\n[phase_s]\nqueued = 60\n")
    thresholds = read_settings({"RECEIPTS_HOME": str(tmp_path)}).alert_thresholds()
    assert (thresholds.owner_changes, thresholds.phase_s["queued"]) == (5, 60)
    assert thresholds.phase_s["working"] == DEFAULT_PHASE_S["working"]


@pytest.mark.parametrize(
    "text",
    [
        "owner_changes = ",
        "weather = 1",
        "owner_changes = 0",
        "item_s = true",
        "phase_s = 3",
        "item_s = inf",
        "[phase_s]\nqueued = 'long'",
        "[owner_changes]\nx = 1",
        "[phase_s]\nsleeping = 5",
    ],
)
def test_a_slip_is_refused_by_the_name_of_what_is_wrong(text: str) -> None:
    with pytest.raises(InputRefused) as refused:
        read_thresholds(text, name="alerts.toml")
    assert refused.value.reason.code == "SETTING.INVALID.v1"
    assert "alerts.toml" in str(refused.value.facts["variable"])


def test_the_check_of_the_queue_and_its_alert_go_by_one_setting(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    (home.folder / "alerts.toml").write_text("queue_age_s = 60\n")
    home.submit("waiting")
    for seconds, passes in ((60, True), (1, False)):
        clock.advance(seconds)
        maintenance.review_alerts(home.app)
        assert maintenance.run_check(home.app, "queue_age_within_capacity").passed is passes
        assert [
            row["kind"] for row in operator.list_alerts(home.app, home.principal) if row["kind"] == "queue_age"
        ] == ([] if passes else ["queue_age"])
