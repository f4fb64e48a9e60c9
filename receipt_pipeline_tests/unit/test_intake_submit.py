"""What one command hands in: manifests, folders, and single scans as one job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.scans import read_one_scan
from receipt_pipeline.intake.submit import submit_paths
from receipt_pipeline_tests.intake_home import (
    PRINCIPAL,
    as_bytes,
    batch_bytes,
    hex_digest,
    item_rows,
    job_document,
    job_rows,
    put_scan,
    row_of,
    scan_bytes,
    submission_list,
)


def put(folder: Path, name: str, number: int) -> Path:
    put_scan(folder, name, number)
    return folder / name


def refusal_of(intake: IntakeContext, *paths: Path, **given: object) -> tuple[str, str]:
    with pytest.raises(InputRefused) as caught:
        submit_paths(intake, paths, principal=PRINCIPAL, **given)  # type: ignore[arg-type]
    assert submission_list(intake.ledger) == []
    return caught.value.reason.code, caught.value.pointer


def test_all_single_scans_are_one_job_with_generated_ids(intake: IntakeContext, folder: Path) -> None:
    paths = [put(folder / "x", "a.png", 1), put(folder / "y", "a.png", 2), put(folder / "z", "a.png", 1)]
    (answer,) = submit_paths(intake, paths, principal=PRINCIPAL)
    one, two = hex_digest(scan_bytes(1))[:16], hex_digest(scan_bytes(2))[:16]
    told = [(item["item_id"], item["id_explicit"], item["label"]) for item in item_rows(intake.ledger)]
    assert told == [(one, False, "a.png"), (two, False, "a.png"), (f"{one}-2", False, "a.png")]
    assert answer.job_ids == (job_rows(intake.ledger)[0]["job_id"],)


@pytest.mark.requirement("R018")
def test_the_derived_key_finds_the_same_job_and_new_makes_another(intake: IntakeContext, folder: Path) -> None:
    paths = [put(folder, "a.png", 1), put(folder, "b.png", 2)]
    first = submit_paths(intake, paths, principal=PRINCIPAL)[0]
    again = submit_paths(intake, paths, principal=PRINCIPAL)[0]
    fresh = submit_paths(intake, paths, principal=PRINCIPAL, new=True)[0]
    named = submit_paths(intake, paths, principal=PRINCIPAL, key="my-key")[0]
    assert first.lines[0].idempotency_key.startswith("derived-")
    assert (again.job_ids, again.lines[0].outcome.value) == (first.job_ids, "joined")
    assert named.lines[0].idempotency_key == "my-key"
    assert len({first.job_ids, fresh.job_ids, named.job_ids}) == len(job_rows(intake.ledger)) == 3
    reordered = submit_paths(intake, list(reversed(paths)), principal=PRINCIPAL)[0]
    assert reordered.job_ids != first.job_ids


def test_manifests_and_folders_are_a_job_each(intake: IntakeContext, folder: Path) -> None:
    manifest = folder / "m.json"
    folder.mkdir()
    manifest.write_bytes(as_bytes(job_document(folder)))
    batch = folder / "rows.csv"
    row = row_of(folder, "r.png", 4)
    batch.write_text(f"key,file,sha256\n{row['idempotency_key']},r.png,{row['sha256']}\n")
    scans = folder / "november"
    for name, number in (("a.png", 1), ("deep/b.png", 2), (".hidden.png", 3), ("c.png.part", 3)):
        put(scans, name, number)
    answers = submit_paths(intake, [manifest, batch, scans], principal=PRINCIPAL)
    assert [answer.label for answer in answers] == ["m.json", "rows.csv", "november"]
    assert sorted(job["items_requested"] for job in job_rows(intake.ledger)) == [1, 1, 2]


def test_a_folder_that_holds_manifests_stands_for_them(intake: IntakeContext, folder: Path) -> None:
    for number in (1, 2):
        (folder / f"{number}").mkdir(parents=True)
    (folder / "a.json").write_bytes(as_bytes(job_document(folder, key="a")))
    (folder / "b.json").write_bytes(batch_bytes([row_of(folder, "r.png", 4)]))
    answers = submit_paths(intake, [folder], principal=PRINCIPAL)
    assert [answer.label for answer in answers] == ["a.json", "b.json"]


def test_one_refused_delivery_harms_no_other(intake: IntakeContext, folder: Path) -> None:
    bad, empty = folder / "bad.json", folder / "empty"
    empty.mkdir(parents=True)
    bad.write_text("{,}")
    answers = submit_paths(intake, [bad, empty, put(folder, "a.png", 1)], principal=PRINCIPAL)
    told = [(answer.state.value, answer.lines[0].reason_code) for answer in answers]
    assert told == [("refused", "MANIFEST.NOT_JSON.v1"), ("refused", "ITEMS.EMPTY.v1"), ("accepted", "")]
    assert [row["state"] for row in submission_list(intake.ledger)] == ["refused", "refused", "accepted"]


def test_a_scan_named_by_hand_may_be_a_link_and_a_link_in_a_folder_may_not(intake: IntakeContext, folder: Path) -> None:
    scan = put(folder, "a.png", 1)
    linked = folder / "linked"
    linked.mkdir()
    (linked / "link.png").symlink_to(scan)
    by_hand, in_folder = submit_paths(intake, [linked / "link.png"], principal=PRINCIPAL), None
    in_folder = submit_paths(intake, [linked], principal=PRINCIPAL)
    assert by_hand[0].state.value == "accepted"
    assert (in_folder[0].state.value, in_folder[0].lines[0].reason_code) == ("refused", "PATH.OUTSIDE.v1")


def test_a_key_belongs_to_one_job(intake: IntakeContext, folder: Path) -> None:
    manifest = folder / "m.json"
    scan = put(folder, "a.png", 1)
    manifest.write_bytes(as_bytes(job_document(folder)))
    assert refusal_of(intake, manifest, scan, key="k")[0] == "FIELD.INVALID.v1"
    assert refusal_of(intake, scan, key="k", new=True)[0] == "FIELD.INVALID.v1"
    assert refusal_of(intake, folder / "nothing.png") == ("SCAN.MISSING.v1", str(folder / "nothing.png"))
    (answer,) = submit_paths(intake, [manifest], principal=PRINCIPAL, key="mine")
    assert answer.lines[0].idempotency_key == "mine"
    (folder / "b.json").write_bytes(batch_bytes([row_of(folder, "r.png", 4)]))
    (refused,) = submit_paths(intake, [folder / "b.json"], principal=PRINCIPAL, new=True)
    assert refused.lines[0].reason_code == "FIELD.INVALID.v1"


def test_the_release_may_be_named_for_scans(intake: IntakeContext, folder: Path) -> None:
    scan = put(folder, "a.png", 1)
    (answer,) = submit_paths(intake, [scan], principal=PRINCIPAL, release="no-such")
    assert answer.lines[0].reason_code == "RELEASE.UNKNOWN.v1"
    (named,) = submit_paths(intake, [scan], principal=PRINCIPAL, release="2026-11")
    assert job_rows(intake.ledger)[0]["release_as_written"] == "2026-11"
    assert named.state.value == "accepted"


def test_a_name_that_no_system_can_look_up_is_unreadable(intake: IntakeContext) -> None:
    with pytest.raises(InputRefused) as refused:
        submit_paths(intake, [Path("x" * 300 + ".jpg")], principal=PRINCIPAL)
    assert (refused.value.reason.code, refused.value.facts["cause"]) == ("SCAN.UNREADABLE.v1", "ENAMETOOLONG")


def test_one_scan_is_read_through_links_and_within_its_bound(folder: Path) -> None:
    scan = put(folder, "1.png", 1)
    (folder / "link.png").symlink_to(scan)
    assert read_one_scan(folder / "link.png", size_bytes_max=100) == scan_bytes(1)
    with pytest.raises(InputRefused, match=r"SCAN\.TOO_LARGE\.v1"):
        read_one_scan(scan, size_bytes_max=3)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("pipe", "SCAN.UNREADABLE.v1"),
        ("folder", "SCAN.UNREADABLE.v1"),
        ("nothing", "SCAN.MISSING.v1"),
        ("loop", "PATH.OUTSIDE.v1"),
        ("x" * 300, "SCAN.UNREADABLE.v1"),
    ],
)
def test_what_is_no_plain_file_is_refused_at_once_instead_of_waited_for(tmp_path: Path, name: str, code: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputRefused) as refused:
        read_one_scan(tmp_path / name, size_bytes_max=100)
    assert (refused.value.reason.code, refused.value.pointer) == (code, name)
