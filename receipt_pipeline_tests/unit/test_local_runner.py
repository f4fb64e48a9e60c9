"""Waves without a daemon: as many processes as slots, each wave once, failed ones are closed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.local_runner import LocalRunner
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home


class StartedProcess:
    """Stands in for a wave's child: it runs until the test sets its exit status."""

    started: list[StartedProcess]

    def __init__(self, arguments: list[str], *, env: Mapping[str, str], **_: Any) -> None:
        self.wave_id = arguments[-1]
        self.env = env
        self.ended: int | None = None
        self.started.append(self)

    def poll(self) -> int | None:
        return self.ended

    def terminate(self) -> None:
        self.ended = -15

    def wait(self, timeout: float | None = None) -> int | None:
        return self.ended


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    home.app.settings.dagster_home.mkdir()
    return home


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[StartedProcess]:
    StartedProcess.started = []
    monkeypatch.setattr(subprocess, "Popen", StartedProcess)
    return StartedProcess.started


@pytest.fixture
def runner(home: OpenedHome, started: list[StartedProcess]) -> LocalRunner:
    return LocalRunner(home.app.settings, home.resource.environment)


def test_every_wave_is_started_once_however_often_it_is_asked_for(
    runner: LocalRunner, home: OpenedHome, started: list[StartedProcess]
) -> None:
    for number in range(2):
        home.submit(f"job-{number}")
    for _ in range(3):
        runner.tick()
    waves = [row["wave_id"] for row in home.waves()]
    assert sorted(child.wave_id for child in started) == sorted(waves)
    assert set(runner.children) == {f"{wave_id}:1" for wave_id in waves}
    assert runner.is_busy


def test_no_more_waves_run_together_than_the_home_has_slots(
    runner: LocalRunner, home: OpenedHome, started: list[StartedProcess]
) -> None:
    for number in range(2):
        home.submit(f"job-{number}")
    runner.tick()
    assert len(started) == 2
    # Two waves were closed under their children; what they reserved is ready again.
    for wave in home.waves():
        maintenance.close_wave(home.app, wave["wave_id"])
    runner.tick()
    assert len(started) == 2
    started[0].ended = 0
    runner.tick()
    assert len(started) == 3


def test_a_tick_without_launching_only_reconciles_and_delivers(
    runner: LocalRunner, home: OpenedHome, started: list[StartedProcess]
) -> None:
    job_id = home.submit("late", limits={"max_queue_age_s": 47})
    home.clock.advance(48)
    runner.tick(launch=False)
    assert home.job(job_id)["state"] == "expired"
    assert (started, home.waves()) == ([], [])


def test_a_failure_plan_goes_to_the_next_child_only(
    runner: LocalRunner, home: OpenedHome, started: list[StartedProcess]
) -> None:
    runner.plan = "[]"
    for number in range(2):
        home.submit(f"job-{number}")
    runner.tick()
    first, second = started
    assert (first.env["RECEIPTS_DRILLS"], first.env["RECEIPTS_DRILL_PLAN"]) == ("enabled", "[]")
    assert "RECEIPTS_DRILL_PLAN" not in second.env
    assert {child.env["RECEIPTS_HOME"] for child in started} == {str(home.folder)}


@pytest.mark.parametrize(("ended", "state"), [(0, "open"), (1, "closed"), (-9, "closed")])
def test_the_wave_of_a_failed_child_is_closed(
    runner: LocalRunner, home: OpenedHome, started: list[StartedProcess], ended: int, state: str
) -> None:
    home.submit("job")
    runner.tick()
    started[0].ended = ended
    runner.close_failed_waves()
    assert [row["state"] for row in home.waves()] == [state]
    assert not runner.is_busy


def test_stopping_the_runner_stops_its_children(
    runner: LocalRunner, home: OpenedHome, started: list[StartedProcess]
) -> None:
    home.submit("job")
    runner.tick()
    runner.stop()
    assert [child.ended for child in started] == [-15]
    assert not runner.is_busy
