"""Serving a home: one server a home, an ended process is noticed, what a killed parent left is ended."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from receipt_pipeline.core.errors import NotAllowed, PipelineError
from receipt_pipeline.runtime import processes as process_groups
from receipt_pipeline.runtime import supervisor as hosting
from receipt_pipeline.runtime.processes import free_port, stop_group
from receipt_pipeline.runtime.serving import is_served
from receipt_pipeline.runtime.supervisor import (
    Hosted,
    dagster_environment,
    end_left_over,
    hosted,
    wait_until_healthy,
)
from receipt_pipeline.settings import Settings, read_settings

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of a home with Dagster's folder."""
    settings = read_settings({"RECEIPTS_HOME": str(tmp_path / "home")})
    settings.dagster_home.mkdir(parents=True)
    return settings


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads its own group and would run for long."""
    process = subprocess.Popen(SLEEPER, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def note(settings: Settings, pid: int, *, started: float) -> Path:
    """Note a process as one that serves the home, as a parent does before it is killed."""
    path = settings.dagster_home / "serving.json"
    path.write_text(json.dumps([{"pid": pid, "started": started}]))
    return path


def test_a_home_that_is_served_is_not_served_twice(settings: Settings) -> None:
    assert not is_served(settings)
    with FileLock(str(settings.home / "serving.lock")):
        assert is_served(settings)
        with pytest.raises(NotAllowed) as refused, hosted(settings):
            raise AssertionError("a second server was started")
    assert refused.value.reason.code == "HOME.SERVED.v1"
    assert not is_served(settings)


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EROFS, "SETTING.INVALID.v1"), (errno.ENOSPC, "STORAGE.FULL.v1")]
)
def test_a_home_in_which_no_lock_can_be_made_is_refused_in_words(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with pytest.raises(PipelineError) as refused:
        is_served(settings)
    assert (refused.value.reason.code, refused.value.facts["path"]) == (
        code,
        str(settings.home / "serving.lock"),
    )


@pytest.mark.parametrize(
    "written", ["", "{", "[1]", '{"a": 1}', '[{"pid": "x", "started": 0}]', '[{"pid": -1, "started": 0}]']
)
def test_a_note_of_processes_that_nobody_wrote_ends_none(settings: Settings, written: str) -> None:
    (settings.dagster_home / "serving.json").write_text(written)
    assert end_left_over(settings) == 0


def test_a_home_that_does_not_exist_is_not_served_and_not_made(tmp_path: Path) -> None:
    assert not is_served(read_settings({"RECEIPTS_HOME": str(tmp_path / "nowhere")}))
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_ends_is_noticed_by_name_and_not_waited_for() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(PipelineError) as silent:
        wait_until_healthy(Hosted(free_port(), (ended,)))
    assert silent.value.reason.code == "SERVER.SILENT.v1"
    assert silent.value.facts["process"] == Path(sys.executable).name


def test_a_server_that_never_answers_is_given_up(
    group: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "START_WAIT_S", 0.2)
    with pytest.raises(PipelineError, match=r"SERVER\.SILENT\.v1"):
        wait_until_healthy(Hosted(free_port(), (group,)))


def test_stopping_a_server_ends_its_whole_group(group: subprocess.Popen[bytes]) -> None:
    stop_group(group)
    assert group.poll() is not None
    assert not psutil.pid_exists(group.pid)


def test_what_a_killed_parent_left_behind_is_ended_once(
    settings: Settings, group: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = note(settings, group.pid, started=psutil.Process(group.pid).create_time())
    monkeypatch.setattr(process_groups, "_await_empty", lambda leader: group.wait(20))
    assert end_left_over(settings) == 1
    assert group.poll() is not None
    assert not path.exists()
    assert end_left_over(settings) == 0


def test_a_process_that_only_got_the_number_of_a_server_is_left_alone(
    settings: Settings, group: subprocess.Popen[bytes]
) -> None:
    path = note(settings, group.pid, started=psutil.Process(group.pid).create_time() - 3600)
    assert end_left_over(settings) == 0
    assert group.poll() is None
    assert not path.exists()


@pytest.mark.parametrize("noted", ["", "half a li"])
def test_a_note_that_cannot_be_read_is_nothing_left_over(settings: Settings, noted: str) -> None:
    (settings.dagster_home / "serving.json").write_text(noted)
    assert end_left_over(settings) == 0


def test_dagsters_processes_work_in_this_home_and_see_the_callers_environment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECEIPTS_TENANT", "acme")
    environment = dagster_environment(settings)
    assert environment["DAGSTER_HOME"] == str(settings.dagster_home)
    assert environment["RECEIPTS_HOME"] == str(settings.home)
    assert environment["RECEIPTS_TENANT"] == "acme"
    assert "RECEIPTS_DAGSTER_POSTGRES_URL" not in environment
    served = read_settings({"RECEIPTS_POSTGRES_URL": "postgresql://db/receipts"})
    assert dagster_environment(served)["RECEIPTS_DAGSTER_POSTGRES_URL"] == (
        "postgresql+psycopg2://db/receipts?options=-csearch_path%3Ddagster"
    )
    assert "DAGSTER_HOME" not in os.environ
