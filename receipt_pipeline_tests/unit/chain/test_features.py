"""Features: which contradictions of a receipt are seen, and which values are admitted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features.table import (
    EVIDENCE_OF,
    FEATURE_CONTRACT,
    FEATURES,
    MEANINGS,
    compute_features,
    refused_features,
)
from receipt_pipeline.chain.values import NO_PAGES, Features, PageText, ReceiptFields
from receipt_pipeline_tests.printed_receipt import reading_of

GENUINE = """
LUMBUNG PADI SDN BHD
12, JALAN KENANGA 3/4
43000 KAJANG, SELANGOR
GST ID: 001032994816
TAX INVOICE
DATE: 14/03/2018 12:41:52
2 X 4.50                   9.00
1 X 15.00                 15.00
SUBTOTAL                  24.00
GST 6%                     1.44
TOTAL                     25.44
ROUNDING ADJ               0.01
ROUNDED TOTAL             25.45
CASH                      30.00
CHANGE                     4.55
GST SUMMARY       AMOUNT    TAX
SR @ 6%            24.00   1.44
"""
NUMBERED = """
LUMBUNG PADI SDN BHD
43000 KAJANG, SELANGOR
TAX INVOICE
BILL NO: 20180314077
DATE: 14/03/2018 12:41:52
2 X 4.50                   9.00
1 X 15.00                 15.00
SUBTOTAL                  24.00
GST 6%                     1.44
TOTAL                     25.44
ROUNDING ADJ               0.01
ROUNDED TOTAL          RM 25.45
CASH                      30.00
CHANGE                     4.55
GST SUMMARY       AMOUNT    TAX
SR @ 6%            24.00   1.44
"""
NOT_LENGTH = """
TERMS AND CONDITIONS APPLY TO ALL GOODS
EXCHANGE WITHIN A WEEK WITH THIS RECEIPT
"""


def values_of(text: str) -> dict[str, float]:
    page_text = reading_of(text)
    return dict(compute_features(NO_PAGES, page_text, extract_fields(page_text)).values)


def test_the_sums_of_a_genuine_receipt_hold() -> None:
    values = values_of(GENUINE)
    assert values["sums_failed"] == 0
    assert values["sums_held"] == 4
    assert values["totals_contradicting"] == values["tax_period_mismatch"] == 0


@pytest.mark.parametrize(
    ("was", "now", "feature"),
    [
        ("1 X 15.00                 15.00", "1 X 15.00                 75.00", "items_gap_size"),
        ("2 X 4.50 ", "7 X 4.50 ", "products_failed"),
        ("ROUNDED TOTAL             25.45", "ROUNDED TOTAL             85.45", "totals_contradicting"),
        ("SR @ 6%            24.00   1.44", "SR @ 6%            24.00   9.44", "table_rates_failed"),
        ("14/03/2018", "14/03/2021", "tax_period_mismatch"),
        ("14/03/2018", "31/02/2018", "date_impossible"),
        ("DATE: 14/03/2018", "DATE: SUN 14/03/2018", "weekday_mismatch"),
        ("ROUNDED TOTAL             25.45", "ROUNDED TOTAL             85.45", "tail_unexplained"),
        ("001032994816", "001032994876", "tax_number_odd"),
        ("12:41:52", "15:41:52 AM", "time_impossible"),
        ("GST 6% ", "GST 8% ", "tax_period_mismatch"),
    ],
)
def test_an_altered_value_shows_in_its_feature(was: str, now: str, feature: str) -> None:
    assert was in GENUINE
    assert values_of(GENUINE)[feature] == 0
    assert values_of(GENUINE.replace(was, now))[feature] >= 1


def test_a_total_altered_everywhere_still_disagrees_with_what_was_paid() -> None:
    values = values_of(GENUINE.replace("25.4", "85.4"))
    assert values["change_failed"] == 1
    assert values["change_gap_size"] > 6.9


def test_a_second_day_of_sale_contradicts_the_first() -> None:
    assert values_of(GENUINE + "PRINTED 14/03/2018 12:42:10")["dates_contradicting"] == 0
    assert values_of(GENUINE + "PRINTED 24/03/2018 12:42:10")["dates_contradicting"] == 1


def test_a_currency_of_another_country_is_foreign() -> None:
    euros = GENUINE.replace("TOTAL                     25.44", "TOTAL                   25.44 €")
    assert values_of(euros)["currency_foreign"] == 1


def test_the_length_of_a_receipt_is_no_evidence() -> None:
    assert values_of(GENUINE + NOT_LENGTH * 5) == values_of(GENUINE)


def test_a_page_text_by_columns_gives_labels_their_amounts_in_order() -> None:
    labels = "TOTAL (RM)\nROUNDING ADJUSTMENT\nROUNDED TOTAL\nCASH\nCHANGE\n"
    amounts = "25.44\n0.01\n25.45\n30.00\n4.55\n"
    values = values_of("KEDAI SDN BHD\nBOOK 25.44\n" + labels + amounts)
    assert values["change_failed"] == 0
    assert values["totals_contradicting"] == 0


def test_an_empty_page_text_has_admitted_features() -> None:
    empty = compute_features(NO_PAGES, PageText(lines=(), page_sizes=((10, 10),)), ReceiptFields())
    assert refused_features(empty) == ()


def test_features_come_under_the_contract_and_in_its_order() -> None:
    page_text = reading_of(GENUINE)
    features = compute_features(NO_PAGES, page_text, extract_fields(page_text))
    assert features.contract == FEATURE_CONTRACT
    assert list(features.values) == [feature.name for feature in FEATURES]
    assert refused_features(features) == ()


@pytest.mark.requirement("R038")
def test_an_amount_beyond_the_contract_is_refused_by_name() -> None:
    page_text = reading_of(GENUINE)
    fields = extract_fields(page_text)
    assert fields.total is not None
    absurd = replace(fields, total=replace(fields.total, minor=10**12))
    assert refused_features(compute_features(NO_PAGES, page_text, absurd)) == ("total_size",)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 1e9])
def test_values_that_are_not_finite_or_out_of_range_are_refused(bad: float) -> None:
    page_text = reading_of(GENUINE)
    good = compute_features(NO_PAGES, page_text, extract_fields(page_text))
    altered = Features(FEATURE_CONTRACT, {**good.values, "sums_failed": bad})
    assert refused_features(altered) == ("sums_failed",)


def test_absent_and_unknown_features_and_another_contract_are_refused() -> None:
    page_text = reading_of(GENUINE)
    good = compute_features(NO_PAGES, page_text, extract_fields(page_text))
    fewer = {name: value for name, value in good.values.items() if name != "sums_held"}
    assert refused_features(Features(FEATURE_CONTRACT, fewer)) == ("sums_held",)
    assert refused_features(Features(FEATURE_CONTRACT, {**good.values, "lines": 1.0})) == ("lines",)
    assert refused_features(Features("receipt-features/v0", good.values)) == ("contract",)


def test_a_doubtful_total_is_supported_by_nothing_and_refuses_no_scan() -> None:
    page_text = reading_of("SHOP\nLamp  1.234\nTOTAL  1.234")
    features = compute_features(NO_PAGES, page_text, extract_fields(page_text))
    assert features.values["total_support"] == 0
    assert refused_features(features) == ()


def test_a_genuine_receipt_offers_its_proofs_and_keeps_them() -> None:
    values = values_of(NUMBERED)
    raised = ("change_unmet", "tax_rate_unmet", "goods_short", "paid_otherwise", "paid_off_coin", "rounding_odd")
    assert {name: values[name] for name in raised} == dict.fromkeys(raised, 0.0)
    assert (values["numbers_agreeing"], values["numbers_contradicting"]) == (1, 0)
    assert values["unexplained_share"] == values["sums_failed_share"] == 0


@pytest.mark.parametrize(
    ("was", "now", "feature"),
    [
        ("CHANGE                     4.55", "CHANGE                     9.55", "change_unmet"),
        ("CHANGE                     4.55", "CHANGE                     4.53", "paid_off_coin"),
        ("1.44", "0.44", "tax_rate_unmet"),
        ("14/03/2018", "24/03/2018", "numbers_contradicting"),
        ("DATE: 14/03/2018 12:41:52", "DATE: 14/03/2018 12:41:52\nPRINTED 19:42:10", "times_apart"),
        ("14/03/2018 12:41:52", "14/03/2018 12:41:52\nSATURDAY 12:41", "weekday_contradicting"),
        ("ROUNDING ADJ               0.01", "ROUNDING ADJ               0.41", "rounding_odd"),
        ("ROUNDED TOTAL          RM 25.45", "ROUNDED TOTAL          RM 85.47", "unexplained_share"),
    ],
)
def test_an_altered_value_shows_in_its_new_feature(was: str, now: str, feature: str) -> None:
    assert was in NUMBERED
    assert values_of(NUMBERED)[feature] == 0
    assert values_of(NUMBERED.replace(was, now))[feature] > 0


def test_goods_that_cannot_make_the_total_fall_short_of_it() -> None:
    text = "SHOP\nTEA       3.90\nCAKE      2.78\nTOTAL     6.68\nCASH     10.00\nCHANGE    3.32\n"
    assert values_of(text)["goods_short"] == 0
    assert values_of(text.replace("6.68", "9.68").replace("3.32", "0.32"))["goods_short"] == 1


def test_what_is_paid_without_change_is_a_total() -> None:
    text = "SHOP\nTEA       3.90\nTOTAL     3.90\nVISA      3.90\n"
    assert values_of(text)["paid_otherwise"] == 0
    assert values_of(text.replace("TOTAL     3.90", "TOTAL     8.90"))["paid_otherwise"] == 1


def test_every_feature_has_its_own_name_and_all_but_two_are_evidence() -> None:
    names = [feature.name for feature in FEATURES]
    assert len(set(names)) == len(names)
    assert set(MEANINGS) == set(names)
    assert set(names) - set(EVIDENCE_OF) == {"total_size", "confidence_decided"}


def test_one_contradiction_of_clock_or_shop_is_summed_up() -> None:
    values = values_of("SHOP SDN BHD (1234567-A)\nDATE: 14/03/2018 02:41\nTEA   RM 4.60\nTOTAL   RM 4.60\n")
    names = ("register_odd", "shop_odd", "time_at_night", "clock_odd")
    assert [values[name] for name in names] == [1, 1, 1, 0]
    assert values_of(GENUINE.replace("14/03/2018", "31/02/2018"))["clock_odd"] == 1
