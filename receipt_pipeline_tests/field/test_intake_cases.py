"""Public cases about handing in: 01, 03, 04, 10, 17 to 24, played through the drop folder and the doors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox.sweep import sweep_inbox
from receipt_pipeline.intake.submission import Delivered
from receipt_pipeline.objects.store import scan_key
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.field.cases import case, ours, submit_case, with_limits
from receipt_pipeline_tests.intake_home import (
    acknowledgements,
    an_intake,
    batch_bytes,
    drop,
    hex_digest,
    item_rows,
    job_rows,
    row_list,
    submission_list,
    sweep,
)

pytestmark = pytest.mark.field
SETTLE_S = 10


def bring(shared: Path, number: str, place: Path, *names: str) -> Path:
    folder = case(shared, number)
    for scan in folder.glob("*.png"):
        if not names or scan.name in names:
            (place / scan.name).write_bytes(scan.read_bytes())
    return folder


def keys(intake: IntakeContext) -> list[str]:
    return sorted(job["idempotency_key"] for job in job_rows(intake.ledger))


def test_case_01_same_key_in_one_pass(shared: Path, intake: IntakeContext, place: Path) -> None:
    folder = bring(shared, "01", place)
    for name in ("manifest.json", "manifest-copy.json"):
        drop(intake, name, with_limits((folder / name).read_bytes()))
    sweep(intake)
    assert keys(intake) == ["rcpt-101", "rcpt-102"]
    outcomes = sorted(row["outcome"] for row in row_list(intake.ledger))
    assert outcomes == ["accepted"] * 2 + ["joined"] * 4
    jobs = {job["idempotency_key"]: job["job_id"] for job in job_rows(intake.ledger)}
    assert all(row["job_id"] == jobs[row["idempotency_key"]] for row in row_list(intake.ledger))
    assert {answer["counts"]["rows"] for answer in acknowledgements(intake)} == {3}


def test_case_03_no_saved_position_can_be_lost(shared: Path, intake: IntakeContext, place: Path) -> None:
    folder = bring(shared, "03", place)
    manifest = with_limits((folder / "manifest.json").read_bytes())
    drop(intake, "manifest.json", manifest)
    sweep(intake)
    before = job_rows(intake.ledger)
    # The drop folder's only memory is the ledger: a new sweep, and even the old files anew, change nothing.
    for name in ("manifest.json", "again.json"):
        bring(shared, "03", place)
        drop(intake, name, manifest)
        sweep(intake)
    drop(intake, "late.json", with_limits((folder / "late.json").read_bytes()))
    sweep(intake)
    assert len(before) == 5
    assert keys(intake)[5:] == ["rcpt-399"]
    assert [row["outcome"] for row in row_list(intake.ledger)].count("accepted") == 6


def test_case_04_a_slow_listing_is_worked_off_in_bounded_passes(
    shared: Path, tmp_path: Path, sqlite_ledger_url: str
) -> None:
    from receipt_pipeline.ledger.engine import open_ledger

    ledger = open_ledger(sqlite_ledger_url)
    intake = an_intake(ledger, tmp_path / "home")
    place = intake.inbox / TENANT
    made = tmp_path / "made"
    script = case(shared, "04") / "make_items.py"
    subprocess.run([sys.executable, str(script), str(made), "300"], check=True)
    shutil.copytree(made, place)
    early = with_limits((place / "early.json").read_bytes())
    (place / "early.json").unlink()
    (place / "manifest.json").write_bytes(with_limits((made / "manifest.json").read_bytes()))
    passes, added = 0, False
    while True:
        finished = sweep_inbox(intake, time_bound_s=0.4).finished
        passes += 1
        accepted = len(job_rows(ledger))
        if not added and accepted >= 100:
            drop(intake, "aaa-early.json", early)
            added = True
        elif added and finished and not sweep_inbox(intake, time_bound_s=5).counts:
            break
        assert passes < 500
    assert len(job_rows(ledger)) == 301
    assert {row["outcome"] for row in row_list(ledger)} == {"accepted"}
    assert sum(len(json.dumps(row["stored"])) + len(json.dumps(row["facts"])) for row in submission_list(ledger)) < 4096
    ledger.close()


@pytest.mark.requirement("R025")
def test_case_10_a_client_that_lost_the_answer_gets_it_again(
    shared: Path, intake: IntakeContext, clock: FakeClock
) -> None:
    folder = case(shared, "10")
    document = with_limits((folder / "manifest.json").read_bytes())
    first = submit_case(intake, document, folder)
    clock.advance(60)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: submit_case(intake, document, folder), range(2)))
    answers += [submit_case(intake, document, folder) for _ in range(3)]

    def told(answer: Delivered) -> tuple[Any, ...]:
        acceptance = answer.lines[0].acceptance
        assert acceptance is not None
        return acceptance.job_id, acceptance.submitted_at, acceptance.status_location

    assert {told(answer) for answer in answers} == {told(first)}
    assert len(job_rows(intake.ledger)) == 1
    assert [row["outcome"] for row in row_list(intake.ledger)].count("joined") == 5


@pytest.mark.requirement("R019", "R026")
def test_case_17_a_used_key_with_another_body(shared: Path, intake: IntakeContext) -> None:
    folder = case(shared, "17")
    names = ("first", "second", "third", "fourth")
    answers = [submit_case(intake, with_limits((folder / f"{name}.json").read_bytes()), folder) for name in names]
    told = [(answer.lines[0].outcome.value, answer.lines[0].facts.get("differing")) for answer in answers]
    assert told == [("accepted", None), ("conflict", ["items"]), ("conflict", ["release"]), ("joined", None)]
    assert {answer.lines[0].idempotency_key for answer in answers} == {"rcpt-1701"}
    assert len(job_rows(intake.ledger)) == 1


def test_case_18_a_scan_that_is_still_being_written(
    shared: Path, intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    folder = case(shared, "18")
    whole = (folder / "scan.png").read_bytes()
    drop(intake, "manifest.json", with_limits((folder / "manifest.json").read_bytes()))
    for part in (None, b"", whole[: len(whole) // 3]):
        if part is not None:
            (place / "scan.png").write_bytes(part)
        assert sweep(intake).counts == {"waiting": 1}
        clock.advance(4)
    assert job_rows(intake.ledger) == []
    clock.advance(4)
    (place / "scan.png").write_bytes(whole)
    assert sweep(intake).counts == {"accepted": 1}
    assert [item["size_bytes"] for item in item_rows(intake.ledger)] == [len(whole)]


@pytest.mark.requirement("R029")
def test_case_19_the_same_name_with_other_bytes(shared: Path, intake: IntakeContext, place: Path) -> None:
    folder = case(shared, "19")
    a, b = (folder / "a.png").read_bytes(), (folder / "b.png").read_bytes()

    def bring_in(manifest: str, *rows: tuple[str, str, bytes]) -> None:
        for _, name, data in rows:
            (place / name).write_bytes(data)
        listed = [{"key": key, "file": name, "sha256": hex_digest(data)} for key, name, data in rows]
        drop(intake, manifest, batch_bytes(listed))
        sweep(intake)

    bring_in("1.json", ("rcpt-1901", "receipt.png", a))
    bring_in("2.json", ("rcpt-1902", "receipt.png", b))
    bring_in("3.json", ("rcpt-1903", "IMG_0042.JPG.png", a), ("rcpt-1904", "img_0042.jpg.png", b))
    assert keys(intake) == [f"rcpt-190{number}" for number in (1, 2, 3, 4)]
    digests = {job["idempotency_key"]: job["job_id"] for job in job_rows(intake.ledger)}
    own = {item["job_id"]: item["sha256"] for item in item_rows(intake.ledger)}
    told = [own[digests[key]].removeprefix("sha256:") for key in keys(intake)]
    assert told == [hex_digest(a), hex_digest(b), hex_digest(a), hex_digest(b)]
    assert intake.objects.read(scan_key(TENANT, hex_digest(a))) == a


@pytest.mark.requirement("R032")
def test_case_20_scans_replaced_deleted_and_touched_while_queued(
    shared: Path, intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    folder = bring(shared, "20", place, "one.png", "two.png", "three.png", "four.png")
    manifest = with_limits((folder / "manifest.json").read_bytes())
    hidden = (place / "four.png").rename(place / "four.png.part")
    drop(intake, "manifest.json", manifest)
    assert sweep(intake).counts == {"waiting": 1, "ignored": 1}
    (place / "one.png").write_bytes((folder / "after.png").read_bytes())
    (place / "two.png").unlink()
    os.utime(place / "three.png")
    clock.advance(5)
    hidden.rename(place / "four.png")
    assert sweep(intake).counts == {"accepted": 1}
    assert keys(intake) == [f"rcpt-200{number}" for number in (1, 2, 3, 4)]
    for name, item in zip(
        ("one", "two", "three", "four"), sorted(item_rows(intake.ledger), key=lambda i: i["item_id"]), strict=True
    ):
        assert intake.objects.read(scan_key(TENANT, item["sha256"])) == (folder / f"{name}.png").read_bytes()


def test_case_21_temporary_and_side_files(shared: Path, intake: IntakeContext, place: Path, clock: FakeClock) -> None:
    folder = case(shared, "21")
    loose = place / "loose"
    subprocess.run([sys.executable, str(folder / "setup.py"), str(folder / "scan.png"), str(loose)], check=True)
    sweep(intake)
    clock.advance(SETTLE_S)
    assert sweep(intake).counts == {"accepted": 2, "ignored": 10}
    assert {item["label"] for item in item_rows(intake.ledger)} == {"scan.png", "Beleg 7 (März).png"}
    (loose / "scan2.png.part").rename(loose / "scan2.png")
    sweep(intake)
    clock.advance(SETTLE_S)
    summary = sweep(intake)
    assert summary.counts == {"accepted": 1, "ignored": 9}
    assert "acme/loose/Thumbs.db" in summary.ignored
    assert len(job_rows(intake.ledger)) == 3


def test_case_22_paths_that_lead_out(shared: Path, intake: IntakeContext, tmp_path: Path) -> None:
    folder = case(shared, "22")
    target = tmp_path / "target"
    subprocess.run([sys.executable, str(folder / "setup.py"), str(folder / "scan.png"), str(target)], check=True)
    document = with_limits((target / "inbox/manifest.json").read_bytes())
    answer = submit_case(intake, document, target / "inbox")
    assert answer.counts == {"rows": 7, "accepted": 1, "joined": 0, "refused": 6, "conflicts": 0}
    refused = [line for line in answer.lines if line.outcome.value == "refused"]
    assert {line.reason_code for line in refused} == {"PATH.OUTSIDE.v1"}
    assert {json.dumps({**line.facts, "row": 0}) for line in refused} == {'{"row": 0}'}
    stored = [entry.key for entry in intake.objects.listing("")]
    assert stored == [scan_key(TENANT, hex_digest((target / "inbox/good.png").read_bytes()))]


def test_case_23_json_that_readers_disagree_about(
    shared: Path, intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    folder = bring(shared, "23", place)
    names = ("duplicate-key", "nan-limit", "trailing-comma", "huge-int", "cut-short")
    for name in names:
        text = ours((folder / f"{name}.json").read_bytes()).decode()
        drop(intake, f"{name}.json", text.replace('"max_queue_age_seconds"', '"limits"').encode())
    sweep(intake)
    clock.advance(SETTLE_S)
    sweep(intake)
    assert job_rows(intake.ledger) == []
    told = {answer["document"]: answer["lines"][0] for answer in acknowledgements(intake)}
    codes = {name: told[f"{name}.json"]["reason"]["code"] for name in names}
    assert codes == {
        "duplicate-key": "MANIFEST.DUPLICATE_KEY.v1",
        "nan-limit": "MANIFEST.NOT_JSON.v1",
        "trailing-comma": "MANIFEST.NOT_JSON.v1",
        "huge-int": "FIELD.INVALID.v1",
        "cut-short": "MANIFEST.NOT_JSON.v1",
    }
    assert all(line["pointer"] or line["facts"].get("line") for line in told.values())
    refused = [path for path in (place / "refused").iterdir() if path.name.endswith(".refusal.json")]
    assert len(refused) == len(names)


def test_case_24_csv_with_a_mark_utf_16_and_conflicting_rows(shared: Path, intake: IntakeContext) -> None:
    folder = case(shared, "24")

    def brought(name: str) -> Delivered:
        return submit_case(intake, (folder / f"manifest-{name}.csv").read_bytes(), folder, suffix=".csv")

    assert [line.outcome.value for line in brought("bom-crlf").lines] == ["accepted", "accepted", "joined"]
    assert [line.outcome.value for line in brought("utf16").lines] == ["joined"] * 2
    first, second = brought("dup-conflict").lines
    assert (first.outcome.value, second.outcome.value) == ("joined", "conflict")
    assert second.facts | {"row": 2, "conflicts_with_row": 1, "differing": ["items"]} == second.facts
    assert keys(intake) == ["rcpt-2401", "rcpt-2402"]
