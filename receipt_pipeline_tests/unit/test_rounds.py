"""Rounds without a daemon: as many wave processes as slots, each wave once, the bad endings tidied up."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app import maintenance
from receipt_pipeline.defs.local_runner import Rounds
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home


class StartedProcess:
    """Stands in for a wave's child: it runs until the test says how it ended."""

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
def home(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenedHome:
    """A home with two slots."""
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    home.app.settings.dagster_home.mkdir()
    return home


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[StartedProcess]:
    """The children that were started, oldest first."""
    StartedProcess.started = []
    monkeypatch.setattr(subprocess, "Popen", StartedProcess)
    return StartedProcess.started


@pytest.fixture
def rounds(home: OpenedHome, started: list[StartedProcess]) -> Rounds:
    """Rounds over the home."""
    return Rounds(home.app.settings, home.resource.environment)


def test_every_wave_is_started_once_however_often_it_is_asked_for(
    rounds: Rounds, home: OpenedHome, started: list[StartedProcess]
) -> None:
    for number in range(2):
        home.submit(f"job-{number}")
    for _ in range(3):
        rounds.tick()
    waves = [row["wave_id"] for row in home.waves()]
    assert sorted(child.wave_id for child in started) == sorted(waves)
    assert set(rounds.children) == {f"{wave_id}:1" for wave_id in waves}
    assert rounds.busy


def test_no_more_waves_run_at_once_than_the_home_has_slots(
    rounds: Rounds, home: OpenedHome, started: list[StartedProcess]
) -> None:
    for number in range(2):
        home.submit(f"job-{number}")
    rounds.tick()
    assert len(started) == 2
    # Two waves were closed under their children; what they reserved is handed out again.
    for wave in home.waves():
        maintenance.close_wave(home.app, wave["wave_id"])
    rounds.tick()
    assert len(started) == 2
    started[0].ended = 0
    rounds.tick()
    assert len(started) == 3


def test_a_round_without_launching_only_reconciles_and_delivers(
    rounds: Rounds, home: OpenedHome, started: list[StartedProcess]
) -> None:
    job_id = home.submit("late", limits={"max_queue_age_s": 47})
    home.clock.advance(48)
    rounds.tick(launch=False)
    assert home.job(job_id)["state"] == "expired"
    assert (started, home.waves()) == ([], [])


def test_a_failure_plan_goes_to_the_next_child_only(
    rounds: Rounds, home: OpenedHome, started: list[StartedProcess]
) -> None:
    rounds.plan = "[]"
    for number in range(2):
        home.submit(f"job-{number}")
    rounds.tick()
    first, second = started
    assert (first.env["RECEIPTS_DRILLS"], first.env["RECEIPTS_DRILL_PLAN"]) == ("enabled", "[]")
    assert "RECEIPTS_DRILL_PLAN" not in second.env
    assert {child.env["RECEIPTS_HOME"] for child in started} == {str(home.folder)}


@pytest.mark.parametrize(("ended", "state"), [(0, "open"), (1, "closed"), (-9, "closed")])
def test_the_wave_of_a_child_that_ended_badly_is_closed(
    rounds: Rounds, home: OpenedHome, started: list[StartedProcess], ended: int, state: str
) -> None:
    home.submit("job")
    rounds.tick()
    started[0].ended = ended
    rounds.reap()
    assert [row["state"] for row in home.waves()] == [state]
    assert not rounds.busy


def test_ending_the_rounds_ends_their_children(
    rounds: Rounds, home: OpenedHome, started: list[StartedProcess]
) -> None:
    home.submit("job")
    rounds.tick()
    rounds.end()
    assert [child.ended for child in started] == [-15]
    assert not rounds.busy
