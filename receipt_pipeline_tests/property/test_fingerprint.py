"""Whatever a request says: equal requests have one fingerprint, and every difference is named."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from receipt_pipeline.core.canonical import canonical_json, digest_of
from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.request import JOB_CONTRACT, ItemRequest, JobRequest, LimitsRequest, differing_fields

SECONDS = st.none() | st.integers(1, 10**9)
ITEMS = st.lists(
    st.builds(
        ItemRequest,
        item_id=st.text(min_size=1, max_size=8),
        uri=st.text(max_size=12),
        sha256=st.text(alphabet="0123456789abcdef", min_size=64, max_size=64),
        size_bytes=st.none() | st.integers(0, 10**9),
        media_type=st.none() | st.sampled_from(["image/jpeg", "image/png"]),
        id_explicit=st.booleans(),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
REQUESTS = st.builds(
    JobRequest,
    contract=st.just(JOB_CONTRACT),
    idempotency_key=st.text(min_size=1, max_size=8),
    items=ITEMS,
    release=st.sampled_from(["production", "2026-11"]),
    reconciliation_cutoff=st.none()
    | st.datetimes(dt.datetime(2026, 1, 1), dt.datetime(2027, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001
    limits=st.builds(
        LimitsRequest,
        max_queue_age_s=SECONDS,
        processing_timeout_s=SECONDS,
        result_retention_s=SECONDS,
        max_attempts=SECONDS,
    ),
    notification=st.sampled_from(EffectDemand),
    review_tasks=st.sampled_from(EffectDemand),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(request=REQUESTS, paths=st.lists(st.text(max_size=12), min_size=4, max_size=4), key=st.text(min_size=1))
def test_neither_paths_nor_the_key_change_a_fingerprint(request: JobRequest, paths: list[str], key: str) -> None:
    moved = tuple(
        dataclasses.replace(item, uri=path, id_explicit=not item.id_explicit)
        for item, path in zip(request.items, paths, strict=False)
    )
    other = dataclasses.replace(request, items=moved, idempotency_key=key)
    assert other.fingerprint == request.fingerprint


@pytest.mark.requirement("R026")
@given(first=REQUESTS, second=REQUESTS)
def test_fingerprints_are_equal_exactly_when_no_field_differs(first: JobRequest, second: JobRequest) -> None:
    differing = differing_fields(first.fingerprint_document(), second.fingerprint_document())
    assert (first.fingerprint == second.fingerprint) == (not differing)


@given(request=REQUESTS, data=st.data())
def test_another_order_of_items_is_another_request(request: JobRequest, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(request.items)))
    facts = [[item.item_id, item.sha256, item.size_bytes, item.media_type] for item in request.items]
    assume([[item.item_id, item.sha256, item.size_bytes, item.media_type] for item in order] != facts)
    other = dataclasses.replace(request, items=order)
    assert differing_fields(request.fingerprint_document(), other.fingerprint_document()) == ["items"]


@given(request=REQUESTS)
def test_a_fingerprint_document_survives_being_stored(request: JobRequest) -> None:
    document = request.fingerprint_document()
    assert digest_of(json.loads(json.dumps(document))) == request.fingerprint


@given(value=JSON)
def test_canonical_json_reads_back_as_the_same_value(value: Any) -> None:
    written = canonical_json(value)
    assert json.loads(written) == value
    assert canonical_json(json.loads(written)) == written
