"""The public cases about handing in, played on to results and account: 01, 03, 10, 19 and 20."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from receipt_pipeline.intake.inbox.sweep import sweep_inbox
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.field.cases import CaseHouse, balance, case, manifest_of, submit_case
from receipt_pipeline_tests.intake_home import batch_bytes, drop, hex_digest, job_rows, row_list, sweep

pytestmark = pytest.mark.field


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> CaseHouse:
    house = CaseHouse.build(ledger, clock, tmp_path)
    inbox(house).mkdir(parents=True)
    return house


def inbox(house: CaseHouse) -> Path:
    return house.intake.inbox / TENANT


def bring(house: CaseHouse, folder: Path, *names: str) -> None:
    for name in names:
        (inbox(house) / name).write_bytes((folder / name).read_bytes())


def bring_all(house: CaseHouse, folder: Path) -> None:
    bring(house, folder, *(path.name for path in folder.glob("*.png")))


def by_key(house: CaseHouse) -> dict[str, str]:
    return {row["idempotency_key"]: row["job_id"] for row in job_rows(house.ledger)}


def test_case_01_repeats_in_one_pass_make_no_second_object_and_no_second_task(shared: Path, house: CaseHouse) -> None:
    folder = case(shared, "01")
    bring_all(house, folder)
    for name in ("manifest.json", "manifest-copy.json"):
        drop(house.intake, name, manifest_of(folder, name))
    sweep(house.intake)
    house.work_off()
    job_ids = sorted(by_key(house).values())
    house.assert_objects(*job_ids)
    assert house.tasks() == dict.fromkeys(job_ids, 1)
    assert [len(house.bench.attempts(job_id)) for job_id in job_ids] == [1, 1]
    assert balance(house.report()) == {"accepted": 2, "succeeded": 2}
    assert {row["outcome"] for row in row_list(house.ledger)} == {"accepted", "joined"}


def test_case_03_old_items_neither_run_nor_notify_again_and_a_broken_pass_is_repaired(
    shared: Path, house: CaseHouse
) -> None:
    folder = case(shared, "03")
    bring_all(house, folder)
    drop(house.intake, "manifest.json", manifest_of(folder))
    sweep(house.intake)
    house.work_off()
    old = sorted(by_key(house).values())
    before = {job_id: (house.bench.attempts(job_id), house.bench.messages(job_id)) for job_id in old}
    # A pass that ends in the middle is what a reload makes of it; the next one goes on.
    for name, late in (("again.json", "manifest.json"), ("late.json", "late.json")):
        bring_all(house, folder)
        drop(house.intake, name, manifest_of(folder, late))
        sweep_inbox(house.intake, time_bound_s=0)
        sweep(house.intake)
        house.work_off()
    assert {job_id: (house.bench.attempts(job_id), house.bench.messages(job_id)) for job_id in old} == before
    late_id = by_key(house)["rcpt-399"]
    assert len(house.bench.attempts(late_id)) == 1
    assert balance(house.report()) == {"accepted": 6, "succeeded": 6}
    assert house.tasks() == dict.fromkeys(sorted([*old, late_id]), 1)


def test_case_10_one_output_for_an_answer_that_was_lost_and_asked_for_again(shared: Path, house: CaseHouse) -> None:
    folder = case(shared, "10")
    for _ in range(6):
        submit_case(house.intake, manifest_of(folder), folder)
    house.work_off()
    submit_case(house.intake, manifest_of(folder), folder)
    house.work_off()
    (job_id,) = by_key(house).values()
    house.assert_objects(job_id)
    assert len(house.bench.chain.asked) == 1
    assert [row["outcome"] for row in row_list(house.ledger)].count("joined") == 6
    assert balance(house.report()) == {"accepted": 1, "succeeded": 1}


@pytest.mark.requirement("R029")
def test_case_19_each_job_of_one_file_name_has_the_result_of_its_own_bytes(shared: Path, house: CaseHouse) -> None:
    folder = case(shared, "19")
    a, b = (folder / "a.png").read_bytes(), (folder / "b.png").read_bytes()

    def bring_in(manifest: str, *rows: tuple[str, str, bytes]) -> None:
        for _, name, data in rows:
            (inbox(house) / name).write_bytes(data)
        listed = [{"key": key, "file": name, "sha256": hex_digest(data)} for key, name, data in rows]
        drop(house.intake, manifest, batch_bytes(listed))
        sweep(house.intake)
        house.work_off()

    bring_in("1.json", ("rcpt-1901", "receipt.png", a))
    first = house.bench.result(by_key(house)["rcpt-1901"])
    bring_in("2.json", ("rcpt-1902", "receipt.png", b))
    bring_in("3.json", ("rcpt-1903", "IMG_0042.JPG.png", a), ("rcpt-1904", "img_0042.jpg.png", b))
    made = by_key(house)
    assert house.bench.result(made["rcpt-1901"]).encode() == first.encode()
    house.assert_objects(*made.values())
    digests = [house.bench.result(made[f"rcpt-190{number}"]).items[0].sha256 for number in (1, 2, 3, 4)]
    assert digests == [f"sha256:{hex_digest(data)}" for data in (a, b, a, b)]
    assert len({house.bench.job(job_id)["result_key"].lower() for job_id in made.values()}) == 4


@contextmanager
def unreadable(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    opened = os.open

    def refuse(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr("receipt_pipeline.intake.scans.os.open", refuse)
        yield


@pytest.mark.requirement("R032", "R035")
def test_case_20_a_busy_scan_is_looked_at_again_and_accepted_bytes_are_what_is_read(
    shared: Path, house: CaseHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = case(shared, "20")
    names = ("one.png", "two.png", "three.png", "four.png")
    bring(house, folder, *names)
    drop(house.intake, "manifest.json", manifest_of(folder))
    with unreadable(monkeypatch, "four.png"):
        assert sweep(house.intake).counts == {"waiting": 1}
    (inbox(house) / "one.png").write_bytes((folder / "after.png").read_bytes())
    (inbox(house) / "two.png").unlink()
    os.utime(inbox(house) / "three.png")
    house.clock.advance(5)
    assert sweep(house.intake).counts == {"accepted": 1}
    house.work_off()
    made = by_key(house)
    accepted = [(folder / name).read_bytes() for name in names]
    assert sorted(house.bench.chain.asked) == sorted(accepted)
    for number, data in enumerate(accepted, 1):
        (item,) = house.bench.result(made[f"rcpt-200{number}"]).items
        assert item.sha256 == f"sha256:{hex_digest(data)}"
    assert balance(house.report()) == {"accepted": 4, "succeeded": 4}


def test_case_20_a_scan_that_stays_unreadable_is_refused_once_within_the_bound(
    shared: Path, house: CaseHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = case(shared, "20")
    bring(house, folder, "one.png", "two.png", "three.png", "four.png")
    drop(house.intake, "manifest.json", manifest_of(folder))
    with unreadable(monkeypatch, "four.png"):
        sweep(house.intake)
        house.clock.advance(house.intake.limits.intake.arrival_timeout_s + 1)
        sweep(house.intake)
        before = row_list(house.ledger)
        sweep(house.intake)
    assert row_list(house.ledger) == before
    told = {row["idempotency_key"]: (row["outcome"], row["reason_code"]) for row in before}
    assert told["rcpt-2004"] == ("refused", "SCAN.UNREADABLE.v1")
    assert [told[f"rcpt-200{number}"][0] for number in (1, 2, 3)] == ["accepted"] * 3
