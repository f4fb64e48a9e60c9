"""The result document: equal results are equal bytes, and bytes that say something else are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from receipt_pipeline.core.canonical import canonical_json, digest_of
from receipt_pipeline.core.errors import ObjectFault
from receipt_pipeline.core.items import ItemClass, ItemOutcome
from receipt_pipeline.core.result_document import ResultDocument, ResultItem, parse_result
from receipt_pipeline_tests.builders import RELEASE, an_outcome


def an_item(ordinal: int, outcome: ItemOutcome) -> ResultItem:
    computed = outcome.item_class is not ItemClass.EXPIRED
    return ResultItem(
        ordinal=ordinal,
        item_id=f"r-{ordinal:03d}",
        decision_id=digest_of(["decision", ordinal]),
        sha256=digest_of(["scan", ordinal]),
        outcome=outcome,
        outcome_digest=outcome.outcome_digest if computed else None,
        unchanged_from="job_earlier" if outcome.item_class is ItemClass.UNCHANGED else None,
    )


DOCUMENT = ResultDocument(
    job_id="job_1",
    pins=RELEASE.pins(),
    items=(
        an_item(0, replace(an_outcome(), evidence={"confidence_mean": 0.9871})),
        an_item(1, replace(an_outcome(), item_class=ItemClass.UNCHANGED)),
        an_item(2, ItemOutcome(ItemClass.REJECTED, reason_code="SCAN.BROKEN.v1")),
        an_item(3, ItemOutcome(ItemClass.EXPIRED, reason_code="ITEM.OVERTAKEN.v1")),
    ),
)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def bytes_of(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(canonical_json(line) + b"\n" for line in lines)


def test_a_document_is_read_back_as_it_was_written() -> None:
    assert parse_result(DOCUMENT.encode()) == DOCUMENT


def test_the_order_in_which_items_were_given_does_not_matter() -> None:
    turned = replace(DOCUMENT, items=tuple(reversed(DOCUMENT.items)))
    assert turned.encode() == DOCUMENT.encode()
    assert turned.digest == DOCUMENT.digest


def test_the_header_restates_pins_and_counts() -> None:
    header = lines_of(DOCUMENT.encode())[0]
    assert header["contract"] == "receipt-result/v1"
    assert header["pins"] == RELEASE.pins().as_document()
    assert (header["requested"], sum(header["items"].values())) == (4, 4)
    assert header["items"]["classified"] == 1


def without_last_line(lines: list[dict[str, Any]]) -> bytes:
    return bytes_of(lines[:-1])


def with_another_decision(lines: list[dict[str, Any]]) -> bytes:
    lines[1]["outcome"]["decision"] = "review"
    return bytes_of(lines)


def of_another_contract(lines: list[dict[str, Any]]) -> bytes:
    lines[0]["contract"] = "receipt-result/v2"
    return bytes_of(lines)


def with_white_space(lines: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"


@pytest.mark.parametrize(
    "spoil",
    [
        without_last_line,
        with_another_decision,
        of_another_contract,
        with_white_space,
        lambda lines: b"",
        lambda lines: b"[1]\n",
        lambda lines: b"\xff\xfe",
    ],
)
def test_bytes_that_are_no_whole_result_are_refused(spoil: Any) -> None:
    with pytest.raises(ObjectFault) as refused:
        parse_result(spoil(lines_of(DOCUMENT.encode())))
    assert refused.value.reason.code == "RESULT.MISMATCH.v1"
