"""A running instance: one at a time, an ended process is noticed, what a killed parent left is stopped."""

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
from receipt_pipeline.runtime import processes, supervisor
from receipt_pipeline.runtime.processes import free_port, stop_group
from receipt_pipeline.runtime.serving import is_served
from receipt_pipeline.runtime.supervisor import (
    CODE_SERVER,
    Supervisor,
    dagster_environment,
    running_instance,
    stop_left_over,
)
from receipt_pipeline.settings import Settings, read_settings

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = read_settings({"RECEIPTS_HOME": str(tmp_path / "home")})
    settings.dagster_home.mkdir(parents=True)
    return settings


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(SLEEPER, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def note(settings: Settings, pid: int, *, started: float) -> Path:
    path = settings.dagster_home / "serving.json"
    path.write_text(json.dumps([{"pid": pid, "started": started}]))
    return path


def test_an_instance_runs_once(settings: Settings) -> None:
    assert not is_served(settings)
    with FileLock(str(settings.home / "serving.lock")):
        assert is_served(settings)
        with pytest.raises(NotAllowed) as refused, running_instance(settings):
            raise AssertionError("a second server was started")
    assert refused.value.reason.code == "HOME.SERVED.v1"
    assert not is_served(settings)


@pytest.mark.parametrize(("number", "code"), [(errno.EROFS, "SETTING.INVALID.v1"), (errno.ENOSPC, "STORAGE.FULL.v1")])
def test_a_home_in_which_no_lock_can_be_made_is_refused_in_words(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with pytest.raises(PipelineError) as refused:
        is_served(settings)
    assert (refused.value.reason.code, refused.value.facts["path"]) == (code, str(settings.home / "serving.lock"))


@pytest.mark.parametrize(
    "written", ["", "{", "[1]", '{"a": 1}', '[{"pid": "x", "started": 0}]', '[{"pid": -1, "started": 0}]']
)
def test_a_note_of_processes_that_nobody_wrote_ends_none(settings: Settings, written: str) -> None:
    (settings.dagster_home / "serving.json").write_text(written)
    assert stop_left_over(settings) == 0


def test_a_home_that_does_not_exist_is_not_served_and_not_made(tmp_path: Path) -> None:
    assert not is_served(read_settings({"RECEIPTS_HOME": str(tmp_path / "nowhere")}))
    assert list(tmp_path.iterdir()) == []


def supervised(settings: Settings, **running: subprocess.Popen[bytes]) -> Supervisor:
    supervisor = Supervisor(settings, {}, port=free_port())
    supervisor.processes = {name.replace("_", "-"): process for name, process in running.items()}
    return supervisor


def an_ended_process() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


def test_a_server_that_ends_is_named_and_not_waited_for(settings: Settings) -> None:
    with pytest.raises(PipelineError) as silent:
        supervised(settings, dagster_daemon=an_ended_process())._wait(lambda: False)
    assert silent.value.reason.code == "SERVER.SILENT.v1"
    assert silent.value.facts["process"] == "dagster-daemon"


def test_a_server_that_never_answers_is_abandoned(
    settings: Settings, group: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "START_WAIT_S", 0.2)
    watched = supervised(settings, dagster_webserver=group)
    with pytest.raises(PipelineError, match=r"SERVER\.SILENT\.v1"):
        watched._wait(lambda: supervisor.is_healthy(watched.port))


def test_a_code_server_that_ended_starts_again_at_its_port_but_not_in_a_tight_loop(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(command: list[str], **_: object) -> subprocess.Popen[bytes]:
        started.append(command)
        return an_ended_process()

    monkeypatch.setattr(supervisor, "start_group", start)
    watched = supervised(settings, code_server=an_ended_process())
    monkeypatch.setattr(supervisor, "RESTART_EVERY_S", 3600.0)
    watched._start_code_server()
    watched.keep_running()
    assert len(started) == 1
    monkeypatch.setattr(supervisor, "RESTART_EVERY_S", 0.0)
    watched.keep_running()
    assert len(started) == 2
    assert started[0] == started[1]
    assert str(watched.code_server_port) in started[1]
    with pytest.raises(PipelineError) as silent:
        watched._wait(watched._has_code_server)
    assert silent.value.facts["process"] == CODE_SERVER


def test_stopping_a_server_ends_its_whole_group(group: subprocess.Popen[bytes]) -> None:
    stop_group(group)
    assert group.poll() is not None
    assert not psutil.pid_exists(group.pid)


def test_what_a_killed_parent_left_behind_is_ended_once(
    settings: Settings, group: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = note(settings, group.pid, started=psutil.Process(group.pid).create_time())
    monkeypatch.setattr(processes, "_wait_until_empty", lambda leader: group.wait(20))
    assert stop_left_over(settings) == 1
    assert group.poll() is not None
    assert not path.exists()
    assert stop_left_over(settings) == 0


def test_a_process_that_only_got_the_number_of_a_server_is_left_alone(
    settings: Settings, group: subprocess.Popen[bytes]
) -> None:
    path = note(settings, group.pid, started=psutil.Process(group.pid).create_time() - 3600)
    assert stop_left_over(settings) == 0
    assert group.poll() is None
    assert not path.exists()


@pytest.mark.parametrize("noted", ["", "half a li"])
def test_a_note_that_cannot_be_read_is_nothing_left_over(settings: Settings, noted: str) -> None:
    (settings.dagster_home / "serving.json").write_text(noted)
    assert stop_left_over(settings) == 0


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
