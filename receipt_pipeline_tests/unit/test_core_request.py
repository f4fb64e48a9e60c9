"""The fingerprint covers the request as written; limits and deadlines are results of acceptance."""

from __future__ import annotations

import dataclasses
import datetime as dt

import pytest

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.request import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_QUEUE_AGE_S,
    DEFAULT_RESULT_RETENTION_S,
    JOB_CONTRACT,
    ItemRequest,
    JobRequest,
    LimitsRequest,
    differing_fields,
    resolve_limits,
)

SUBMITTED = dt.datetime(2026, 11, 28, 8, 0, tzinfo=dt.UTC)
FIRST = ItemRequest(item_id="r-001", uri="scans/a.jpg", sha256="0" * 64)
SECOND = ItemRequest(item_id="r-002", uri="scans/b.jpg", sha256="1" * 64)
REQUEST = JobRequest(contract=JOB_CONTRACT, idempotency_key="expenses", items=(FIRST, SECOND))


def test_a_value_equal_to_the_default_counts_as_not_given() -> None:
    written_out = dataclasses.replace(
        REQUEST,
        operation_class="receipt-classification",
        release="production",
        limits=LimitsRequest(
            max_queue_age_s=DEFAULT_MAX_QUEUE_AGE_S,
            result_retention_s=DEFAULT_RESULT_RETENTION_S,
            max_attempts=DEFAULT_MAX_ATTEMPTS,
        ),
        notification=EffectDemand.BEST_EFFORT,
        review_tasks=EffectDemand.REQUIRED,
    )
    assert written_out.fingerprint == REQUEST.fingerprint


def test_a_value_that_the_number_of_items_decides_has_no_default_to_equal() -> None:
    explicit = dataclasses.replace(REQUEST, limits=LimitsRequest(processing_timeout_s=900))
    assert explicit.fingerprint != REQUEST.fingerprint


def test_paths_and_the_key_do_not_enter() -> None:
    moved = tuple(dataclasses.replace(item, uri=f"elsewhere/{item.label}") for item in REQUEST.items)
    other = dataclasses.replace(REQUEST, items=moved, idempotency_key="another")
    assert other.fingerprint == REQUEST.fingerprint


def test_whether_an_item_id_was_derived_does_not_enter() -> None:
    derived = tuple(dataclasses.replace(item, id_explicit=False) for item in REQUEST.items)
    assert dataclasses.replace(REQUEST, items=derived).fingerprint == REQUEST.fingerprint


def test_the_order_of_items_enters() -> None:
    assert dataclasses.replace(REQUEST, items=(SECOND, FIRST)).fingerprint != REQUEST.fingerprint


def test_the_order_in_which_options_are_written_does_not_enter() -> None:
    document = dataclasses.replace(
        REQUEST, release="2026-11", limits=LimitsRequest(max_attempts=5)
    ).fingerprint_document()
    backwards = dict(reversed(document.items()))
    assert list(backwards) != list(document)
    assert differing_fields(document, backwards) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"release": "2026-10"}, "release"),
        ({"operation_class": "another"}, "operation_class"),
        ({"contract": "receipt-batch/v1"}, "contract"),
        ({"reconciliation_cutoff": SUBMITTED}, "reconciliation_cutoff"),
        ({"limits": LimitsRequest(max_queue_age_s=47)}, "limits.max_queue_age_s"),
        ({"limits": LimitsRequest(processing_timeout_s=47)}, "limits.processing_timeout_s"),
        ({"limits": LimitsRequest(result_retention_s=47)}, "limits.result_retention_s"),
        ({"limits": LimitsRequest(max_attempts=1)}, "limits.max_attempts"),
        ({"notification": EffectDemand.NONE}, "effects.notification"),
        ({"review_tasks": EffectDemand.NONE}, "effects.review_tasks"),
        ({"items": (FIRST,)}, "items"),
        ({"items": (dataclasses.replace(FIRST, sha256="2" * 64), SECOND)}, "items"),
        ({"items": (dataclasses.replace(FIRST, item_id="r-9"), SECOND)}, "items"),
        ({"items": (dataclasses.replace(FIRST, size_bytes=9), SECOND)}, "items"),
        ({"items": (dataclasses.replace(FIRST, media_type="image/png"), SECOND)}, "items"),
    ],
)
def test_every_consequential_field_enters_and_is_named_when_it_differs(change: dict[str, object], field: str) -> None:
    changed = dataclasses.replace(REQUEST, **change)  # type: ignore[arg-type]
    assert changed.fingerprint != REQUEST.fingerprint
    named = differing_fields(REQUEST.fingerprint_document(), changed.fingerprint_document())
    assert named == [field]


def test_differing_fields_are_names_and_never_values() -> None:
    secret = dataclasses.replace(REQUEST, release="the-secret-release")
    named = differing_fields(REQUEST.fingerprint_document(), secret.fingerprint_document())
    assert "the-secret-release" not in str(named)
    assert named == ["release"]


def test_one_moment_in_two_time_zones_is_one_cutoff() -> None:
    elsewhere = SUBMITTED.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))
    first = dataclasses.replace(REQUEST, reconciliation_cutoff=SUBMITTED)
    assert dataclasses.replace(REQUEST, reconciliation_cutoff=elsewhere).fingerprint == first.fingerprint


def test_the_queue_deadline_is_the_earlier_of_age_and_cutoff_less_its_margin() -> None:
    limits = resolve_limits(LimitsRequest(max_queue_age_s=3600), items=1, cutoff_margin_s=900)
    assert limits.queue_deadline(submitted_at=SUBMITTED, cutoff=None) == SUBMITTED + dt.timedelta(hours=1)
    soon = SUBMITTED + dt.timedelta(minutes=45)
    assert limits.queue_deadline(submitted_at=SUBMITTED, cutoff=soon) == SUBMITTED + dt.timedelta(minutes=30)
    late = SUBMITTED + dt.timedelta(days=1)
    assert limits.queue_deadline(submitted_at=SUBMITTED, cutoff=late) == SUBMITTED + dt.timedelta(hours=1)


@pytest.mark.parametrize(("items", "timeout_s"), [(1, 900), (30, 900), (31, 930), (1000, 30_000)])
def test_the_default_processing_timeout_grows_with_the_items(items: int, timeout_s: int) -> None:
    assert resolve_limits(LimitsRequest(), items=items, cutoff_margin_s=0).processing_timeout_s == timeout_s


def test_each_of_the_three_clocks_is_set_by_itself() -> None:
    plain = resolve_limits(LimitsRequest(), items=1, cutoff_margin_s=0)
    for name in ("max_queue_age_s", "processing_timeout_s", "result_retention_s"):
        changed = resolve_limits(LimitsRequest(**{name: 47}), items=1, cutoff_margin_s=0)
        assert changed == dataclasses.replace(plain, **{name: 47})


def test_a_label_is_the_last_part_of_the_path_on_either_kind_of_system() -> None:
    assert ItemRequest(item_id="x", uri="a/b/c.jpg", sha256="").label == "c.jpg"
    assert ItemRequest(item_id="x", uri="a\\b\\c.jpg", sha256="").label == "c.jpg"
