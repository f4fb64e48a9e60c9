"""A wave whose process is killed: finished items stay, nothing is lost, and no run status is believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from PIL import Image, ImageDraw

from receipt_pipeline.app import analyst, maintenance, submitter
from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.defs.local_runner import LocalRunner
from receipt_pipeline.drill.failure_plan import Fault, PlannedFault, plan_text
from receipt_pipeline.ledger.schema import jobs as tables
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.intake_home import as_bytes, hex_digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WITHIN_S = 400.0
POLL_S = 0.3
LIMITS = {"WAVE_SLOTS": "1", "LEASE_TTL_S": "4", "HEARTBEAT_S": "1", "RETRY_BASE_S": "0.5", "RETRY_CAP_S": "1"}


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[LocalRunner]:
    environment = {f"RECEIPTS_LIMIT_{name}": value for name, value in LIMITS.items()}
    environment |= {
        "RECEIPTS_HOME": str(tmp_path / "home"),
        # The children are of this installation, also while its files are being worked on.
        "RECEIPTS_IMAGE_DIGEST": digest_of("image"),
    }
    settings = read_settings(environment)
    opened = open_app(settings)
    runner = LocalRunner.prepare(settings, {**os.environ, **environment})
    yield runner
    runner.stop()
    opened.close()


def submit(services: AppContext, key: str, *, items: int) -> str:
    folder = services.settings.home / "handed-in" / key
    folder.mkdir(parents=True)
    listed = []
    for number in range(1, items + 1):
        picture = Image.new("RGB", (320, 160), "white")
        ImageDraw.Draw(picture).text((20, 60), f"TOTAL EUR {number}.{len(key)}0", fill="black", font_size=28)
        picture.save(folder / f"{number}.png")
        data = (folder / f"{number}.png").read_bytes()
        listed.append({"item_id": f"r-{number}", "uri": f"{number}.png", "sha256": hex_digest(data)})
    document = {"contract": "receipt-job/v1", "idempotency_key": key, "items": listed}
    (folder / "manifest.json").write_bytes(as_bytes(document))
    (answer,) = submitter.submit(
        services, services.principal(), [folder / "manifest.json"], key=None, new=False, release=None
    )
    return str(answer["lines"][0]["job_id"])


def run_wave(runner: LocalRunner, wave_id: str, *faults: PlannedFault) -> int:
    plan = {"RECEIPTS_DRILLS": "enabled", "RECEIPTS_DRILL_PLAN": plan_text(*faults)} if faults else {}
    return subprocess.run(
        [sys.executable, "-m", "receipt_pipeline.defs.run_wave", wave_id],
        env={**runner.environment, **plan},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WITHIN_S,
        check=False,
    ).returncode


def rows_of(services: AppContext, table: Any, job_id: str) -> list[dict[str, Any]]:
    with services.ledger.reading() as tx:
        return tx.rows(table.select().where(table.c.job_id == job_id).order_by(*table.primary_key))


def tick_until_closed(runner: LocalRunner, services: AppContext, *job_ids: str) -> None:
    end = time.monotonic() + WITHIN_S
    while any(
        submitter.read_status(services, services.principal(), job_id)["state"] in ("accepted", "running")
        for job_id in job_ids
    ):
        assert time.monotonic() < end, [
            submitter.read_status(services, services.principal(), job_id) for job_id in job_ids
        ]
        runner.tick()
        time.sleep(POLL_S)


@pytest.mark.requirement("R051", "R109")
def test_a_killed_run_is_repeated_whole_and_computes_only_what_was_not_finished(
    runner: LocalRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = open_app(runner.settings)
    begun, waiting = submit(services, "begun", items=3), submit(services, "waiting", items=1)
    pins = submitter.read_status(services, services.principal(), begun)["pins"]
    (wave,) = maintenance.dispatch_jobs(services).to_launch

    assert run_wave(runner, wave.wave_id, PlannedFault("checkpoint.after", Fault.KILL)) == -signal.SIGKILL
    finished = rows_of(services, tables.items, begun)[0]
    assert submitter.read_status(services, services.principal(), begun)["progress"]["checkpoint"] == 1
    assert submitter.read_status(services, services.principal(), waiting)["state"] == "accepted"

    assert run_wave(runner, wave.wave_id) == 0  # The same wave again, as the daemon repeats a lost run.
    other = submitter.read_status(services, services.principal(), waiting)
    assert (other["state"], other["reason"]) == ("succeeded", None)
    tick_until_closed(runner, services, begun, waiting)

    status = submitter.read_status(services, services.principal(), begun)
    assert (status["state"], status["terminal_class"]) == ("succeeded", "complete")
    assert status["pins"] == pins == submitter.read_result(services, services.principal(), begun)["pins"]
    assert rows_of(services, tables.items, begun)[0] == finished
    attempts = rows_of(services, tables.attempts, begun)
    assert [row["outcome"] for row in attempts] == ["lost", "committed"]
    assert [row["invocations"] for row in attempts] == [1, 2]
    assert [row["invocations"] for row in rows_of(services, tables.attempts, waiting)] == [1]

    maintenance.deliver_and_consume(services)
    report = analyst.read_report(services, services.principal())
    assert (report["accepted"], report["succeeded"], report["gate"]) == (2, 2, "pass")

    monkeypatch.setenv("DAGSTER_HOME", runner.environment["DAGSTER_HOME"])
    with dg.DagsterInstance.get() as instance:
        *_, killed = instance.get_runs()  # Dagster still believes that the killed run goes on.
    assert killed.status is dg.DagsterRunStatus.STARTED


def test_the_wave_of_a_killed_child_is_closed_and_its_jobs_run_in_another(runner: LocalRunner) -> None:
    services = open_app(runner.settings)
    runner.plan = plan_text(PlannedFault("claim.before", Fault.KILL))
    job_id = submit(services, "job", items=1)
    runner.tick()
    assert runner.plan == ""
    (first,) = runner.children
    assert runner.children[first].wait(WITHIN_S) == -signal.SIGKILL
    assert submitter.read_status(services, services.principal(), job_id)["state"] == "accepted"
    tick_until_closed(runner, services, job_id)
    assert submitter.read_status(services, services.principal(), job_id)["state"] == "succeeded"
    assert len(runner.children) == 2
    assert [row["outcome"] for row in rows_of(services, tables.attempts, job_id)] == ["committed"]
