"""`receipts submit --wait` without a daemon, on the embedded ledger and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receipt_pipeline_tests.e2e.command import answer_of, processes_of, run_receipts
from receipt_pipeline_tests.postgres_server import PostgresServer
from receipt_pipeline_tests.suite_results import PROJECT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]
SAMPLES = sorted(
    path for path in (PROJECT / "data" / "samples").iterdir() if path.suffix in {".jpg", ".png"}
)[:2]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def storage(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The configuration of one storage: nothing for the embedded one, one URL for PostgreSQL."""
    if request.param == "sqlite":
        yield {}
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield {"RECEIPTS_POSTGRES_URL": url}
    server.drop_database(url)


@pytest.mark.requirement("R001", "R002", "R003", "R004", "R005", "R039")
def test_two_scans_come_out_as_one_succeeded_job_with_a_verified_result(
    tmp_path: Path, storage: dict[str, str]
) -> None:
    home = tmp_path / "home"
    done = run_receipts(home, "submit", *map(str, SAMPLES), "--wait", "--json", environment=storage)

    status = answer_of(done)
    assert done.returncode == 0, done.stderr
    assert status["state"] == "succeeded"
    assert status["items"]["requested"] == 2
    assert sum(count for name, count in status["items"].items() if name != "requested") == 2
    assert status["result"]["verified"] is True
    result = answer_of(run_receipts(home, "result", status["job_id"], "--json", environment=storage))
    assert result["pins"] == status["pins"]
    assert all(item["decision"] in {"clear", "review"} for item in result["items"])
    assert processes_of(home) == []


@pytest.mark.requirement("R025", "R086")
def test_submitting_the_same_scans_again_joins_the_first_job_without_another_invocation(
    tmp_path: Path, storage: dict[str, str]
) -> None:
    home = tmp_path / "home"
    arguments = ["submit", str(SAMPLES[0]), "--wait", "--json"]
    first = answer_of(run_receipts(home, *arguments, environment=storage))

    again = run_receipts(home, *arguments, environment=storage)

    assert answer_of(again)["job_id"] == first["job_id"]
    report = answer_of(run_receipts(home, "report", "--json", environment=storage))
    assert (report["accepted"], report["succeeded"]) == (1, 1)
    assert (report["state"], report["gate"]) == ("accounted", "pass")
    engineering = answer_of(
        run_receipts(
            home, "status", first["job_id"], "--audience", "engineering", "--json", environment=storage
        )
    )
    assert [attempt["invocations"] for attempt in engineering["attempts"]] == [1]
