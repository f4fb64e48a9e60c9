"""Policy: every doubt has its reason, the strongest first, and `clear` has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from receipt_pipeline.chain.features import compute_features
from receipt_pipeline.chain.policy import POLICY_CONTRACT, REASONS_BY_STRENGTH, Policy, decide, load_policy
from receipt_pipeline.chain.values import (
    Features,
    ReadAmount,
    ReadDate,
    Reading,
    ReceiptFields,
    Risk,
    TextLine,
    Verdict,
)
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.items import Decision

ALL_CODES = sorted(reason.code for reason in REASONS_BY_STRENGTH)
DOCUMENT: dict[str, Any] = {
    "contract": POLICY_CONTRACT,
    "name": "test",
    "review_codes": ALL_CODES,
    "limits": {"risk_review_ppm": 400_000, "ocr_confidence_min_ppm": 800_000, "sums_disagree_min": 2},
}
READING = Reading(lines=(TextLine("TOTAL 4.60", (0, 0, 90, 20), 0.99, 0),), page_sizes=((100, 40),))
TOTAL = ReadAmount("4.60", 460, "EUR", False, 0.99)
FIELDS = ReceiptFields(
    merchant="SHOP", date=ReadDate("12.03.2025", "2025-03-12", False), total=TOTAL, currency="EUR"
)
LOW = Risk(probability_ppm=10_000)


def policy(**changes: Any) -> Policy:
    """The policy of the document, changed as said."""
    data = canonical_json({**DOCUMENT, **changes})
    return load_policy(data, digest_of_bytes(data))


def verdict(
    *,
    fields: ReceiptFields = FIELDS,
    reading: Reading = READING,
    risk: Risk = LOW,
    duplicate_bytes: bool = False,
    under: Policy | None = None,
    **values: float,
) -> Verdict:
    """What the policy says of a plain receipt that differs as said."""
    features = compute_features(reading, fields)
    changed = Features(features.contract, {**features.values, **values})
    return decide(
        under or policy(),
        reading=reading,
        fields=fields,
        features=changed,
        risk=risk,
        duplicate_bytes=duplicate_bytes,
    )


def test_a_receipt_without_doubt_is_clear_and_has_no_reason() -> None:
    assert verdict() == Verdict(decision=Decision.CLEAR, reasons=())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"duplicate_bytes": True}, "DUPLICATE.BYTES.v1"),
        ({"fields": replace(FIELDS, several_receipts=True)}, "SCAN.SEVERAL_RECEIPTS.v1"),
        ({"fields": replace(FIELDS, total=None)}, "FIELD.TOTAL_UNREAD.v1"),
        ({"fields": replace(FIELDS, total=replace(TOTAL, ambiguous=True))}, "FIELD.TOTAL_AMBIGUOUS.v1"),
        ({"fields": replace(FIELDS, date=None)}, "FIELD.DATE_UNREAD.v1"),
        ({"fields": replace(FIELDS, date=ReadDate("31/02/2025", None, False))}, "FIELD.DATE_UNREAD.v1"),
        ({"fields": replace(FIELDS, date=ReadDate("03/04/2025", None, True))}, "FIELD.DATE_AMBIGUOUS.v1"),
        (
            {"fields": replace(FIELDS, currency=None, total=replace(TOTAL, currency=None))},
            "FIELD.CURRENCY_UNKNOWN.v1",
        ),
        ({"fields": replace(FIELDS, total=replace(TOTAL, minor=-460))}, "AMOUNT.REFUND.v1"),
        ({"sums_failed": 2.0}, "ARITHMETIC.DISAGREES.v1"),
        ({"risk": Risk(probability_ppm=400_000)}, "RISK.HIGH.v1"),
        ({"confidence_decided": 0.79}, "OCR.LOW_CONFIDENCE.v1"),
    ],
)
def test_each_doubt_alone_forces_a_review_under_its_own_code(changes: dict[str, Any], code: str) -> None:
    assert verdict(**changes) == Verdict(decision=Decision.REVIEW, reasons=(code,))


def test_a_scan_without_text_is_reviewed_for_that_alone() -> None:
    nothing = Reading(lines=(), page_sizes=((100, 100),))
    found = verdict(reading=nothing, fields=ReceiptFields(), risk=Risk(probability_ppm=990_000))
    assert found == Verdict(decision=Decision.REVIEW, reasons=("OCR.NO_TEXT.v1",))


def test_several_doubts_are_named_strongest_first() -> None:
    found = verdict(
        duplicate_bytes=True,
        fields=replace(FIELDS, date=None),
        risk=Risk(probability_ppm=999_999),
        sums_failed=3.0,
    )
    assert found.reasons == (
        "DUPLICATE.BYTES.v1",
        "FIELD.DATE_UNREAD.v1",
        "ARITHMETIC.DISAGREES.v1",
        "RISK.HIGH.v1",
    )


def test_a_doubt_below_the_limits_stays_clear() -> None:
    found = verdict(risk=Risk(probability_ppm=399_999), sums_failed=1.0, confidence_decided=0.8)
    assert found.decision is Decision.CLEAR


def test_a_policy_may_leave_out_a_doubt_that_it_trusts() -> None:
    trusting = policy(review_codes=[code for code in ALL_CODES if code != "FIELD.CURRENCY_UNKNOWN.v1"])
    fields = replace(FIELDS, currency=None, total=replace(TOTAL, currency=None))
    assert verdict(fields=fields, under=trusting).decision is Decision.CLEAR


@pytest.mark.parametrize("code", ["DUPLICATE.BYTES.v1", "OCR.NO_TEXT.v1", "FIELD.TOTAL_UNREAD.v1"])
def test_a_policy_that_leaves_out_what_is_always_reviewed_is_refused(code: str) -> None:
    with pytest.raises(IdentityMismatch):
        policy(review_codes=[known for known in ALL_CODES if known != code])


@pytest.mark.parametrize(
    "change", [{"review_codes": [*ALL_CODES, "NEW.CODE.v1"]}, {"contract": "receipt-policy/v9"}]
)
def test_a_policy_that_this_code_does_not_understand_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(IdentityMismatch) as caught:
        policy(**change)
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"


def test_other_bytes_than_the_pinned_are_refused() -> None:
    data = canonical_json(DOCUMENT)
    with pytest.raises(IdentityMismatch) as caught:
        load_policy(data + b" ", digest_of_bytes(data))
    assert caught.value.facts["artefact"] == "policy"
