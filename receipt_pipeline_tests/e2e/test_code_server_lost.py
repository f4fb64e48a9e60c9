"""The code server that web server and daemon share is killed: it comes back, and work goes on."""

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
from receipt_pipeline.runtime import supervisor as code_server
from receipt_pipeline.runtime.supervisor import Hosted, hosted
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.e2e.command import processes_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]
WAIT_S = 240.0


def wait_for(served: Hosted, what: Callable[[], bool]) -> None:
    """Look after the served home until something holds."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if what():
            return
        served.keep_running()
        time.sleep(0.5)
    raise AssertionError("it did not come to hold within the bound")


def test_a_killed_code_server_comes_back_at_its_port_and_dropped_work_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_server, "RESTART_EVERY_S", 0.0)
    settings = read_settings({**os.environ, "RECEIPTS_HOME": str(tmp_path / "home")})
    services = open_app(settings)
    try:
        with hosted(settings) as served:
            assert served.code_server is not None
            (killed,) = served.code_server.leaders
            port = served.code_server.port
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
            key = drop_samples(services.settings)

            def all_done() -> bool:
                rows = [
                    row
                    for row in submitter.list_jobs(services, services.principal())
                    if row["idempotency_key"] == key
                ]
                return bool(rows) and all(row["state"] in TERMINAL_STATES for row in rows)

            wait_for(served, all_done)
            (again,) = served.code_server.leaders
            assert again.pid != killed.pid
            assert served.code_server.port == port
        report = analyst.read_report(services, services.principal(), cutoff=None, published=False)
        assert (report["succeeded"], report["missing_terminal"], report["divergent"]) == (1, [], [])
    finally:
        services.close()
    assert processes_of(settings.home) == []
