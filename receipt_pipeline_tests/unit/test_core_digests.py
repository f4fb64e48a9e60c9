"""Equal values are equal bytes: canonical JSON, digests, pins, decision IDs, outcomes, money."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from receipt_pipeline.core.canonical import canonical_json, digest_of, digest_of_bytes, is_digest
from receipt_pipeline.core.items import Decision, ItemClass, ItemOutcome
from receipt_pipeline.core.money import Money
from receipt_pipeline.core.pins import Pins, Release, decision_id

RELEASE = Release(
    image_digest=digest_of("image"),
    chain_revision=digest_of("chain"),
    feature_contract="receipt-features/v1",
    risk_model_digest=digest_of("model"),
    policy_revision=digest_of("policy"),
)
OUTCOME = ItemOutcome(
    item_class=ItemClass.CLASSIFIED,
    decision=Decision.REVIEW,
    risk_ppm=731_000,
    fields={"total": {"amount_minor": 1234, "currency": "EUR"}},
    reasons=("RISK.HIGH.v1",),
)


def test_canonical_json_sorts_keys_and_writes_no_white_space() -> None:
    assert canonical_json({"b": [1, 2], "a": "é"}) == '{"a":"é","b":[1,2]}'.encode()


def test_the_order_of_keys_does_not_change_a_digest_and_the_order_of_a_list_does() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of([1, 2]) != digest_of([2, 1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**60])
def test_a_number_that_json_cannot_hold_exactly_is_refused(value: float) -> None:
    with pytest.raises(ValueError):
        canonical_json({"value": value})


def test_only_a_full_digest_in_lower_case_is_one() -> None:
    digest = digest_of_bytes(b"")
    assert digest == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert is_digest(digest)
    wrong = (digest.upper(), digest[7:], digest + "0", "sha256:" + "g" * 64, None, 5)
    assert [text for text in wrong if is_digest(text)] == []


def test_a_release_is_named_by_the_digest_of_its_five_identities() -> None:
    names = [field.name for field in dataclasses.fields(Release)]
    assert len(names) == 5
    others = {dataclasses.replace(RELEASE, **{name: "another"}).release_id for name in names}
    assert len(others | {RELEASE.release_id}) == 6


def test_pins_restate_the_release_and_come_back_from_their_document() -> None:
    pins = RELEASE.pins()
    assert pins.release_id == RELEASE.release_id
    assert pins.release() == RELEASE
    assert Pins.from_document(pins.as_document()) == pins


@pytest.mark.requirement("R083")
def test_a_decision_id_follows_from_job_item_and_pins_alone() -> None:
    pins = RELEASE.pins()
    first = decision_id(job_id="job_1", item_id="r-001", pins=pins)
    assert first == decision_id(job_id="job_1", item_id="r-001", pins=pins)
    other_pins = dataclasses.replace(RELEASE, policy_revision=digest_of("other")).pins()
    others = {
        decision_id(job_id="job_2", item_id="r-001", pins=pins),
        decision_id(job_id="job_1", item_id="r-002", pins=pins),
        decision_id(job_id="job_1", item_id="r-001", pins=other_pins),
    }
    assert len(others | {first}) == 4
    # No output can enter: two outputs of one decision meet under one ID, as a visible conflict (D7).
    assert set(inspect.signature(decision_id).parameters) == {"job_id", "item_id", "pins"}


def test_an_outcome_comes_back_from_its_document_with_its_digest() -> None:
    copy = ItemOutcome.from_document(OUTCOME.as_document())
    assert copy == OUTCOME
    assert copy.outcome_digest == OUTCOME.outcome_digest
    rejected = ItemOutcome(item_class=ItemClass.REJECTED, reason_code="SCAN.BROKEN.v1")
    assert ItemOutcome.from_document(rejected.as_document()) == rejected


@pytest.mark.parametrize(
    "change",
    [
        {"decision": Decision.CLEAR},
        {"risk_ppm": 731_001},
        {"fields": {"total": {"amount_minor": 1235, "currency": "EUR"}}},
        {"reasons": ()},
        {"evidence": {"pages": 2}},
    ],
)
def test_every_part_of_an_outcome_enters_its_digest(change: dict[str, object]) -> None:
    assert dataclasses.replace(OUTCOME, **change).outcome_digest != OUTCOME.outcome_digest  # type: ignore[arg-type]


def test_the_outcome_digest_names_neither_job_nor_decision() -> None:
    assert {"job_id", "item_id", "decision_id"} & OUTCOME.as_document().keys() == set()


@pytest.mark.parametrize(
    ("money", "text"),
    [
        (Money(123450, "EUR"), "1234.50"),
        (Money(-5, "EUR"), "-0.05"),
        (Money(1234, "JPY"), "1234"),
        (Money(1234, "KWD"), "1.234"),
        (Money(1234), "12.34"),
    ],
)
def test_money_is_exact_and_knows_its_minor_digits(money: Money, text: str) -> None:
    assert money.as_decimal_text() == text
