"""The drop folder: manifests and loose scans taken in, everything else left alone and made visible."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox.listing import FOLDERS_DEEP_MAX, REFUSAL_SUFFIX
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.intake_home import (
    acknowledgements,
    as_bytes,
    batch_bytes,
    drop,
    hex_digest,
    item_rows,
    job_document,
    job_rows,
    names_in,
    put_scan,
    row_list,
    row_of,
    scan_bytes,
    submission_list,
    submission_states,
    sweep,
)

SETTLE_S = 10
LIMIT_S = 900


def test_a_dropped_manifest_becomes_a_job_and_everything_moves_along(intake: IntakeContext, place: Path) -> None:
    drop(intake, "expenses.json", job_document(place, count=2))
    summary = sweep(intake)
    assert summary.counts == {"accepted": 1}
    (job,) = job_rows(intake.ledger)
    assert (job["tenant"], job["caller"], job["state"]) == (TENANT, "drop-folder", "accepted")
    left = names_in(place)
    assert len(left) == 3
    assert all(name.startswith("accepted/") for name in left)
    (answer,) = acknowledgements(intake)
    assert answer["lines"][0]["acceptance"]["job_id"] == job["job_id"]
    assert answer["counts"] == {"rows": 1, "accepted": 1, "joined": 0, "refused": 0, "conflicts": 0}
    assert sweep(intake).counts == {}


def test_manifests_in_sub_folders_take_their_scans_from_there(intake: IntakeContext, place: Path) -> None:
    drop(intake, "2026/november/batch.json", batch_bytes([row_of(place / "2026/november", "a.png", 1)]))
    assert sweep(intake).counts == {"accepted": 1}
    assert {name.split(".")[0] for name in names_in(place)} == {
        "accepted/2026/november/a",
        "accepted/2026/november/batch",
    }


def test_each_tenants_folder_is_that_tenants(intake: IntakeContext) -> None:
    for tenant in ("acme", "zenith"):
        folder = intake.inbox / tenant
        drop(intake, "same.json", job_document(folder, key="same"), tenant=tenant)
    sweep(intake)
    assert {job["tenant"] for job in job_rows(intake.ledger)} == {"acme", "zenith"}
    assert len(acknowledgements(intake, "acme")) == len(acknowledgements(intake, "zenith")) == 1


@pytest.mark.requirement("R021", "R025")
def test_the_same_manifest_dropped_again_joins_and_is_counted(intake: IntakeContext, place: Path) -> None:
    document = job_document(place)
    drop(intake, "first.json", document)
    sweep(intake)
    drop(intake, "second.json", as_bytes(document) + b"\n")
    assert sweep(intake).counts == {"joined": 1}
    assert len(job_rows(intake.ledger)) == 1
    assert submission_states(intake) == ["accepted", "joined"]
    ids = {answer["lines"][0]["acceptance"]["job_id"] for answer in acknowledgements(intake)}
    assert ids == {job_rows(intake.ledger)[0]["job_id"]}
    submission_ids = {row["submission_id"] for row in submission_list(intake.ledger)}
    assert submission_ids.isdisjoint(ids)


def test_a_manifest_waits_for_its_scans_and_is_accepted_once_when_they_come(
    intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    document = job_document(place, count=2)
    (place / "scans/2.png").rename(place / "scans/2.png.part")
    drop(intake, "expenses.json", document)
    assert sweep(intake).counts == {"waiting": 1, "ignored": 1}
    clock.advance(LIMIT_S - 1)
    assert sweep(intake).counts == {"waiting": 1, "ignored": 1}
    assert job_rows(intake.ledger) == []
    told = json.loads((intake.outbox(TENANT) / "inbox.json").read_text())
    assert "SCAN.MISSING.v1" in told["waiting"]["acme/expenses.json"]
    (place / "scans/2.png.part").rename(place / "scans/2.png")
    assert sweep(intake).counts == {"accepted": 1}
    assert job_rows(intake.ledger)[0]["items_requested"] == 2


def test_scans_that_never_come_end_in_a_refusal_beside_the_manifest(
    intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    document = job_document(place, count=2)
    (place / "scans/2.png").unlink()
    drop(intake, "expenses.json", document)
    sweep(intake)
    clock.advance(LIMIT_S)
    assert sweep(intake).counts == {"refused": 1}
    refused = {name for name in names_in(place) if name.startswith("refused/")}
    (told,) = [name for name in refused if name.endswith(".refusal.json")]
    line = json.loads((place / told).read_text())["lines"][0]
    assert (line["reason"]["code"], line["pointer"]) == ("INBOX.INCOMPLETE.v1", "/items/1/uri")
    assert line["reason"]["next_step"]
    assert names_in(place) - refused == {"scans/1.png"}
    assert sweep(intake).counts == {}
    put_scan(place, "scans/2.png", 2)
    drop(intake, "expenses.json", document)
    assert sweep(intake).counts == {"accepted": 1}


def test_a_scan_that_still_grows_is_waited_for(intake: IntakeContext, place: Path, clock: FakeClock) -> None:
    document = job_document(place)
    (place / "scans/1.png").write_bytes(b"")
    drop(intake, "expenses.json", document)
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(SETTLE_S - 1)
    (place / "scans/1.png").write_bytes(scan_bytes()[:5])
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(SETTLE_S - 1)
    assert sweep(intake).counts == {"waiting": 1}
    (place / "scans/1.png").write_bytes(scan_bytes())
    assert sweep(intake).counts == {"accepted": 1}
    assert submission_states(intake) == ["accepted"]


def test_a_scan_that_stands_still_with_other_bytes_is_refused_after_the_settle_time(
    intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    document = job_document(place)
    (place / "scans/1.png").write_bytes(scan_bytes(9))
    drop(intake, "expenses.json", document)
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(SETTLE_S)
    assert sweep(intake).counts == {"refused": 1}
    assert row_list(intake.ledger)[0]["reason_code"] == "SCAN.DIGEST.v1"


def test_rows_with_their_scans_do_not_wait_for_those_without(
    intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    rows = [row_of(place, f"{number}.png", number) for number in (1, 2, 3)]
    (place / "2.png").unlink()
    drop(intake, "batch.json", batch_bytes(rows))
    assert sweep(intake).counts == {"waiting": 1}
    assert len(job_rows(intake.ledger)) == 2
    clock.advance(LIMIT_S)
    assert sweep(intake).counts == {"accepted": 1}
    (answer,) = acknowledgements(intake)
    assert answer["counts"] == {"rows": 3, "accepted": 2, "joined": 0, "refused": 1, "conflicts": 0}
    assert len(job_rows(intake.ledger)) == 2


def test_a_half_written_manifest_waits_and_is_refused_only_when_it_stands_still(
    intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    whole = as_bytes(job_document(place))
    path = drop(intake, "expenses.json", whole[:40])
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(SETTLE_S - 1)
    path.write_bytes(whole[:60])
    assert sweep(intake).counts == {"waiting": 1}
    path.write_bytes(whole)
    assert sweep(intake).counts == {"accepted": 1}
    drop(intake, "cut.json", whole[:-5])
    sweep(intake)
    clock.advance(SETTLE_S)
    assert sweep(intake).counts == {"refused": 1}
    assert row_list(intake.ledger)[-1]["reason_code"] == "MANIFEST.NOT_JSON.v1"


def test_a_manifest_without_an_end_of_its_own_must_stand_still_first(
    intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    row = row_of(place, "a.png", 1)
    drop(intake, "batch.csv", f"key,file,sha256\n{row['idempotency_key']},a.png,{row['sha256']}\n".encode())
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(SETTLE_S)
    assert sweep(intake).counts == {"accepted": 1}


def test_a_loose_scan_becomes_a_job_once_it_stands_still(intake: IntakeContext, place: Path, clock: FakeClock) -> None:
    scan = place / "loose/Beleg 7 (März).png"
    put_scan(place, "loose/Beleg 7 (März).png")
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(SETTLE_S - 1)
    scan.write_bytes(scan_bytes(1) + b"more")
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(SETTLE_S - 1)
    assert sweep(intake).counts == {"waiting": 1}
    clock.advance(1)
    assert sweep(intake).counts == {"accepted": 1}
    (item,) = item_rows(intake.ledger)
    digest = hex_digest(scan_bytes(1) + b"more")
    assert (item["item_id"], item["id_explicit"], item["label"]) == (digest[:16], False, scan.name)
    assert job_rows(intake.ledger)[0]["idempotency_key"].startswith("derived-")
    assert names_in(place) == {f"accepted/loose/Beleg 7 (März).{digest[:8]}.png"}


def test_a_file_name_is_never_an_identity(intake: IntakeContext, place: Path, clock: FakeClock) -> None:
    for number in (1, 2, 1):
        put_scan(place, "loose/receipt.png", number)
        sweep(intake)
        clock.advance(SETTLE_S)
        sweep(intake)
    assert len(job_rows(intake.ledger)) == 2
    assert submission_states(intake) == ["accepted", "accepted", "joined"]
    assert len(names_in(place)) == 3


def test_temporary_names_are_ignored_counted_and_recorded(intake: IntakeContext, place: Path, clock: FakeClock) -> None:
    names = [
        "a.png.part",
        "b.crdownload",
        "c.tmp",
        "d.png~",
        ".e.swp",
        "~$f.png",
        "Thumbs.db",
        ".DS_Store",
        "g.filepart",
    ]
    for name in names:
        (place / "loose").mkdir(exist_ok=True)
        (place / "loose" / name).write_bytes(b"x")
        (place / name).write_bytes(b"x")
    for _ in range(2):
        summary = sweep(intake)
        clock.advance(SETTLE_S)
    assert summary.counts == {"ignored": 2 * len(names)}
    assert set(summary.ignored) == {f"acme/{below}{name}" for name in names for below in ("", "loose/")}
    assert submission_states(intake) == ["ignored"] * len(summary.ignored)
    (place / "loose/a.png.part").rename(place / "loose/a.png")
    sweep(intake)
    clock.advance(SETTLE_S)
    assert sweep(intake).counts == {"accepted": 1, "ignored": 2 * len(names) - 1}
    assert len(job_rows(intake.ledger)) == 1


def test_pictures_that_no_manifest_names_are_listed_and_never_taken(
    intake: IntakeContext, place: Path, clock: FakeClock
) -> None:
    put_scan(place, "alone.png", 1)
    waiting = row_of(place, "named.png", 2)
    drop(intake, "batch.json", batch_bytes([waiting, row_of(place, "late.png", 3)]))
    (place / "late.png").unlink()
    for name in ("alone.png", "named.png"):
        os.utime(place / name, (0, 0))
    summary = sweep(intake)
    assert summary.pictures == ("acme/alone.png",)
    assert len(job_rows(intake.ledger)) == 1
    told = json.loads((intake.outbox(TENANT) / "inbox.json").read_text())
    assert told["pictures_without_manifest"] == ["acme/alone.png"]
    clock.advance(LIMIT_S)
    sweep(intake)
    assert (place / "alone.png").is_file()


def test_folders_without_end_keep_nobody_elses_delivery_from_being_read(intake: IntakeContext, place: Path) -> None:
    deep = place.joinpath(*["d"] * (FOLDERS_DEEP_MAX + 1))
    deep.mkdir(parents=True)
    (deep / "too deep.json").write_text("{}")
    drop(intake, "beside.json", job_document(place))
    summary = sweep(intake)
    assert summary.counts == {"accepted": 1, "ignored": 1}
    assert summary.ignored == (str(deep.relative_to(intake.inbox)),)


def test_an_answer_that_cannot_be_written_holds_nobody_else_up(intake: IntakeContext, place: Path) -> None:
    first, second = as_bytes(job_document(place / "a", key="a")), job_document(place / "b", key="b")
    drop(intake, "a/m.json", first)
    drop(intake, "b/m.json", second)
    in_the_way = intake.outbox(TENANT) / f"m.json.{hex_digest(first)[:8]}.ack.json"
    in_the_way.mkdir(parents=True)
    (intake.inbox / f"stray.json{REFUSAL_SUFFIX}").symlink_to("/nowhere/at/all")
    (intake.inbox / "stray.json").write_text("{}")
    assert sweep(intake).counts == {"accepted": 1, "waiting": 1, "misplaced": 1}
    told = json.loads((intake.outbox(TENANT) / "inbox.json").read_text())
    assert told["waiting"] == {"acme/a/m.json": "The answer cannot be written (EISDIR)."}
    in_the_way.rmdir()
    assert sweep(intake).counts["accepted"] == 1
    assert len(acknowledgements(intake)) == len(job_rows(intake.ledger)) == 2


def test_files_where_nothing_is_read_get_a_refusal_beside_them_once(intake: IntakeContext, place: Path) -> None:
    (intake.inbox / "lost.json").write_text("{}")
    (place / "loose").mkdir()
    (place / "loose/batch.csv").write_text("key")
    (intake.inbox / "not a tenant").mkdir()
    for _ in range(2):
        assert sweep(intake).counts == {"misplaced": 3}
    for beside in ("lost.json", "acme/loose/batch.csv", "not a tenant"):
        told = json.loads((intake.inbox / f"{beside}.refusal.json").read_text())
        assert told["code"] == "INBOX.MISPLACED.v1"
        assert told["next_step"]
    assert submission_states(intake) == ["refused"] * 3
    assert job_rows(intake.ledger) == []


def test_links_are_never_followed(intake: IntakeContext, place: Path, tmp_path: Path, clock: FakeClock) -> None:
    outside = tmp_path / "outside"
    document = job_document(outside)
    (outside / "m.json").write_bytes(as_bytes(document))
    (place / "loose").mkdir()
    (place / "loose/link.png").symlink_to(outside / "scans/1.png")
    (place / "link.json").symlink_to(outside / "m.json")
    (place / "folder").symlink_to(outside)
    for _ in range(2):
        assert sweep(intake).counts == {"ignored": 3}
        clock.advance(SETTLE_S)
    assert job_rows(intake.ledger) == []
    assert (outside / "scans/1.png").is_file()


def test_a_bad_manifest_harms_no_sibling(intake: IntakeContext, place: Path) -> None:
    drop(intake, "a-bad.json", b'{"contract": "receipt-job/v9"}')
    drop(intake, "b-good.json", job_document(place))
    drop(
        intake,
        "c-outside.json",
        job_document(place, key="out") | {"items": [put_scan(place, "x.png") | {"uri": "../x.png"}]},
    )
    assert sweep(intake).counts == {"accepted": 1, "refused": 2}
    codes = [row["reason_code"] for row in row_list(intake.ledger)]
    assert sorted(codes) == ["", "CONTRACT.UNKNOWN.v1", "PATH.OUTSIDE.v1"]
