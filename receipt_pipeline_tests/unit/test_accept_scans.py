"""Scans at acceptance: verified while copied, held, refused with the whole job when one is bad."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.errors import InputRefused, ObjectFault
from receipt_pipeline.core.reasons import STORAGE_FULL
from receipt_pipeline.intake import accept as accepting
from receipt_pipeline.intake import scans as copying
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.ledger.schema.effects import object_refs
from receipt_pipeline.objects.store import scan_key
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.intake_home import (
    accept_manifest,
    as_bytes,
    hex_digest,
    holders,
    item_rows,
    job_document,
    job_rows,
    put_scan,
    refusal_of,
    scan_bytes,
)


@pytest.mark.requirement("R029")
def test_equal_file_names_with_other_bytes_are_two_jobs(intake: IntakeContext, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for place, number in ((folder, 1), (other, 2)):
        item = put_scan(place, "receipt.png", number)
        document = {"contract": "receipt-job/v1", "idempotency_key": f"k-{number}", "items": [item]}
        accept_manifest(intake, document, place)
    assert {item["label"] for item in item_rows(intake.ledger)} == {"receipt.png"}
    assert len({item["sha256"] for item in item_rows(intake.ledger)}) == len(job_rows(intake.ledger)) == 2


@pytest.mark.requirement("R032")
def test_bytes_under_the_same_path_may_change_after_acceptance(intake: IntakeContext, folder: Path) -> None:
    accept_manifest(intake, job_document(folder), folder)
    (folder / "scans/1.png").write_bytes(scan_bytes(99))
    (item,) = item_rows(intake.ledger)
    assert intake.objects.read(scan_key(TENANT, item["sha256"])) == scan_bytes(1)


@pytest.mark.requirement("R041")
def test_scans_added_to_the_folder_later_do_not_join_an_accepted_job(intake: IntakeContext, folder: Path) -> None:
    listed = job_document(folder, count=2)["items"]
    items = as_bytes(listed)
    (folder / "items.json").write_bytes(items)
    document = {
        "contract": "receipt-job/v1",
        "idempotency_key": "listed",
        "items_ref": {"uri": "items.json", "sha256": hex_digest(items)},
    }
    first = accept_manifest(intake, document, folder)
    grown = as_bytes([*listed, put_scan(folder, "scans/3.png", 3)])
    (folder / "items.json").write_bytes(grown)
    assert [item["item_id"] for item in item_rows(intake.ledger)] == ["r-001", "r-002"]
    with pytest.raises(InputRefused) as caught:
        accept_manifest(intake, document, folder)
    assert (caught.value.reason.code, caught.value.pointer) == ("SCAN.DIGEST.v1", "/items_ref")
    assert job_rows(intake.ledger)[0]["job_id"] == first.job_id


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"uri": "scans/9.png"}, "SCAN.MISSING.v1"),
        ({"uri": "../1.png"}, "PATH.OUTSIDE.v1"),
        ({"uri": "scans"}, "SCAN.UNREADABLE.v1"),
        ({"sha256": "b" * 64}, "SCAN.DIGEST.v1"),
        ({"size_bytes": 3}, "SCAN.SIZE.v1"),
        ({"media_type": "image/jpeg"}, "SCAN.MEDIA_TYPE.v1"),
    ],
)
def test_one_bad_item_refuses_the_whole_job_and_leaves_nothing_held(
    intake: IntakeContext, folder: Path, change: dict[str, Any], code: str
) -> None:
    document = job_document(folder, count=3)
    document["items"][1] |= change
    assert refusal_of(intake, document, folder) == (code, "/items/1/uri")
    assert holders(intake.ledger) == set()


def test_a_scan_as_stated_or_of_no_known_kind_is_accepted_by_its_bytes(intake: IntakeContext, folder: Path) -> None:
    document = job_document(folder)
    document["items"][0] |= {"size_bytes": len(scan_bytes()), "media_type": "image/png"}
    broken = b"no picture at all"
    (folder / "broken.jpg").write_bytes(broken)
    (folder / "empty.jpg").write_bytes(b"")
    for name, data in (("broken.jpg", broken), ("empty.jpg", b"")):
        item = {"item_id": name, "uri": name, "sha256": hex_digest(data), "media_type": "image/jpeg"}
        document["items"].append(item)
    accept_manifest(intake, document, folder)
    told = [(item["size_bytes"], item["media_type"]) for item in item_rows(intake.ledger)]
    assert told == [(len(scan_bytes()), "image/png"), (len(broken), ""), (0, "")]


def test_a_scan_that_changes_while_it_is_read_is_refused(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = job_document(folder)
    read = copying.os.read

    def growing(handle: int, count: int) -> bytes:
        data = read(handle, count)
        if data:
            with (folder / "scans/1.png").open("ab") as scan:
                scan.write(b"more" * 300_000)
            monkeypatch.undo()
        return data

    monkeypatch.setattr(copying.os, "read", growing)
    assert refusal_of(intake, document, folder) == ("SCAN.CHANGING.v1", "/items/0/uri")


def test_a_scan_beyond_the_limit_is_refused(intake: IntakeContext, folder: Path) -> None:
    small = dataclasses.replace(intake, scan_size_bytes_max=5)
    assert refusal_of(small, job_document(folder), folder) == ("SCAN.TOO_LARGE.v1", "/items/0/uri")


def test_a_full_disk_is_said_so_and_nothing_is_accepted(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any, **named: Any) -> None:
        raise ObjectFault(STORAGE_FULL, key="scans")

    monkeypatch.setattr(intake.objects, "copy_in", full)
    with pytest.raises(ObjectFault) as caught:
        accept_manifest(intake, job_document(folder), folder)
    assert caught.value.reason.code == "STORAGE.FULL.v1"
    monkeypatch.undo()
    assert job_rows(intake.ledger) == []
    assert accept_manifest(intake, job_document(folder), folder).replayed is False


def test_scans_are_held_while_they_are_copied_and_by_their_job_afterwards(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    copied = accepting.copy_scans

    def watching(*given: Any, **named: Any) -> Any:
        seen.append(holders(intake.ledger))
        return copied(*given, **named)

    monkeypatch.setattr(accepting, "copy_scans", watching)
    answer = accept_manifest(intake, job_document(folder), folder)
    assert len(seen) == 1
    assert len(seen[0]) == 1
    assert holders(intake.ledger) == {answer.job_id}
    assert seen[0] != {answer.job_id}


def test_a_hold_that_was_lost_makes_acceptance_copy_again(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, rounds = accepting.copy_scans, []

    def losing(*given: Any, **named: Any) -> Any:
        stored = copied(*given, **named)
        rounds.append(stored)
        if len(rounds) == 1:
            with intake.ledger.transaction() as tx:
                tx.execute(object_refs.delete())
            intake.objects.delete(scan_key(TENANT, stored[0].sha256))
        return stored

    monkeypatch.setattr(accepting, "copy_scans", losing)
    accept_manifest(intake, job_document(folder), folder)
    assert len(rounds) == 2
    assert intake.objects.read(scan_key(TENANT, rounds[0][0].sha256)) == scan_bytes(1)
