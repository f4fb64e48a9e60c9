"""Batches: each row accepted, joined, refused or in conflict by itself, and the counts balance."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.errors import LedgerUnavailable, NotAllowed, ObjectFault
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import LEDGER_UNAVAILABLE, STORAGE_FULL
from receipt_pipeline.intake import submission as batches
from receipt_pipeline.intake.accept import Arrival
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.manifest import parse_document
from receipt_pipeline.intake.scans import FolderScans, PassEnded
from receipt_pipeline.intake.submission import (
    Delivered,
    deliver,
    finish_delivery,
    open_arrival,
    process_delivery,
    read_delivered,
)
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.intake_home import (
    PRINCIPAL,
    an_intake,
    as_bytes,
    batch_bytes,
    item_rows,
    job_document,
    job_rows,
    row_list,
    row_of,
    submission_list,
)


def arrival(folder: Path) -> Arrival:
    return Arrival(PRINCIPAL, FolderScans(folder), "test", "batch.json")


def accept_manifest(intake: IntakeContext, document: bytes, folder: Path) -> Delivered:
    return deliver(intake, document, arrival(folder))


def outcomes(delivered: Delivered) -> list[str]:
    return [line.outcome.value for line in delivered.lines]


def balanced(delivered: Delivered) -> bool:
    counts = dict(delivered.counts)
    return counts.pop("rows") == sum(counts.values())


def test_every_row_gets_its_own_line_and_the_counts_balance(intake: IntakeContext, folder: Path) -> None:
    good, other = row_of(folder, "a.png", 1), row_of(folder, "b.png", 2)
    rows = [
        good,
        good,
        other | {"idempotency_key": good["idempotency_key"]},
        other,
        other | {"idempotency_key": "gone", "uri": "c.png"},
        other | {"idempotency_key": "out", "uri": "../b.png"},
        {"idempotency_key": "short"},
    ]
    delivered = accept_manifest(intake, batch_bytes(rows), folder)
    told = [(line.outcome.value, line.reason_code, line.pointer) for line in delivered.lines]
    assert told == [
        ("accepted", "", ""),
        ("joined", "", ""),
        ("conflict", "KEY.CONFLICT.v1", "/idempotency_key"),
        ("accepted", "", ""),
        ("refused", "SCAN.MISSING.v1", "/rows/4/uri"),
        ("refused", "PATH.OUTSIDE.v1", "/rows/5/uri"),
        ("refused", "FIELD.MISSING.v1", "/rows/6/uri"),
    ]
    assert delivered.counts == {"rows": 7, "accepted": 2, "joined": 1, "refused": 3, "conflicts": 1}
    assert delivered.lines[2].facts | {"row": 3, "conflicts_with_row": 1} == delivered.lines[2].facts
    assert delivered.lines[2].job_id == delivered.lines[0].job_id == delivered.lines[1].job_id
    assert len(job_rows(intake.ledger)) == 2


def test_the_answer_and_its_row_in_the_ledger_say_the_same(intake: IntakeContext, folder: Path) -> None:
    delivered = accept_manifest(intake, batch_bytes([row_of(folder, "a.png", 1), {"key": "b"}]), folder)
    (submission,) = submission_list(intake.ledger)
    assert (submission["state"], submission["rows_total"]) == ("accepted", 2)
    assert (submission["accepted"], submission["refused"]) == (1, 1)
    document = json.loads(json.dumps(delivered.as_document()))
    assert document["counts"]["rows"] == len(document["lines"]) == 2
    assert document["lines"][0]["acceptance"]["job_id"] == job_rows(intake.ledger)[0]["job_id"]
    assert document["lines"][1]["reason"]["next_step"]
    assert "pins" not in delivered.as_document(brief=True)["lines"][0]["acceptance"]


def test_a_row_is_a_job_of_one_item_named_by_its_key(intake: IntakeContext, folder: Path) -> None:
    accept_manifest(intake, batch_bytes([row_of(folder, "a.png", 1, key="desk-7")]), folder)
    (item,) = item_rows(intake.ledger)
    assert (item["item_id"], item["id_explicit"]) == ("desk-7", True)
    assert job_rows(intake.ledger)[0]["contract"] == "receipt-batch/v1"


def test_the_same_batch_again_joins_row_by_row(intake: IntakeContext, folder: Path) -> None:
    document = batch_bytes([row_of(folder, f"{number}.png", number) for number in (1, 2, 3)])
    first, again = accept_manifest(intake, document, folder), accept_manifest(intake, document, folder)
    assert (outcomes(first), outcomes(again)) == (["accepted"] * 3, ["joined"] * 3)
    assert first.job_ids == again.job_ids
    assert (first.state.value, again.state.value) == ("accepted", "joined")


def test_a_document_that_is_no_batch_is_one_refused_line(intake: IntakeContext, folder: Path) -> None:
    delivered = accept_manifest(intake, b'{"contract": "receipt-batch/v1", "rows": [NaN]}', folder)
    assert (outcomes(delivered), delivered.state.value) == (["refused"], "refused")
    assert (delivered.lines[0].reason_code, delivered.lines[0].pointer) == ("MANIFEST.NOT_JSON.v1", "/rows/0")
    assert submission_list(intake.ledger)[0]["reason_code"] == "MANIFEST.NOT_JSON.v1"


def test_a_conflicting_job_is_one_line_in_conflict(intake: IntakeContext, folder: Path) -> None:
    accept_manifest(intake, as_bytes(job_document(folder)), folder)
    delivered = accept_manifest(intake, as_bytes(job_document(folder, count=2)), folder)
    assert (outcomes(delivered), delivered.state.value) == (["conflict"], "conflict")
    assert delivered.lines[0].facts["differing"] == ["items"]
    assert delivered.job_ids == ()


def test_infrastructure_trouble_decides_no_row_and_the_next_try_goes_on(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row_of(folder, f"{number}.png", number) for number in (1, 2, 3)]
    accepted, tried = batches.accept_job, []

    def broken(*given: Any, **named: Any) -> Any:
        tried.append(1)
        if len(tried) == 2:
            raise LedgerUnavailable(LEDGER_UNAVAILABLE, tries=6)
        return accepted(*given, **named)

    monkeypatch.setattr(batches, "accept_job", broken)
    with pytest.raises(LedgerUnavailable) as caught:
        accept_manifest(intake, batch_bytes(rows), folder)
    assert caught.value.reason.code == "LEDGER.UNAVAILABLE.v1"
    assert len(job_rows(intake.ledger)) == 1
    assert outcomes(accept_manifest(intake, batch_bytes(rows), folder)) == ["joined", "accepted", "accepted"]


def test_a_full_disk_in_mid_batch_keeps_the_rows_before_it(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row_of(folder, f"{number}.png", number) for number in (1, 2)]
    accepted, tried = batches.accept_job, []

    def full(*given: Any, **named: Any) -> Any:
        tried.append(1)
        if len(tried) == 2:
            raise ObjectFault(STORAGE_FULL)
        return accepted(*given, **named)

    monkeypatch.setattr(batches, "accept_job", full)
    delivered = accept_manifest(intake, batch_bytes(rows), folder)
    assert outcomes(delivered) == ["accepted"]
    assert submission_list(intake.ledger)[0]["reason_code"] == "STORAGE.FULL.v1"


def test_a_pass_that_ends_in_mid_batch_is_taken_up_where_it_ended(intake: IntakeContext, folder: Path) -> None:
    document = batch_bytes([row_of(folder, f"{number}.png", number) for number in range(1, 6)])
    parsed = parse_document(document, suffix=".json", load_list=lambda *_: b"")
    with intake.ledger.transaction() as tx:
        submission_id = open_arrival(tx, arrival(folder), document_digest="sha256:x")
    for done in (2, 4):
        asked = iter([False, True])
        with pytest.raises(PassEnded):
            process_delivery(intake, parsed, arrival(folder), submission_id, time_is_up=lambda asked=asked: next(asked))
        assert len(row_list(intake.ledger)) == done
    assert process_delivery(intake, parsed, arrival(folder), submission_id) == 0
    finish_delivery(intake, submission_id)
    delivered = read_delivered(intake, submission_id)
    assert outcomes(delivered) == ["accepted"] * 5
    assert [line.row_no for line in delivered.lines] == [1, 2, 3, 4, 5]
    assert len(job_rows(intake.ledger)) == 5


def test_a_job_of_many_scans_remembers_between_passes_what_it_stored(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = parse_document(as_bytes(job_document(folder, count=5)), suffix=".json", load_list=lambda *_: b"")
    with intake.ledger.transaction() as tx:
        submission_id = open_arrival(tx, arrival(folder), document_digest="sha256:x")
    asked = iter([False, False, True])
    with pytest.raises(PassEnded):
        process_delivery(intake, parsed, arrival(folder), submission_id, time_is_up=lambda: next(asked))
    assert len(submission_list(intake.ledger)[0]["stored"]) == 3
    assert job_rows(intake.ledger) == []
    copied, opened = intake.objects.copy_in, []

    def counting(key: str, *given: Any, **named: Any) -> Any:
        opened.append(key)
        return copied(key, *given, **named)

    monkeypatch.setattr(intake.objects, "copy_in", counting)
    assert process_delivery(intake, parsed, arrival(folder), submission_id) == 0
    assert len(opened) == 2
    assert [item["size_bytes"] for item in item_rows(intake.ledger)] == [14] * 5


def test_who_may_not_submit_leaves_no_row(intake: IntakeContext, folder: Path) -> None:
    nobody = Arrival(Principal(TENANT, "kim", frozenset()), FolderScans(folder), "test", "batch.json")
    with pytest.raises(NotAllowed):
        deliver(intake, batch_bytes([row_of(folder, "a.png", 1)]), nobody)
    assert submission_list(intake.ledger) == []


def test_time_grows_in_line_with_the_rows(sqlite_ledger_url: str, tmp_path: Path) -> None:
    from receipt_pipeline.ledger.engine import open_ledger

    def seconds_a_row(rows: int) -> float:
        folder, ledger = tmp_path / str(rows), open_ledger(sqlite_ledger_url)
        intake = an_intake(ledger, tmp_path / f"home-{rows}")
        document = batch_bytes([row_of(folder, f"{n}.png", n, key=f"{rows}-{n}") for n in range(rows)])
        began = time.process_time()
        delivered = accept_manifest(intake, document, folder)
        spent = time.process_time() - began
        ledger.close()
        assert delivered.counts["accepted"] == rows
        return spent / rows

    seconds_a_row(20)
    assert seconds_a_row(400) < 4 * max(seconds_a_row(40), 0.002)
