"""Features of `receipt-features/v2`: what the first contract measures, further proofs, clock and picture."""

from __future__ import annotations

from collections.abc import Mapping

from receipt_pipeline.chain.features import CONTRACT as CONTRACT_V1
from receipt_pipeline.chain.features import (
    COUNTED_MAX,
    FEATURE_DIGITS,
    FeatureBound,
    bounds_broken,
    compute_features,
)
from receipt_pipeline.chain.features_book import keep_book
from receipt_pipeline.chain.features_clock import read_clock
from receipt_pipeline.chain.features_money import read_money
from receipt_pipeline.chain.features_picture import read_picture
from receipt_pipeline.chain.features_proofs import change_given, goods_reach_total, tax_at_rate
from receipt_pipeline.chain.features_sums import totals_of
from receipt_pipeline.chain.values import DecodedScan, Features, Reading, ReceiptFields
from receipt_pipeline.core.reasons import (
    AMOUNT_ODD,
    DATE_CONTRADICTED,
    PICTURE_ALTERED,
    SUMS_DISAGREE,
    Reason,
)

FEATURE_CONTRACT_V2 = "receipt-features/v2"
NOISE_DEVIATIONS_MAX = 12
BASELINE_SHARE_MAX = 2

_SUMS, _DATES, _AMOUNTS, _PICTURE = SUMS_DISAGREE, DATE_CONTRADICTED, AMOUNT_ODD, PICTURE_ALTERED

# Each new feature with the kind of evidence that it is.
NEW: tuple[tuple[Reason, FeatureBound], ...] = (
    (_SUMS, FeatureBound("sums_failed_share", "share", 0, 1, "of the printed sums that could be checked")),
    (_SUMS, FeatureBound("unexplained_share", "share", 0, 1, "of the amounts after the goods, unexplained")),
    (_SUMS, FeatureBound("change_unmet", "0/1", 0, 1, "no amount given is a total and the change")),
    (_SUMS, FeatureBound("tax_rate_unmet", "0/1", 0, 1, "no printed tax is a printed rate of a base")),
    (_SUMS, FeatureBound("goods_short", "0/1", 0, 1, "no amounts above the total make it")),
    (_SUMS, FeatureBound("paid_otherwise", "0/1", 0, 1, "what was paid, without change, is no total")),
    (_AMOUNTS, FeatureBound("paid_off_coin", "0/1", 0, 1, "cash or change in coins that do not exist")),
    (_AMOUNTS, FeatureBound("rounding_odd", "0/1", 0, 1, "a rounding larger than the smallest coin")),
    (_DATES, FeatureBound("numbers_agreeing", "count", 0, COUNTED_MAX, "numbers of the bill on its day")),
    (
        _DATES,
        FeatureBound("numbers_contradicting", "count", 0, COUNTED_MAX, "numbers of the bill on another day"),
    ),
    (_DATES, FeatureBound("times_apart", "0/1", 0, 1, "printed times of the sale hours apart")),
    (_DATES, FeatureBound("weekday_contradicting", "0/1", 0, 1, "a weekday that is not the sale's")),
    (_PICTURE, FeatureBound("figures_copied", "0/1", 0, 1, "a figure is the very picture of another")),
    (
        _PICTURE,
        FeatureBound(
            "noise_outlier", "deviations", 0, NOISE_DEVIATIONS_MAX, "ground of an amount unlike the others'"
        ),
    ),
    (
        _PICTURE,
        FeatureBound("baseline_outlier", "share", 0, BASELINE_SHARE_MAX, "an amount off the line of its row"),
    ),
)
EVIDENCE_V1: Mapping[Reason, tuple[str, ...]] = {
    _DATES: (
        "date_impossible",
        "dates_contradicting",
        "dates_agreeing",
        "dates_years_apart",
        "weekday_mismatch",
        "tax_period_mismatch",
        "time_impossible",
    ),
    _AMOUNTS: ("tax_number_odd", "total_round", "currencies_mixed", "currency_foreign", "cents_missing"),
    _PICTURE: ("confidence_dip", "height_outlier", "right_edge_outlier"),
}
# How well and how much was read is no evidence of anything.
NO_EVIDENCE = frozenset({"date_found", "date_ambiguous", "confidence_decided", "total_size"})
CONTRACT_V2: tuple[FeatureBound, ...] = (*CONTRACT_V1, *(bound for _, bound in NEW))
MEANINGS: Mapping[str, str] = {bound.name: bound.meaning for bound in CONTRACT_V2}
EVIDENCE_OF: Mapping[str, Reason] = (
    {bound.name: _SUMS for bound in CONTRACT_V1 if bound.name not in NO_EVIDENCE}
    | {name: reason for reason, names in EVIDENCE_V1.items() for name in names}
    | {bound.name: reason for reason, bound in NEW}
)


def compute_features_v2(scan: DecodedScan, reading: Reading, fields: ReceiptFields) -> Features:
    """Compute the features of one reading and its pages; a scan without pages has no picture evidence."""
    first = compute_features(reading, fields).values
    book = keep_book(reading, fields)
    totals = totals_of(book, fields)
    money, clock = read_money(book, totals, fields.currency), read_clock(reading, fields)
    picture = read_picture(scan, reading, book)
    checked = first["sums_held"] + first["sums_failed"]
    values: dict[str, float] = {
        **first,
        "sums_failed_share": first["sums_failed"] / checked if checked else 0.0,
        "unexplained_share": money.unexplained_share,
        "change_unmet": change_given(book, totals).unmet,
        "tax_rate_unmet": tax_at_rate(book).unmet,
        "goods_short": goods_reach_total(book, totals).unmet,
        "paid_otherwise": money.paid_otherwise,
        "paid_off_coin": money.paid_off_coin,
        "rounding_odd": money.rounding_odd,
        "numbers_agreeing": min(COUNTED_MAX, clock.numbers_agreeing),
        "numbers_contradicting": min(COUNTED_MAX, clock.numbers_contradicting),
        "times_apart": clock.times_apart,
        "weekday_contradicting": clock.weekday_contradicting,
        "figures_copied": picture.figures_copied,
        "noise_outlier": min(NOISE_DEVIATIONS_MAX, picture.noise_outlier),
        "baseline_outlier": min(BASELINE_SHARE_MAX, picture.baseline_outlier),
    }
    ordered = {bound.name: round(float(values[bound.name]), FEATURE_DIGITS) for bound in CONTRACT_V2}
    return Features(contract=FEATURE_CONTRACT_V2, values=ordered)


def admit_v2(features: Features) -> tuple[str, ...]:
    """Return the names that break `receipt-features/v2`, in its order; empty when admitted."""
    return bounds_broken(features, CONTRACT_V2, contract=FEATURE_CONTRACT_V2)
