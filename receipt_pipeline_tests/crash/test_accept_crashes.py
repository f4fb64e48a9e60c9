"""A door killed at any boundary, or inside any transaction, leaves one job or none, and a repeat heals it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.waves import wave_jobs
from receipt_pipeline.ledger.schema.effects import object_refs
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.worker.dispatch import dispatch_waves
from receipt_pipeline_tests.builders import CALLER, RELEASE, TENANT
from receipt_pipeline_tests.crash.intake_process import IntakeOrder, accept_in_process, run_until_killed
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.intake_home import (
    an_intake,
    as_bytes,
    batch_bytes,
    drop,
    item_rows,
    job_document,
    job_rows,
    names_in,
    row_list,
    row_of,
    submission_list,
    sweep,
)

PLACES = ("hold.before", "hold.after", "accept.before", "accept.after")
# Hold, accept: the transactions of one acceptance through a door that keeps no submission.
TRANSACTIONS = 2


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    path = folder / "m.json"
    folder.mkdir()
    path.write_bytes(as_bytes(job_document(folder, count=2)))
    return path


@pytest.fixture
def order(ledger_url: str, home: Path, clock: FakeClock) -> dict[str, Any]:
    return {"ledger_url": ledger_url, "home": home, "now": clock.now()}


def die(order: IntakeOrder) -> None:
    assert run_until_killed(order) == -signal.SIGKILL


@pytest.mark.requirement("R009")
def test_a_job_is_there_when_its_process_is_killed_right_after_the_answer(
    ledger: Ledger, order: dict[str, Any], document: Path, home: Path
) -> None:
    answer = accept_in_process(IntakeOrder(**order, document=document))
    (job,) = job_rows(ledger)
    assert (job["job_id"], job["state"]) == (answer["job_id"], "accepted")
    store = LocalObjectStore(home / "objects")
    for item in item_rows(ledger):
        found = store.digest(f"scans/{TENANT}/{item['sha256'].removeprefix('sha256:')}")
        assert found == (item["sha256"], item["size_bytes"])


@pytest.mark.requirement("R020")
def test_acceptance_is_whole_before_anything_is_queued_and_is_queued_once(
    ledger: Ledger, order: dict[str, Any], document: Path
) -> None:
    die(IntakeOrder(**order, document=document, place="accept.after"))
    (job,) = job_rows(ledger)
    assert (job["tenant"], job["caller"], job["items_requested"]) == (TENANT, CALLER, 2)
    assert job["fingerprint"].startswith("sha256:")
    assert job["result_retention_s"] > 0
    assert (job["wave_id"], job["latest_seq"] > 0) == (None, True)
    for _ in range(2):
        dispatched = dispatch_waves(ledger, worker_id="w", release_ids=[RELEASE.release_id], limits=Limits())
    (wave,) = dispatched.to_launch
    with ledger.reading() as tx:
        assert [row["job_id"] for row in wave_jobs(tx, wave.wave_id)] == [job["job_id"]]


@pytest.mark.requirement("R025")
@pytest.mark.parametrize("place", PLACES)
def test_a_repeat_after_a_kill_at_any_boundary_makes_one_job(
    ledger: Ledger, order: dict[str, Any], document: Path, place: str
) -> None:
    die(IntakeOrder(**order, document=document, place=place))
    there = job_rows(ledger)
    assert len(there) == (1 if place == "accept.after" else 0)
    answer = accept_in_process(IntakeOrder(**order, document=document))
    (job,) = job_rows(ledger)
    assert (answer["job_id"], answer["replayed"]) == (job["job_id"], bool(there))
    assert len(item_rows(ledger)) == 2
    with ledger.reading() as tx:
        assert {row["holder"] for row in tx.rows(object_refs.select())} == {job["job_id"]}


@pytest.mark.parametrize("number", range(1, TRANSACTIONS + 1))
def test_a_kill_inside_a_transaction_leaves_nothing_half_written(
    ledger: Ledger, order: dict[str, Any], document: Path, number: int
) -> None:
    die(IntakeOrder(**order, document=document, commits=number))
    assert (job_rows(ledger), item_rows(ledger)) == ([], [])
    assert accept_in_process(IntakeOrder(**order, document=document))["replayed"] is False


@pytest.mark.parametrize(("place", "passage"), [("hold.after", 2), ("accept.before", 2), ("accept.after", 2)])
def test_a_sweep_killed_in_mid_batch_is_finished_by_the_next_with_true_counts(
    ledger: Ledger, order: dict[str, Any], home: Path, place: str, passage: int
) -> None:
    intake = an_intake(ledger, home)
    folder = intake.inbox / TENANT
    drop(intake, "batch.json", batch_bytes([row_of(folder, f"{number}.png", number) for number in (1, 2, 3)]))
    die(IntakeOrder(**order, place=place, passage=passage))
    assert 0 < len(job_rows(ledger)) < 3
    assert sweep(intake).counts == {"accepted": 1}
    (submission,) = submission_list(ledger)
    assert (submission["rows_total"], submission["accepted"], submission["joined"]) == (3, 3, 0)
    assert [row["outcome"] for row in row_list(ledger)] == ["accepted"] * 3
    assert len(job_rows(ledger)) == 3
    assert {name.split("/")[0] for name in names_in(folder)} == {"accepted"}
