"""The code server that the web server and the daemon share is killed: it starts again, and work continues."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from receipt_pipeline.app import analyst, submitter
from receipt_pipeline.app.context import open_app
from receipt_pipeline.app.setup import drop_samples
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.runtime import supervisor as runtime
from receipt_pipeline.runtime.supervisor import CODE_SERVER, Supervisor, running_instance
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.e2e.command import processes_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]
WAIT_S = 240.0


def wait_for(supervisor: Supervisor, what: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if what():
            return
        supervisor.keep_running()
        time.sleep(0.5)
    raise AssertionError("it did not come to hold within the bound")


def test_a_killed_code_server_comes_back_at_its_port_and_dropped_work_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "RESTART_EVERY_S", 0.0)
    settings = read_settings({**os.environ, "RECEIPTS_HOME": str(tmp_path / "home")})
    services = open_app(settings)
    try:
        with running_instance(settings) as supervisor:
            killed = supervisor.processes[CODE_SERVER]
            port = supervisor.code_server_port
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
            key = drop_samples(services.settings)

            def all_done() -> bool:
                rows = [
                    row for row in submitter.list_jobs(services, services.principal()) if row["idempotency_key"] == key
                ]
                return bool(rows) and all(row["state"] in TERMINAL_STATES for row in rows)

            wait_for(supervisor, all_done)
            assert supervisor.processes[CODE_SERVER].pid != killed.pid
            assert supervisor.code_server_port == port
        report = analyst.read_report(services, services.principal())
        assert (report["succeeded"], report["missing_terminal"], report["divergent"]) == (1, [], [])
    finally:
        services.close()
    assert processes_of(settings.home) == []
