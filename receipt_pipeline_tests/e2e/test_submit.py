"""`receipts submit --wait` without a daemon, on the embedded ledger and on a real PostgreSQL."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline_tests.e2e.command import answer_of, processes_of, run_receipts
from receipt_pipeline_tests.postgres_server import PostgresServer
from receipt_pipeline_tests.suite_results import PROJECT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]
SAMPLES = sorted(path for path in (PROJECT / "data" / "samples").iterdir() if path.suffix in {".jpg", ".png"})[:2]
SUBMIT = ("submit", *map(str, SAMPLES), "--wait")


@dataclass(frozen=True, slots=True)
class Submitted:
    """An instance in which `submit --wait` has ended, and how it did."""

    home: Path
    storage: dict[str, str]
    done: subprocess.CompletedProcess[str]

    def answer(self, *arguments: str) -> Any:
        return answer_of(run_receipts(self.home, *arguments, "--json", environment=self.storage))


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def submitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitted]:
    home = tmp_path_factory.mktemp("submit") / "home"
    storage, url = {}, ""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database()
        storage = {"RECEIPTS_POSTGRES_URL": url}
    yield Submitted(home, storage, run_receipts(home, *SUBMIT, "--json", environment=storage))
    if url:
        server.drop_database(url)


@pytest.mark.requirement("R001", "R002", "R003", "R004", "R005", "R039")
def test_two_scans_become_one_succeeded_job_with_a_verified_result(submitted: Submitted) -> None:
    status = answer_of(submitted.done)
    assert submitted.done.returncode == 0, submitted.done.stderr
    assert status["state"] == "succeeded"
    assert status["items"]["requested"] == 2
    assert sum(count for name, count in status["items"].items() if name != "requested") == 2
    assert status["result"]["verified"] is True
    result = submitted.answer("result", status["job_id"])
    assert result["pins"] == status["pins"]
    assert all(item["decision"] in {"clear", "review"} for item in result["items"])
    assert processes_of(submitted.home) == []


@pytest.mark.requirement("R025", "R086")
def test_submitting_the_same_scans_again_joins_the_first_job_without_another_invocation(submitted: Submitted) -> None:
    first = answer_of(submitted.done)
    assert submitted.answer(*SUBMIT)["job_id"] == first["job_id"]
    report = submitted.answer("report")
    assert (report["accepted"], report["succeeded"]) == (1, 1)
    assert (report["state"], report["gate"]) == ("accounted", "pass")
    engineering = submitted.answer("status", first["job_id"], "--audience", "engineering")
    assert [attempt["invocations"] for attempt in engineering["attempts"]] == [2]
