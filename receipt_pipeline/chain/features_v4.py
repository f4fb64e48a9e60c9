"""Features of `receipt-features/v4`: those of the third contract, and what the goods and the sums prove."""

from __future__ import annotations

from collections.abc import Mapping

from receipt_pipeline.chain.features import FEATURE_DIGITS, FeatureBound, bounds_broken
from receipt_pipeline.chain.features_behind import unexplained_behind
from receipt_pipeline.chain.features_book import keep_book
from receipt_pipeline.chain.features_goods import read_goods
from receipt_pipeline.chain.features_sums import totals_of
from receipt_pipeline.chain.features_v3 import CONTRACT_V3, EVIDENCE_OF_V3, compute_features_v3
from receipt_pipeline.chain.values import DecodedScan, Features, Reading, ReceiptFields
from receipt_pipeline.core.reasons import DATE_CONTRADICTED, SHOP_CONTRADICTED, SUMS_DISAGREE, Reason

FEATURE_CONTRACT_V4 = "receipt-features/v4"
NEW_V4: tuple[tuple[Reason, FeatureBound], ...] = (
    (SUMS_DISAGREE, FeatureBound("goods_sum_unmet", "0/1", 0, 1, "the goods add up to no printed sum")),
    (
        SUMS_DISAGREE,
        FeatureBound("goods_line_odd", "0/1", 0, 1, "one or two lines stand out of goods that add up"),
    ),
    (
        SUMS_DISAGREE,
        FeatureBound("goods_quantity_odd", "0/1", 0, 1, "several pieces for the price of one"),
    ),
    (
        SUMS_DISAGREE,
        FeatureBound("behind_unexplained", "0/1", 0, 1, "an amount behind the goods that no other explains"),
    ),
    (DATE_CONTRADICTED, FeatureBound("clock_odd", "0/1", 0, 1, "a day or time that another one denies")),
    (SHOP_CONTRADICTED, FeatureBound("shop_odd", "0/1", 0, 1, "a number of the shop that denies itself")),
)
CONTRACT_V4: tuple[FeatureBound, ...] = (*CONTRACT_V3, *(bound for _, bound in NEW_V4))
MEANINGS_V4: Mapping[str, str] = {bound.name: bound.meaning for bound in CONTRACT_V4}
EVIDENCE_OF_V4: Mapping[str, Reason] = {
    **EVIDENCE_OF_V3,
    **{bound.name: reason for reason, bound in NEW_V4},
}
# One contradiction of a kind weighs much, further ones add little: whether any of these says something.
CLOCK_DOUBTS = (
    *("date_impossible", "dates_contradicting", "time_impossible", "times_apart", "tax_period_mismatch"),
    *("weekday_contradicting", "weekday_mismatch", "numbers_contradicting"),
)
SHOP_DOUBTS = ("register_odd", "postcode_odd", "telephone_odd", "article_odd", "tax_number_odd")


def compute_features_v4(scan: DecodedScan, reading: Reading, fields: ReceiptFields) -> Features:
    """Compute the features of one reading and its pages; a scan without pages has no picture evidence."""
    book = keep_book(reading, fields)
    goods = read_goods(book, totals_of(book, fields))
    values: dict[str, float] = {
        **compute_features_v3(scan, reading, fields).values,
        "goods_sum_unmet": goods.sum_unmet,
        "goods_line_odd": goods.line_odd,
        "goods_quantity_odd": goods.quantities_odd > 0,
        "behind_unexplained": bool(unexplained_behind(goods)),
    }
    values |= {"clock_odd": _any(values, CLOCK_DOUBTS), "shop_odd": _any(values, SHOP_DOUBTS)}
    ordered = {bound.name: round(float(values[bound.name]), FEATURE_DIGITS) for bound in CONTRACT_V4}
    return Features(contract=FEATURE_CONTRACT_V4, values=ordered)


def _any(values: Mapping[str, float], names: tuple[str, ...]) -> bool:
    return any(values[name] > 0 for name in names)


def admit_v4(features: Features) -> tuple[str, ...]:
    """Return the names that break `receipt-features/v4`, in its order; empty when admitted."""
    return bounds_broken(features, CONTRACT_V4, contract=FEATURE_CONTRACT_V4)
