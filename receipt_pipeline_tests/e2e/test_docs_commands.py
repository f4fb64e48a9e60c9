"""Every command and query that the documents show works, on an instance that has had jobs."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline_tests.e2e.documented import Documented, documented
from receipt_pipeline_tests.e2e.forked_command import COMMAND_S_MAX, Answer, run_forked
from receipt_pipeline_tests.suite_results import PROJECT

SAMPLES = PROJECT / "data" / "samples"
# What takes minutes, or runs until it is stopped, is run by another test or script.
PROVEN_BY = {
    "make demo": "receipt_pipeline_tests/e2e/test_demo.py",
    "make test": ".ci/run",
    "receipts drill": "receipt_pipeline_tests/e2e/test_drill.py",
    "receipts drill --story lease-theft": "receipt_pipeline_tests/e2e/test_lease_theft_drill.py",
}
LEGACY_JOBS = """external_id,state,submitted_at,ended_at,items,caller,idempotency_key,decision
8812,DONE,2026-11-27T08:00:00Z,2026-11-27T08:03:10Z,3,kim,expenses-2026-11-27,review
8813,parked,2026-11-27T08:10:00Z,,1,kim,,
"""
SHORT_COMMANDS = [command for command in documented("console") if command.text not in PROVEN_BY]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(COMMAND_S_MAX * 4)]


class ReaderFolder:
    """A folder as a reader of the documents has it, with a data directory in which a job has succeeded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "RECEIPTS_HOME": str(folder / "data")}
        self._stands_for: dict[str, str] = {}

    def run(self, *arguments: str) -> Answer:
        written = self.folder / "written"
        return run_forked(arguments, folder=self.folder, environment=self.environment, written=written)

    def answer(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def value_of(self, word: str) -> str:
        if word in PLACEHOLDERS and word not in self._stands_for:
            self._stands_for[word] = PLACEHOLDERS[word](self)
        return self._stands_for.get(word, word)


def a_succeeded_job(reader: ReaderFolder) -> str:
    return str(reader.answer("submit", "scans/r-001.jpg", "scans/r-002.jpg", "--wait")["job_id"])


def a_waiting_job(reader: ReaderFolder) -> str:
    return str(reader.answer("submit", "scans/r-001.jpg", "--new")["job_id"])


def another_waiting_job(reader: ReaderFolder) -> str:
    return str(reader.answer("submit", "scans/r-002.jpg", "--new")["job_id"])


def a_job_to_cancel(reader: ReaderFolder) -> str:
    return str(reader.answer("submit", "scans/r-001.jpg", "--new")["job_id"])


def an_expired_job(reader: ReaderFolder) -> str:
    manifest = json.loads((reader.folder / "expenses.json").read_text())
    hasty = manifest | {"idempotency_key": "hasty", "limits": {"max_queue_age_s": 1}}
    (reader.folder / "hasty.json").write_text(json.dumps(hasty))
    job_id = str(reader.answer("submit", "hasty.json")["job_id"])
    time.sleep(1.5)
    assert reader.run("reconcile").returncode == 0
    return job_id


def an_open_investigation(reader: ReaderFolder) -> str:
    job_id = reader.answer("submit", "scans/r-002.jpg", "--new", "--wait")["job_id"]
    shutil.rmtree(reader.folder / "data" / "objects" / "results" / job_id)
    assert reader.run("reconcile").returncode == 0
    rows = reader.answer("investigations", "list")
    return next(str(row["investigation_id"]) for row in rows if row["job_id"] == job_id)


def an_active_principal(reader: ReaderFolder) -> str:
    return str(reader.answer("investigations", "list")[0]["owner"])


def the_current_release(reader: ReaderFolder) -> str:
    rows = reader.answer("release", "list")
    return next(str(row["name"]) for row in rows if "production" in row["aliases"])


def an_older_release(reader: ReaderFolder) -> str:
    rows = reader.answer("release", "list")
    return next(str(row["name"]) for row in rows if "production" not in row["aliases"])


def an_open_task(reader: ReaderFolder) -> str:
    reader.answer("submit", "scans/r-002.jpg", "--new", "--wait")
    return str(reader.answer("tasks", "list")[0]["decision_id"])


def tomorrow(_reader: ReaderFolder) -> str:
    return (dt.datetime.now(dt.UTC) + dt.timedelta(days=1)).isoformat()


def an_earlier_revision(_reader: ReaderFolder) -> str:
    return "0001"


PLACEHOLDERS: dict[str, Callable[[ReaderFolder], str]] = {
    "JOB": a_succeeded_job,
    "JOB2": a_waiting_job,
    "JOB3": another_waiting_job,
    "JOB4": a_job_to_cancel,
    "EXPIRED_JOB": an_expired_job,
    "INVESTIGATION": an_open_investigation,
    "OWNER": an_active_principal,
    "RELEASE": the_current_release,
    "OLDER_RELEASE": an_older_release,
    "DECISION": an_open_task,
    "TOMORROW": tomorrow,
    "REVISION": an_earlier_revision,
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> ReaderFolder:
    folder = tmp_path_factory.mktemp("reader")
    (folder / "scans").mkdir()
    items = []
    for number, sample in enumerate(sorted(SAMPLES.glob("*.jpg"))[:2], 1):
        name = f"scans/r-00{number}.jpg"
        shutil.copyfile(sample, folder / name)
        digest = hashlib.sha256(sample.read_bytes()).hexdigest()
        items.append({"item_id": f"r-00{number}", "uri": name, "sha256": digest})
    manifest = {"contract": "receipt-job/v1", "idempotency_key": "expenses-2026-11-28", "items": items}
    (folder / "expenses.json").write_text(json.dumps(manifest))
    (folder / "corrected.json").write_text(json.dumps(manifest | {"idempotency_key": "corrected"}))
    shutil.copytree(SAMPLES, folder / "data" / "samples")
    (folder / "legacy-jobs.csv").write_text(LEGACY_JOBS)
    reader = ReaderFolder(folder)
    reader.value_of("JOB")
    reader.answer("report")
    return reader


@pytest.mark.parametrize("command", SHORT_COMMANDS, ids=lambda command: command.place)
def test_a_documented_command_does_what_the_page_says(reader: ReaderFolder, command: Documented) -> None:
    program, *arguments = shlex.split(command.text)
    assert Path(program).name == "receipts", "another program needs an entry in PROVEN_BY"
    done = reader.run(*(reader.value_of(word) for word in arguments))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    if "--json" in arguments:
        json.loads(done.stdout)


@pytest.mark.parametrize("query", documented("sql"), ids=lambda query: query.place)
def test_a_documented_query_runs_on_the_report(reader: ReaderFolder, query: Documented) -> None:
    done = reader.run("report", "--published", "--json", "--sql", query.text)
    assert done.returncode == 0, done.stdout + done.stderr
    json.loads(done.stdout)


def test_what_is_not_run_here_is_proven_elsewhere() -> None:
    shown = {command.text for command in documented("console")}
    assert set(PROVEN_BY) <= shown
    assert [proof for proof in PROVEN_BY.values() if not (PROJECT / proof).exists()] == []
