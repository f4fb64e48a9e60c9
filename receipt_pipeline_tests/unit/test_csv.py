"""Batches as CSV and JSON lines: the same rows in each format."""

from __future__ import annotations

import json

import pytest

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.intake.manifest import Batch, parse_document

A, B = "a" * 64, "b" * 64
HEADER = "key,file,sha256"


def parse(data: bytes | str, suffix: str) -> Batch:
    data = data.encode() if isinstance(data, str) else data
    parsed = parse_document(data, suffix=suffix, load_list=lambda *_: b"")
    assert isinstance(parsed, Batch)
    return parsed


def refusal_of(data: bytes | str, suffix: str = ".csv") -> tuple[str, str]:
    with pytest.raises(InputRefused) as caught:
        parse(data, suffix)
    return caught.value.reason.code, caught.value.pointer


def keys_of(batch: Batch) -> list[str]:
    return [row.idempotency_key for row in batch.rows]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_from_any_spreadsheet_is_read(encoding: str, delimiter: str) -> None:
    lines = ["key,file,sha256,bytes,note,max_attempts", f"k-1,a.png,{A},12,café,2", f"k-2,b.png,{B},,,", ""]
    batch = parse("\r\n".join(lines).replace(",", delimiter).encode(encoding), ".csv")
    assert keys_of(batch) == ["k-1", "k-2"]
    first, second = (row.request for row in batch.rows)
    assert first is not None
    assert second is not None
    assert (first.items[0].sha256, first.items[0].size_bytes, first.limits.max_attempts) == (A, 12, 2)
    assert (second.items[0].size_bytes, second.limits.max_attempts) == (None, None)


def test_quoted_cells_may_hold_delimiters_and_line_ends() -> None:
    batch = parse(f'{HEADER},note\nk-1,"a, b.png",{A},"two\nlines"\n', ".csv")
    assert batch.rows[0].request is not None
    assert batch.rows[0].request.items[0].uri == "a, b.png"


def test_a_bad_row_of_a_csv_is_refused_with_row_and_line() -> None:
    batch = parse(f"{HEADER},bytes\nk-1,a.png,{A},12\n\nk-2,b.png,{B},many\nk-3,c.png,{B},1,extra\nk-4\n", ".csv")
    refusals = [row.refusal for row in batch.rows]
    assert refusals[0] is None
    told = [(r.reason.code, r.pointer, r.facts["row"], r.facts["line"]) for r in refusals if r is not None]
    assert told == [
        ("FIELD.INVALID.v1", "/rows/1/size_bytes", 2, 4),
        ("FIELD.INVALID.v1", "/rows/2", 3, 5),
        ("FIELD.MISSING.v1", "/rows/3/uri", 4, 6),
    ]


@pytest.mark.parametrize(
    ("text", "code", "pointer"),
    [
        ("key,file\nk,a.png\n", "FIELD.MISSING.v1", "/header/sha256"),
        ("", "FIELD.MISSING.v1", "/header/idempotency_key"),
        (f"{HEADER},sha256\n", "MANIFEST.DUPLICATE_KEY.v1", "/header/sha256"),
        (f"{HEADER},colour\n", "FIELD.UNKNOWN.v1", "/header/colour"),
        (f"{HEADER}\n", "ITEMS.EMPTY.v1", "/rows"),
        (f'{HEADER}\nk,"a.png,{A}\n', "FIELD.INVALID.v1", "/rows"),
    ],
)
def test_a_csv_whose_header_or_form_is_wrong_is_refused_as_a_whole(text: str, code: str, pointer: str) -> None:
    assert refusal_of(text) == (code, pointer)


def test_an_encoding_that_cannot_be_detected_is_refused() -> None:
    text = f"{HEADER}\nk-1,März.png,{A}\n"
    for encoding in ("latin-1", "utf-16-le"):
        assert refusal_of(text.encode(encoding))[0] == "MANIFEST.ENCODING.v1"


def test_json_lines_refuse_only_the_line_that_is_none() -> None:
    good = json.dumps({"key": "k-1", "file": "a.png", "sha256": A})
    named = json.dumps({"contract": "receipt-batch/v1", "key": "k-3", "file": "a.png", "sha256": A})
    foreign = json.dumps({"contract": "receipt-job/v1", "key": "k-4", "file": "a.png", "sha256": A})
    batch = parse(f'{good}\n\n{{"key": "k-2",}}\n{named}\n{foreign}\n', ".jsonl")
    assert keys_of(batch) == ["k-1", "", "k-3", ""]
    broken, other = batch.rows[1].refusal, batch.rows[3].refusal
    assert broken is not None
    assert (broken.reason.code, broken.facts["line"], broken.facts["row"]) == ("MANIFEST.NOT_JSON.v1", 3, 2)
    assert other is not None
    assert (other.reason.code, other.pointer) == ("CONTRACT.UNKNOWN.v1", "/rows/3/contract")


def test_a_parquet_file_is_refused_by_name() -> None:
    with pytest.raises(InputRefused) as caught:
        parse(b"PAR1", ".parquet")
    assert caught.value.reason.code == "MANIFEST.ENCODING.v1"
    assert caught.value.facts == {"format": ".parquet", "allowed": ["JSON", "JSON lines", "CSV"]}


def test_more_rows_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receipt_pipeline.intake.manifest.ROWS_MAX", 1)
    two = f"{HEADER}\nk-1,a.png,{A}\nk-2,a.png,{A}\n"
    lines = "\n".join(json.dumps({"key": "k", "file": "a.png", "sha256": A}) for _ in range(2))
    for data, suffix in ((two, ".csv"), (lines, ".jsonl")):
        assert refusal_of(data, suffix) == ("MANIFEST.TOO_LARGE.v1", "/rows")
