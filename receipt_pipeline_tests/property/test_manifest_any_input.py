"""Whatever arrives as a manifest is read as written or refused with a reason; nothing else happens."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.request import JOB_CONTRACT, ItemRequest, JobRequest
from receipt_pipeline.intake.manifest import MANIFEST_SUFFIXES, Batch, parse_document
from receipt_pipeline.intake.scans import confined_parts

words = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=("C", "Z")), min_size=1, max_size=20
)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "contract",
    "idempotency_key",
    "items",
    "rows",
    "limits",
    "effects",
    "release",
    "reconciliation_cutoff",
    "items_ref",
)


def parse(data: bytes, suffix: str) -> JobRequest | Batch | dict[str, Any] | None:
    try:
        return parse_document(data, suffix=suffix, load_list=lambda *_: b"[]")
    except InputRefused as refusal:
        told = json.loads(json.dumps(refusal.as_document()))
        return None if told["next_step"] else told


@given(st.binary(max_size=200), st.sampled_from(sorted(MANIFEST_SUFFIXES)))
@example(b"PAR1PAR1", ".parquet")
@example(b"\xff\xfe", ".csv")
@example(b"\xef\xbb\xbf", ".json")
def test_any_bytes_are_a_request_or_a_refusal(data: bytes, suffix: str) -> None:
    parse(data, suffix)


@given(st.dictionaries(st.sampled_from(FIELDS), values), st.sampled_from(["receipt-job/v1", "receipt-batch/v1"]))
def test_any_values_in_known_fields_are_a_request_or_a_refusal(document: dict[str, Any], contract: str) -> None:
    read = parse(json.dumps(document | {"contract": contract}).encode(), ".json")
    assert read is None or isinstance(read, JobRequest | Batch)


@given(st.text(max_size=300), st.sampled_from([".csv", ".jsonl"]))
def test_any_text_of_rows_is_a_batch_or_a_refusal(text: str, suffix: str) -> None:
    data = f"key,file,sha256\n{text}".encode("utf-8", "surrogatepass")
    parsed = parse(data, suffix)
    if isinstance(parsed, Batch):
        assert [row.row_no for row in parsed.rows] == list(range(1, len(parsed.rows) + 1))
        assert all((row.request is None) != (row.refusal is None) for row in parsed.rows)


@given(words, st.lists(st.tuples(words, words, digests), min_size=1, max_size=4, unique_by=lambda item: item[0]))
def test_a_request_is_read_back_as_it_was_written(key: str, listed: list[tuple[str, str, str]]) -> None:
    items = tuple(ItemRequest(item_id=name, uri=uri, sha256=digest) for name, uri, digest in listed)
    request = JobRequest(contract=JOB_CONTRACT, idempotency_key=key, items=items)
    document = {
        "contract": JOB_CONTRACT,
        "idempotency_key": key,
        "items": [{"item_id": item.item_id, "uri": item.uri, "sha256": item.sha256} for item in items],
    }
    assert parse(json.dumps(document).encode(), ".json") == request


@given(st.text("./\\ab:\0", max_size=12))
def test_a_path_is_confined_or_refused(uri: str) -> None:
    try:
        parts = confined_parts(uri, pointer="/x")
    except InputRefused as refusal:
        told = (refusal.reason.code, refusal.pointer, dict(refusal.facts))
        parts = ("refused",) if told == ("PATH.OUTSIDE.v1", "/x", {}) else ()
        uri = "refused"
    assert parts
    assert not {"", ".", ".."} & set(parts)
    assert not uri.startswith(("/", "\\"))
