"""The goods of a receipt add up, and what follows them is explained; an altered amount is noticed."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features.amounts import collect_amounts, printed_numbers, with_points
from receipt_pipeline.chain.features.goods import Goods, read_goods
from receipt_pipeline.chain.features.proofs import unexplained_after_goods
from receipt_pipeline.chain.features.sums import find_totals
from receipt_pipeline.chain.features.table import EVIDENCE_OF, MEANINGS, compute_features, refused_features
from receipt_pipeline.chain.values import NO_PAGES, page_text_of
from receipt_pipeline.core.reasons import SUMS_DISAGREE

ROWS = (
    "LUMBUNG PADI SDN BHD|DESCRIPTION QTY PRICE AMOUNT|PEN 3 X 1.20 3.60|BOOK 2 X 12.45 24.90"
    "|TOTAL RM 28.50|CASH RM 30.00|CHANGE RM 1.50"
)
STACKED = (
    "LUMBUNG PADI SDN BHD|QTY|DESCRIPTION|AMOUNT|PEN|3 X|1.20|3.60|BOOK|1 X|12.45|12.45|RULER|2 X|4.10|8.20"
    "|TOTAL|24.25|CASH|30.00|CHANGE|5.75"
)
COLUMNS = (
    "LUMBUNG PADI SDN BHD|DESCRIPTION|PRICE|AMOUNT|PEN|BOOK|RULER|1.20|12.45|4.10|1.20|12.45|4.10"
    "|TOTAL|17.75|CASH|20.00|CHANGE|2.25"
)
TAXED = (
    "LUMBUNG PADI SDN BHD|PEN 10.00|BOOK 25.50|SUBTOTAL 35.50|GST 6% 2.13|TOTAL 37.63|ROUNDING 0.02"
    "|NET TOTAL 37.65|CASH 40.00|CHANGE 2.35"
)
GERMAN = "WALDMEISTER GMBH|10115 BERLIN|BROT 3,20|MILCH 1,05|SUMME EUR 4,25|BAR 5,00|RUECKGELD 0,75"
WEIGHED = "LUMBUNG PADI SDN BHD|APPLE|0.345 KG X 12.90|4.45|PEAR|2.00|TOTAL 6.45|CASH 10.00|CHANGE 3.55"
CLEAN = {
    "rows": ROWS,
    "stacked": STACKED,
    "columns": COLUMNS,
    "taxed": TAXED,
    "german": GERMAN,
    "weighed": WEIGHED,
    "unsold": f"{STACKED.replace('|TOTAL', '|CAP|9.90|0|0.00|TOTAL', 1)}",
    "named": STACKED.replace("|PEN|3 X", "|PEN 1.20|3 X"),
    "before tax": "LUMBUNG PADI SDN BHD|PEN|10.00|10.60|BOOK|20.00|21.20|TOTAL|31.80|CASH|50.00|CHANGE|18.20",
}
# What was altered, and what then is odd: the features that are raised with the one that sums them up.
ALTERED = {
    "the amount of a row": (ROWS, "24.90", "74.90", {"goods_sum_unmet"}),
    "the amount of a stacked line": (STACKED, "|8.20", "|3.20", {"goods_sum_unmet"}),
    "a price that makes no amount": (STACKED, "|4.10|", "|4.70|", {"goods_line_odd"}),
    "several pieces for the price of one": (STACKED, "|1 X|12.45", "|4 X|12.45", {"goods_quantity_odd"}),
    "an amount in a column": (COLUMNS, "4.10|TOTAL", "4.90|TOTAL", {"goods_line_odd"}),
    "a tax": (TAXED, "2.13", "2.73", {"behind_unexplained"}),
    "a comma amount": (GERMAN, "3,20", "8,20", {"goods_sum_unmet"}),
    "a weighed good": (WEIGHED, "|4.45", "|9.45", {"goods_sum_unmet"}),
}
TOLD_BY = ("goods_sum_unmet", "goods_line_odd", "goods_quantity_odd", "behind_unexplained")


def goods_of(text: str) -> Goods:
    page_text = page_text_of(tuple(text.split("|")))
    fields = extract_fields(page_text)
    amounts = collect_amounts(page_text, fields)
    return read_goods(amounts, find_totals(amounts, fields))


def features_of(text: str) -> dict[str, float]:
    page_text = page_text_of(tuple(text.split("|")))
    features = compute_features(NO_PAGES, page_text, extract_fields(page_text))
    assert refused_features(features) == ()
    return dict(features.values)


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_a_receipt_that_holds_adds_up_and_raises_nothing(name: str) -> None:
    goods = goods_of(CLEAN[name])
    assert (goods.checked, goods.added_up) == (True, True)
    values = features_of(CLEAN[name])
    assert not any(values[told] for told in TOLD_BY)


@pytest.mark.parametrize("name", sorted(ALTERED))
def test_one_altered_amount_is_told_by_its_feature(name: str) -> None:
    text, before, after, raised = ALTERED[name]
    assert text.count(before) == 1
    values = features_of(text.replace(before, after))
    assert {told for told in TOLD_BY if values[told]} >= raised
    for told in raised:
        assert MEANINGS[told]
        assert EVIDENCE_OF[told] == SUMS_DISAGREE


def test_a_receipt_without_goods_or_without_sums_is_not_checked() -> None:
    assert not goods_of("THANK YOU|PLEASE COME AGAIN").checked
    assert not goods_of("TEA 4.60|COFFEE 5.00").checked


def test_points_and_savings_behind_the_goods_need_no_explanation() -> None:
    assert not unexplained_after_goods(goods_of(f"{ROWS}|POINTS EARNED 17.31|TOTAL SAVING 3.33"))
    assert unexplained_after_goods(goods_of(f"{ROWS}|VOUCHER 17.31|CARD 66.61")) == {1731, 6661}


def test_a_number_is_read_with_its_sign_its_group_and_what_it_may_count() -> None:
    numbers = printed_numbers(("12 X 1,234.50", "-3.00 SR", "1.50KG", "6 %", "GST NO 000123456789"))
    assert [(one.minor, one.decimals, one.pieces_e3) for one in numbers] == [
        (1200, 0, 12_000),
        (123_450, 2, 0),
        (-300, 2, 3_000),
        (150, 0, 0),
    ]
    assert [one.closes for one in numbers] == [False, True, True, False]
    assert with_points(("BROT 3,20", "1.234,50")) == ("BROT 3.20", "1,234.50")
