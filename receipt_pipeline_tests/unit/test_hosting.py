"""One home is served once; what a killed parent left is found by its noted ids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from receipt_pipeline.core.errors import NotAllowed, PipelineError
from receipt_pipeline.defs.hosting import Hosted, end_left_over, hosted, is_served, wait_until_healthy
from receipt_pipeline.settings import Settings, read_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of an empty home."""
    return read_settings({"RECEIPTS_HOME": str(tmp_path / "home")})


def a_sleeper() -> subprocess.Popen[bytes]:
    """Start a process of its own group that would sleep for a minute."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)


def note(settings: Settings, pid: int, started: float) -> None:
    """Write the file in which a served home notes its processes."""
    settings.dagster_home.mkdir(parents=True, exist_ok=True)
    (settings.dagster_home / "serving.json").write_text(json.dumps([{"pid": pid, "started": started}]))


def test_a_home_that_is_served_is_not_served_twice(settings: Settings) -> None:
    assert not is_served(settings)
    settings.home.mkdir(parents=True)
    with FileLock(str(settings.home / "serving.lock")):
        assert is_served(settings)
        with pytest.raises(NotAllowed, match=r"HOME\.SERVED\.v1"), hosted(settings):
            pass
    assert not is_served(settings)


def test_a_server_whose_process_ended_is_said_to_be_silent() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()

    with pytest.raises(PipelineError, match=r"SERVER\.SILENT\.v1"):
        wait_until_healthy(Hosted(port=1, processes=(ended,)))


def test_processes_that_a_killed_parent_left_are_ended_at_the_next_start(settings: Settings) -> None:
    sleeper = a_sleeper()
    note(settings, sleeper.pid, psutil.Process(sleeper.pid).create_time())

    # The one who starts anew is no parent of what was left, so nobody but the kernel reaps it.
    ended = end_left_over(settings)

    assert ended == 1
    assert sleeper.wait(10) < 0
    assert not (settings.dagster_home / "serving.json").exists()


def test_a_number_that_another_process_has_now_is_left_alone(settings: Settings) -> None:
    note(settings, os.getpid(), 1.0)

    assert end_left_over(settings) == 0
