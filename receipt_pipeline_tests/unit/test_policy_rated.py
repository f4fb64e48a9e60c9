"""Policy of the second contract: a high risk names the evidence behind it, heaviest first."""

from __future__ import annotations

from typing import Any

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features_v2 import compute_features_v2
from receipt_pipeline.chain.policy import CODES_OF_CONTRACT, STATED_RATE_CONTRACT, Policy, load_policy
from receipt_pipeline.chain.policy_rated import decide_rated
from receipt_pipeline.chain.values import NO_PAGES, Reading, ReceiptFields, Risk, Verdict
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.items import Decision
from receipt_pipeline_tests.printed_receipt import reading_of

DOCUMENT: dict[str, Any] = {
    "contract": STATED_RATE_CONTRACT,
    "name": "test",
    "review_codes": sorted(CODES_OF_CONTRACT[STATED_RATE_CONTRACT]),
    "limits": {
        "risk_review_ppm": 400_000,
        "review_rate_ppm": 100_000,
        "ocr_confidence_min_ppm": 800_000,
        "evidence_log_odds_min_ppm": 300_000,
    },
}
READING = reading_of("SHOP SDN BHD\nDATE: 14/03/2018\nTEA   RM 4.60\nTOTAL   RM 4.60\n")
HEAVY = (
    ("figures_copied", 3.0),
    ("tail_unexplained", 0.5),
    ("items_failed", 0.4),
    ("dates_contradicting", 0.2),
)


def policy(**changes: Any) -> Policy:
    """The policy of the document, changed as said."""
    data = canonical_json({**DOCUMENT, **changes})
    return load_policy(data, digest_of_bytes(data))


def verdict(risk: Risk, *, reading: Reading = READING, duplicate_bytes: bool = False) -> Verdict:
    """What the policy says of a plain receipt under this risk."""
    fields = extract_fields(reading) if reading.lines else ReceiptFields()
    features = compute_features_v2(NO_PAGES, reading, fields)
    return decide_rated(
        policy(),
        reading=reading,
        fields=fields,
        features=features,
        risk=risk,
        duplicate_bytes=duplicate_bytes,
    )


def test_a_low_risk_is_cleared_without_reasons() -> None:
    assert verdict(Risk(399_999, HEAVY)) == Verdict(Decision.CLEAR, ())


def test_a_high_risk_names_its_evidence_heaviest_first() -> None:
    found = verdict(Risk(400_000, HEAVY))
    assert found.decision is Decision.REVIEW
    assert found.reasons == ("RISK.HIGH.v1", "PICTURE.ALTERED.v1", "ARITHMETIC.DISAGREES.v1")


@pytest.mark.parametrize(
    ("feature", "code"),
    [
        ("numbers_contradicting", "DATE.CONTRADICTED.v1"),
        ("paid_off_coin", "AMOUNT.ODD.v1"),
        ("change_unmet", "ARITHMETIC.DISAGREES.v1"),
    ],
)
def test_each_kind_of_evidence_has_its_reason(feature: str, code: str) -> None:
    assert verdict(Risk(900_000, ((feature, 2.0),))).reasons == ("RISK.HIGH.v1", code)


def test_evidence_that_speaks_for_the_receipt_takes_weight_from_its_kind() -> None:
    risk = Risk(900_000, (("items_failed", 1.0), ("sums_held", -0.9)))
    assert verdict(risk).reasons == ("RISK.HIGH.v1",)


def test_repeated_bytes_and_no_text_come_before_everything() -> None:
    assert verdict(Risk(0), duplicate_bytes=True).reasons == ("DUPLICATE.BYTES.v1",)
    empty = Reading((), ((10, 10),))
    assert verdict(Risk(900_000, HEAVY), reading=empty).reasons == ("OCR.NO_TEXT.v1",)


def test_the_stated_review_rate_is_part_of_the_policy() -> None:
    assert (policy().review_rate_ppm, policy().evidence_log_odds_min) == (100_000, 0.3)
    with pytest.raises(IdentityMismatch):
        policy(review_codes=["RISK.HIGH.v1"])
