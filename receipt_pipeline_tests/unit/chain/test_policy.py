"""Policy: every doubt has its reason, the strongest first, and `clear` has none."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features.table import compute_features
from receipt_pipeline.chain.policy import (
    POLICY_CONTRACT,
    REVIEW_CODES,
    JobSituation,
    Policy,
    PolicyCase,
    decide,
    situation_in_job,
)
from receipt_pipeline.chain.values import (
    NO_PAGES,
    Features,
    PageText,
    ReadAmount,
    ReadDate,
    ReceiptFields,
    Risk,
    Verdict,
)
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.items import NO_CONTEXT, Decision, EarlierItem, ItemContext
from receipt_pipeline_tests.printed_receipt import reading_of

DOCUMENT: dict[str, Any] = {
    "contract": POLICY_CONTRACT,
    "name": "test",
    "review_codes": sorted(REVIEW_CODES),
    "limits": {
        "risk_review_ppm": 400_000,
        "review_rate_ppm": 100_000,
        "ocr_confidence_min_ppm": 800_000,
        "evidence_log_odds_min_ppm": 300_000,
        "receipt_age_days_max": 90,
    },
}
PAGE_TEXT = reading_of("SHOP SDN BHD\nINV 20180314001\nDATE: 14/03/2018\nTEA   RM 4.60\nTOTAL   RM 4.60\n")
FIELDS = extract_fields(PAGE_TEXT)
NOTHING = PageText((), ((100, 100),))
HEAVY = (("figures_copied", 3.0), ("tail_unexplained", 0.5), ("goods_short", 0.4), ("dates_contradicting", 0.2))


def policy(**changes: Any) -> Policy:
    return Policy.from_document({**DOCUMENT, **changes}, revision="sha256:" + "1" * 64)


def case(**changes: Any) -> PolicyCase:
    features = compute_features(NO_PAGES, PAGE_TEXT, FIELDS)
    plain = PolicyCase(PAGE_TEXT, FIELDS, features, Risk(10_000), False, JobSituation())
    return replace(plain, **changes)


def reasons(**changes: Any) -> tuple[str, ...]:
    verdict = decide(case(**changes), policy())
    assert (verdict.decision is Decision.REVIEW) == bool(verdict.reasons)
    return verdict.reasons


def total(**changes: Any) -> ReceiptFields:
    assert FIELDS.total is not None
    return replace(FIELDS, total=replace(FIELDS.total, **changes))


def with_feature(name: str, value: float) -> Features:
    features = compute_features(NO_PAGES, PAGE_TEXT, FIELDS)
    return Features(features.contract, {**features.values, name: value})


def test_a_receipt_without_doubt_is_clear_and_has_no_reason() -> None:
    assert decide(case(), policy()) == Verdict(decision=Decision.CLEAR, reasons=())


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"duplicate_bytes": True}, "DUPLICATE.BYTES.v1"),
        ({"fields": replace(FIELDS, several_receipts=True)}, "SCAN.SEVERAL_RECEIPTS.v1"),
        ({"fields": replace(FIELDS, total=None)}, "FIELD.TOTAL_UNREAD.v1"),
        ({"fields": total(ambiguous=True)}, "FIELD.TOTAL_AMBIGUOUS.v1"),
        ({"fields": replace(FIELDS, date=None)}, "FIELD.DATE_UNREAD.v1"),
        ({"fields": replace(FIELDS, date=ReadDate("31/02/2025", None, False))}, "FIELD.DATE_UNREAD.v1"),
        ({"fields": replace(FIELDS, date=ReadDate("03/04/2025", None, True))}, "FIELD.DATE_AMBIGUOUS.v1"),
        ({"fields": replace(total(currency=None), currency=None)}, "FIELD.CURRENCY_UNKNOWN.v1"),
        ({"fields": total(minor=-460)}, "AMOUNT.REFUND.v1"),
        ({"risk": Risk(400_000)}, "RISK.HIGH.v1"),
        ({"features": with_feature("confidence_decided", 0.79)}, "OCR.LOW_CONFIDENCE.v1"),
    ],
)
def test_each_doubt_alone_forces_a_review_under_its_own_code(changes: dict[str, Any], code: str) -> None:
    assert reasons(**changes) == (code,)


def test_a_scan_without_text_is_reviewed_for_that_alone() -> None:
    found = reasons(page_text=NOTHING, fields=ReceiptFields(), risk=Risk(990_000, HEAVY))
    assert found == ("OCR.NO_TEXT.v1",)


def test_several_doubts_are_named_strongest_first() -> None:
    found = reasons(duplicate_bytes=True, fields=replace(FIELDS, date=None), risk=Risk(999_999, HEAVY))
    assert found == (
        *("DUPLICATE.BYTES.v1", "FIELD.DATE_UNREAD.v1", "RISK.HIGH.v1"),
        *("PICTURE.ALTERED.v1", "ARITHMETIC.DISAGREES.v1"),
    )


def test_a_doubt_below_the_limits_stays_clear() -> None:
    assert reasons(risk=Risk(399_999, HEAVY), features=with_feature("confidence_decided", 0.8)) == ()


@pytest.mark.parametrize(
    ("feature", "code"),
    [
        ("numbers_contradicting", "DATE.CONTRADICTED.v1"),
        ("paid_off_coin", "AMOUNT.ODD.v1"),
        ("change_unmet", "ARITHMETIC.DISAGREES.v1"),
        ("register_odd", "SHOP.CONTRADICTED.v1"),
        ("figures_copied", "PICTURE.ALTERED.v1"),
    ],
)
def test_each_kind_of_evidence_has_its_reason(feature: str, code: str) -> None:
    assert reasons(risk=Risk(900_000, ((feature, 2.0),))) == ("RISK.HIGH.v1", code)


def test_evidence_that_speaks_for_the_receipt_takes_weight_from_its_kind() -> None:
    assert reasons(risk=Risk(900_000, (("goods_short", 1.0), ("sums_held", -0.9)))) == ("RISK.HIGH.v1",)


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("2018-03-14", ()),
        ("2018-03-13", ()),
        ("2018-03-12", ("DATE.AFTER_SUBMISSION.v1",)),
        ("2018-06-12", ()),
        ("2018-06-13", ("DATE.TOO_OLD.v1",)),
    ],
)
def test_the_date_is_compared_with_the_day_on_which_the_job_was_accepted(
    accepted: str, expected: tuple[str, ...]
) -> None:
    assert reasons(situation=JobSituation(dt.date.fromisoformat(accepted))) == expected


def test_a_repeated_receipt_is_reviewed_before_all_but_repeated_bytes() -> None:
    early = JobSituation(dt.date(2018, 3, 12), near_duplicate_of="item-1")
    assert reasons(situation=JobSituation(near_duplicate_of="item-1")) == ("DUPLICATE.PICTURE.v1",)
    assert reasons(situation=early, duplicate_bytes=True) == (
        *("DUPLICATE.BYTES.v1", "DUPLICATE.PICTURE.v1", "DATE.AFTER_SUBMISSION.v1"),
    )


def test_a_scan_without_job_has_no_day_and_no_item_before_it() -> None:
    alone = situation_in_job(NO_PAGES, reading_of("HELLO\n"), FIELDS, NO_CONTEXT)
    assert (alone, alone.evidence()) == (JobSituation(), {})
    context = ItemContext(dt.datetime(2018, 3, 14, 23, 59, tzinfo=dt.UTC), (EarlierItem("item-1", {}, {}),))
    in_job = situation_in_job(NO_PAGES, reading_of("HELLO\n"), FIELDS, context)
    assert in_job == JobSituation(accepted_on=dt.date(2018, 3, 14))


def test_a_policy_may_leave_out_a_doubt_that_it_trusts() -> None:
    trusting = policy(review_codes=sorted(REVIEW_CODES - {"FIELD.CURRENCY_UNKNOWN.v1"}))
    unknown = ReadAmount("4.60", 460, None, False, 0.99)
    fields = replace(FIELDS, currency=None, total=unknown)
    assert decide(case(fields=fields), trusting).decision is Decision.CLEAR


@pytest.mark.parametrize(
    "change",
    [
        {"review_codes": sorted(REVIEW_CODES - {"DUPLICATE.BYTES.v1"})},
        {"review_codes": sorted(REVIEW_CODES - {"OCR.NO_TEXT.v1"})},
        {"review_codes": sorted(REVIEW_CODES - {"FIELD.TOTAL_UNREAD.v1"})},
        {"review_codes": [*REVIEW_CODES, "NEW.CODE.v1"]},
        {"contract": "receipt-policy/v9"},
    ],
)
def test_a_policy_that_clears_too_much_or_is_not_understood_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(IdentityMismatch) as caught:
        policy(**change)
    assert (caught.value.reason.code, caught.value.facts["artefact"]) == ("IDENTITY.MISMATCH.v1", "policy")


def test_the_stated_review_rate_is_part_of_the_policy() -> None:
    assert (policy().review_rate_ppm, policy().evidence_log_odds_min) == (100_000, 0.3)
