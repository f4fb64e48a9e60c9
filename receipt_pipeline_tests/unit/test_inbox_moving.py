"""What the drop folder moves along: the accepted bytes alone, found again under their name and digest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.inbox import file as dropped
from receipt_pipeline_tests.intake_home import (
    drop,
    hex_digest,
    item_rows,
    job_document,
    job_rows,
    names_in,
    put_scan,
    scan_bytes,
    sweep,
)


def test_a_later_manifest_finds_a_scan_that_an_earlier_one_took_along(intake: IntakeContext, place: Path) -> None:
    item = put_scan(place, "a.png", 1)
    document = {"contract": "receipt-job/v1", "idempotency_key": "one", "items": [item]}
    drop(intake, "one.json", document)
    sweep(intake)
    drop(intake, "two.json", document | {"idempotency_key": "two"})
    assert sweep(intake).counts == {"accepted": 1}
    assert len(job_rows(intake.ledger)) == 2


def test_a_repeated_manifest_leaves_another_manifests_scan_of_the_same_name(intake: IntakeContext, place: Path) -> None:
    first = {"contract": "receipt-job/v1", "idempotency_key": "one", "items": [put_scan(place, "a.png", 1)]}
    drop(intake, "one.json", first)
    sweep(intake)
    second = first | {"idempotency_key": "two", "items": [put_scan(place, "a.png", 2)]}
    drop(intake, "one again.json", first)
    assert sweep(intake).counts["joined"] == 1
    assert "a.png" in names_in(place)
    drop(intake, "two.json", second)
    assert sweep(intake).counts == {"accepted": 1}
    digests = {row["sha256"] for row in item_rows(intake.ledger)}
    assert digests == {f"sha256:{hex_digest(scan_bytes(number))}" for number in (1, 2)}


def test_a_manifest_whose_scans_place_is_taken_by_another_finds_its_own_among_the_accepted(
    intake: IntakeContext, place: Path
) -> None:
    first = {"contract": "receipt-job/v1", "idempotency_key": "one", "items": [put_scan(place, "a.png", 1)]}
    drop(intake, "one.json", first)
    sweep(intake)
    put_scan(place, "a.png", 2)
    drop(intake, "later.json", first | {"idempotency_key": "later"})
    assert sweep(intake).counts["accepted"] == 1
    assert {row["sha256"] for row in item_rows(intake.ledger)} == {f"sha256:{hex_digest(scan_bytes(1))}"}
    assert (place / "a.png").read_bytes() == scan_bytes(2)


def test_a_manifest_that_was_replaced_while_it_was_handled_is_handled_next(
    intake: IntakeContext, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(intake, "m.json", job_document(place, key="one"))
    answered = dropped.acknowledge

    def replace_it(*given: Any) -> None:
        answered(*given)
        monkeypatch.setattr(dropped, "acknowledge", answered)
        drop(intake, "m.json", job_document(place / "more", key="two") | {"items": [put_scan(place, "b.png", 7)]})

    monkeypatch.setattr(dropped, "acknowledge", replace_it)
    sweep(intake)
    assert sweep(intake).counts == {"accepted": 1}
    assert {job["idempotency_key"] for job in job_rows(intake.ledger)} == {"one", "two"}
