"""Manifests: parsed strictly; every refusal names its reason and its place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.request import JobRequest
from receipt_pipeline.intake import manifest, strict_json
from receipt_pipeline.intake.manifest import Batch, parse_document

SHA = "a" * 64
JOB: dict[str, Any] = {
    "contract": "receipt-job/v1",
    "idempotency_key": "expenses-2026-11-28",
    "items": [{"item_id": "r-001", "uri": "scans/r-001.jpg", "sha256": SHA}],
}
ROW = {"idempotency_key": "row-1", "uri": "a.png", "sha256": SHA}


def no_list(uri: str, sha256: str, pointer: str) -> bytes:
    raise AssertionError("no list was named")


def parse(document: Any, **given: Any) -> JobRequest | Batch:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_document(data, **({"suffix": ".json", "load_list": no_list} | given))


def refusal_of(document: Any, **given: Any) -> tuple[str, str]:
    with pytest.raises(InputRefused) as caught:
        parse(document, **given)
    return caught.value.reason.code, caught.value.pointer


def changed(path: str, value: Any = ...) -> dict[str, Any]:
    document = copy.deepcopy(JOB)
    *steps, last = path.split("/")
    place: Any = document
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    if value is ...:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return document


def test_a_whole_job_is_read_as_written() -> None:
    document = JOB | {
        "operation_class": "receipt-classification",
        "release": "staging",
        "reconciliation_cutoff": "2026-11-29T07:00:00+01:00",
        "limits": {"max_queue_age_s": 60, "processing_timeout_s": 90, "result_retention_s": 3600, "max_attempts": 2},
        "effects": {"notification": "required", "review_tasks": "none"},
        "note": "people may write\nanything here",
    }
    request = parse(document)
    assert isinstance(request, JobRequest)
    assert (request.release, request.limits.max_attempts, request.notification.value) == ("staging", 2, "required")
    assert request.reconciliation_cutoff is not None
    assert request.reconciliation_cutoff.isoformat() == "2026-11-29T06:00:00+00:00"
    assert (request.items[0].item_id, request.items[0].id_explicit) == ("r-001", True)


@pytest.mark.requirement("R043")
def test_the_envelope_holds_references_and_named_values_only() -> None:
    request = parse(JOB | {"note": "x" * 5000})
    assert isinstance(request, JobRequest)
    assert "x" * 100 not in repr(request)
    assert refusal_of(changed("items/0/content", "aGVsbG8="))[0] == "FIELD.UNKNOWN.v1"
    assert refusal_of(changed("items/0/uri", "d/" * 600 + "a"))[0] == "FIELD.INVALID.v1"


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("contract", ..., "FIELD.MISSING.v1"),
        ("contract", "receipt-job/v2", "CONTRACT.UNKNOWN.v1"),
        ("contract", 1, "CONTRACT.UNKNOWN.v1"),
        ("idempotency_key", ..., "FIELD.MISSING.v1"),
        ("idempotency_key", "", "FIELD.INVALID.v1"),
        ("idempotency_key", 17, "FIELD.INVALID.v1"),
        ("idempotency_key", " spaced ", "FIELD.INVALID.v1"),
        ("idempotency_key", "a\u0000b", "FIELD.INVALID.v1"),
        ("idempotency_key", "a\ud800", "FIELD.INVALID.v1"),
        ("idempotency_key", "k" * 201, "FIELD.INVALID.v1"),
        ("operation_class", "other", "FIELD.INVALID.v1"),
        ("items", ..., "FIELD.MISSING.v1"),
        ("items", [], "ITEMS.EMPTY.v1"),
        ("items", {}, "FIELD.INVALID.v1"),
        ("items/0", "r-001", "FIELD.INVALID.v1"),
        ("items/0/item_id", ..., "FIELD.MISSING.v1"),
        ("items/0/uri", ..., "FIELD.MISSING.v1"),
        ("items/0/sha256", ..., "FIELD.MISSING.v1"),
        ("items/0/sha256", "A" * 64, "FIELD.INVALID.v1"),
        ("items/0/sha256", "abc", "FIELD.INVALID.v1"),
        ("items/0/size_bytes", True, "FIELD.INVALID.v1"),
        ("items/0/size_bytes", "12", "FIELD.INVALID.v1"),
        ("items/0/size_bytes", -1, "FIELD.INVALID.v1"),
        ("items/0/size_bytes", 1.0, "FIELD.INVALID.v1"),
        ("items/0/media_type", "jpeg", "FIELD.INVALID.v1"),
        ("items/0/colour", "blue", "FIELD.UNKNOWN.v1"),
        ("caller", "somebody-else", "FIELD.UNKNOWN.v1"),
        ("limits", [], "FIELD.INVALID.v1"),
        ("limits/max_queue_age_s", 0, "FIELD.INVALID.v1"),
        ("limits/max_queue_age_s", 10**14, "FIELD.INVALID.v1"),
        ("limits/patience", 3, "FIELD.UNKNOWN.v1"),
        ("effects/notification", "sometimes", "FIELD.INVALID.v1"),
        ("effects/email", "required", "FIELD.UNKNOWN.v1"),
        ("reconciliation_cutoff", "2026-11-29T06:00:00", "FIELD.INVALID.v1"),
        ("reconciliation_cutoff", "tomorrow", "FIELD.INVALID.v1"),
        ("reconciliation_cutoff", "0001-01-01T00:00:00+14:00", "FIELD.INVALID.v1"),
        ("reconciliation_cutoff", "2026-13-29T06:00:00Z", "FIELD.INVALID.v1"),
        ("reconciliation_cutoff", 1764396000, "FIELD.INVALID.v1"),
    ],
)
def test_what_the_contract_does_not_allow_is_refused_with_code_and_place(path: str, value: Any, code: str) -> None:
    assert refusal_of(changed(path, value)) == (code, f"/{path}")


@pytest.mark.requirement("R012")
def test_a_request_cannot_name_its_own_caller_or_tenant() -> None:
    for name in ("caller", "tenant", "roles", "submitted_at"):
        assert refusal_of(JOB | {name: "x"}) == ("FIELD.UNKNOWN.v1", f"/{name}")


def test_two_items_with_one_id_are_refused_and_both_places_told() -> None:
    document = JOB | {"items": JOB["items"] * 2}
    with pytest.raises(InputRefused) as caught:
        parse(document)
    assert (caught.value.reason.code, caught.value.pointer) == ("ITEM.DUPLICATE_ID.v1", "/items/1/item_id")
    assert caught.value.facts["first"] == "/items/0"


@pytest.mark.parametrize(
    ("text", "code", "pointer"),
    [
        ('{"contract": "receipt-job/v1", "a": 1, "a": 2}', "MANIFEST.DUPLICATE_KEY.v1", "/a"),
        ('{"limits": {"x": [{"b": 1, "b": 1}]}}', "MANIFEST.DUPLICATE_KEY.v1", "/limits/x/0/b"),
        ('{"limits": {"max_queue_age_s": NaN}}', "MANIFEST.NOT_JSON.v1", "/limits/max_queue_age_s"),
        ('{"limits": {"max_queue_age_s": -Infinity}}', "MANIFEST.NOT_JSON.v1", "/limits/max_queue_age_s"),
        ('{"limits": {"max_queue_age_s": 1e999}}', "FIELD.INVALID.v1", "/limits/max_queue_age_s"),
        ('{"limits": {"max_queue_age_s": ' + "9" * 5000 + "}}", "FIELD.INVALID.v1", "/limits/max_queue_age_s"),
        ('{"a~b/c": NaN}', "MANIFEST.NOT_JSON.v1", "/a~0b~1c"),
        ("[]", "FIELD.INVALID.v1", ""),
        ('"text"', "FIELD.INVALID.v1", ""),
    ],
)
def test_values_that_readers_disagree_about_are_refused(text: str, code: str, pointer: str) -> None:
    assert refusal_of(text.encode()) == (code, pointer)


@pytest.mark.parametrize("text", ['{"a": [1,]}', '{"a": 1', "", "{'a': 1}", '{"a": 01}', "// remark\n{}"])
def test_text_that_is_no_json_is_refused_with_line_and_column(text: str) -> None:
    with pytest.raises(InputRefused) as caught:
        parse(("\n\n" + text).encode())
    assert caught.value.reason.code == "MANIFEST.NOT_JSON.v1"
    assert caught.value.facts["line"] == 3
    assert json.loads(json.dumps(caught.value.as_document()))["next_step"]


def test_marks_and_utf_16_are_understood_and_other_encodings_refused() -> None:
    text = json.dumps(JOB)
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert isinstance(parse(text.encode(encoding)), JobRequest)
    for data in (text.encode("utf-16-le"), '{"contract": "März"}'.encode("latin-1"), b"\xff\x00\xfe"):
        assert refusal_of(data)[0] == "MANIFEST.ENCODING.v1"


def test_over_large_and_over_deep_documents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal_of(b'{"a":' * 100_000)[0] == "MANIFEST.TOO_LARGE.v1"
    monkeypatch.setattr(manifest, "ITEMS_MAX", 1)
    two = [dict(JOB["items"][0], item_id=name) for name in ("a", "b")]
    assert refusal_of(JOB | {"items": two}) == ("MANIFEST.TOO_LARGE.v1", "/items")
    monkeypatch.setattr(manifest, "ROWS_MAX", 1)
    batch = {"contract": "receipt-batch/v1", "rows": [ROW, ROW]}
    assert refusal_of(batch) == ("MANIFEST.TOO_LARGE.v1", "/rows")
    monkeypatch.setattr(strict_json, "DOCUMENT_SIZE_BYTES_MAX", 10)
    assert refusal_of(JOB)[0] == "MANIFEST.TOO_LARGE.v1"


@pytest.mark.requirement("R026")
def test_the_fingerprint_ignores_order_paths_and_defaults_and_nothing_else() -> None:
    def fingerprint(document: dict[str, Any]) -> str:
        request = parse(document)
        assert isinstance(request, JobRequest)
        return request.fingerprint

    first = fingerprint(JOB)
    assert fingerprint(dict(reversed(JOB.items()))) == first
    assert fingerprint(changed("items/0/uri", "elsewhere/r-001.jpg")) == first
    assert fingerprint(JOB | {"release": "production", "limits": {"max_attempts": 3}, "effects": {}}) == first
    for path, value in (
        ("items/0/sha256", "b" * 64),
        ("items/0/item_id", "r-002"),
        ("items/0/size_bytes", 5),
        ("release", "staging"),
        ("limits/max_attempts", 4),
        ("effects/notification", "required"),
        ("reconciliation_cutoff", "2026-11-29T06:00:00Z"),
    ):
        assert fingerprint(changed(path, value)) != first


def test_items_may_stand_in_a_list_of_their_own() -> None:
    asked = []

    def load(uri: str, sha256: str, pointer: str) -> bytes:
        asked.append((uri, sha256, pointer))
        return json.dumps(JOB["items"]).encode()

    document = {name: value for name, value in JOB.items() if name != "items"}
    document["items_ref"] = {"uri": "items.json", "sha256": SHA}
    request = parse(document, load_list=load)
    assert isinstance(request, JobRequest)
    assert asked == [("items.json", SHA, "/items_ref")]
    plain = parse(JOB)
    assert isinstance(plain, JobRequest)
    assert request.fingerprint == plain.fingerprint
    assert refusal_of(document | {"items": JOB["items"]}, load_list=load) == ("FIELD.INVALID.v1", "/items_ref")
    assert refusal_of(document, load_list=lambda *_: b"{}") == ("FIELD.INVALID.v1", "/items_ref")


def test_each_row_of_a_batch_stands_or_falls_by_itself() -> None:
    rows = [ROW, ROW | {"sha256": "short"}, {"uri": "a.png"}, "text", ROW | {"item_id": "mine", "colour": 1}]
    batch = parse({"contract": "receipt-batch/v1", "rows": rows, "release": "staging"})
    assert isinstance(batch, Batch)
    told = [(row.row_no, row.refusal.pointer if row.refusal else None) for row in batch.rows]
    assert told == [
        (1, None),
        (2, "/rows/1/sha256"),
        (3, "/rows/2/idempotency_key"),
        (4, "/rows/3"),
        (5, "/rows/4/colour"),
    ]
    request = batch.rows[0].request
    assert request is not None
    assert (request.release, request.items[0].item_id, request.items[0].id_explicit) == ("staging", "row-1", True)
    assert batch.rows[1].idempotency_key == "row-1"


def test_a_row_overrides_what_the_batch_shares_and_takes_short_names() -> None:
    short = {"key": "row-1", "file": "a.png", "sha256": SHA, "bytes": 5, "release": "own", "note": "desk 3"}
    batch = parse({"contract": "receipt-batch/v1", "rows": [short], "limits": {"max_attempts": 2}})
    assert isinstance(batch, Batch)
    request = batch.rows[0].request
    assert request is not None
    assert (request.release, request.limits.max_attempts, request.items[0].size_bytes) == ("own", 2, 5)
    twice = parse({"contract": "receipt-batch/v1", "rows": [short | {"idempotency_key": "row-1"}]})
    assert isinstance(twice, Batch)
    assert twice.rows[0].refusal is not None
    assert twice.rows[0].refusal.pointer == "/rows/0/key"


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"rows": []}, "ITEMS.EMPTY.v1", "/rows"),
        ({"rows": {}}, "FIELD.INVALID.v1", "/rows"),
        ({}, "FIELD.MISSING.v1", "/rows"),
        ({"rows": [ROW], "limits": {"max_attempts": 0}}, "FIELD.INVALID.v1", "/limits/max_attempts"),
        ({"rows": [ROW], "idempotency_key": "x"}, "FIELD.UNKNOWN.v1", "/idempotency_key"),
    ],
)
def test_a_flaw_of_the_whole_batch_refuses_it_as_a_whole(fields: dict[str, Any], code: str, pointer: str) -> None:
    assert refusal_of({"contract": "receipt-batch/v1"} | fields) == (code, pointer)
