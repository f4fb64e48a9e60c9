"""Features: from reading and fields to the named numbers of `receipt-features/v1`, and their admission.

The length of a receipt is no evidence: nothing here counts its lines, rows or pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from receipt_pipeline.chain.extract_currency import hinted_countries
from receipt_pipeline.chain.features_book import MoneyBook, keep_book
from receipt_pipeline.chain.features_dates import DateEvidence, read_dates, tax_number_odd
from receipt_pipeline.chain.features_layout import read_layout
from receipt_pipeline.chain.features_rows import cash_short, columns_failed, read_products, table_rates_failed
from receipt_pipeline.chain.features_sums import (
    Check,
    all_checks,
    goods_unreachable,
    tail_unexplained,
    total_support,
    totals_contradicting,
    totals_of,
)
from receipt_pipeline.chain.values import Features, Reading, ReceiptFields

FEATURE_CONTRACT = "receipt-features/v1"
FEATURE_DIGITS = 6
COUNTED_MAX = 6


@dataclass(frozen=True, slots=True)
class FeatureBound:
    """One line of the contract: a feature, its unit, and the range the models were approved for."""

    name: str
    unit: str
    low: float
    high: float
    meaning: str


CONTRACT: tuple[FeatureBound, ...] = (
    FeatureBound("sums_held", "count", 0, 6, "printed sums that hold"),
    FeatureBound("sums_failed", "count", 0, 6, "printed sums that could be checked and fail"),
    FeatureBound("items_failed", "0/1", 0, 1, "items do not make the subtotal or total"),
    FeatureBound("goods_unreachable", "0/1", 0, 1, "no selection of the goods makes the subtotal or total"),
    FeatureBound("items_gap_size", "ln(1+minor)", 0, 21, "by how much the items miss it"),
    FeatureBound("subtotal_failed", "0/1", 0, 1, "subtotal, tax and adjustments do not make the total"),
    FeatureBound("change_failed", "0/1", 0, 1, "cash less change is no total"),
    FeatureBound("change_gap_size", "ln(1+minor)", 0, 21, "by how much it misses one"),
    FeatureBound("change_held", "0/1", 0, 1, "cash less change is a total"),
    FeatureBound("tax_table_failed", "0/1", 0, 1, "bases and taxes of the tax table do not make a total"),
    FeatureBound("count_failed", "0/1", 0, 1, "the printed number of pieces is another"),
    FeatureBound("payable_failed", "0/1", 0, 1, "a total rounded for cash is no multiple of the coin"),
    FeatureBound("products_failed", "count", 0, COUNTED_MAX, "quantity x price whose product is not printed"),
    FeatureBound("products_held", "count", 0, COUNTED_MAX, "quantity x price whose product is printed"),
    FeatureBound(
        "columns_failed", "count", 0, COUNTED_MAX, "goods that break the form quantity, price, amount"
    ),
    FeatureBound("table_rates_failed", "count", 0, COUNTED_MAX, "rows of a tax table that break their rate"),
    FeatureBound("cash_short", "0/1", 0, 1, "less was given than the total although change was given back"),
    FeatureBound("total_support", "count", 0, COUNTED_MAX, "further places that print the total"),
    FeatureBound("total_unsupported", "0/1", 0, 1, "no other place prints the total"),
    FeatureBound("totals_contradicting", "count", 0, COUNTED_MAX, "printed totals that nothing explains"),
    FeatureBound(
        "tail_unexplained", "count", 0, COUNTED_MAX, "amounts after the goods that nothing else explains"
    ),
    FeatureBound("tax_number_odd", "0/1", 0, 1, "a Malaysian GST number that was never given out"),
    FeatureBound("total_round", "0/1", 0, 1, "the total is a multiple of ten whole units"),
    FeatureBound("total_size", "ln(1+minor)", 0, 21, "size of the total"),
    FeatureBound("currencies_mixed", "0/1", 0, 1, "amounts carry marks of several currencies"),
    FeatureBound("currency_foreign", "0/1", 0, 1, "the currency is not that of the country of the shop"),
    FeatureBound(
        "cents_missing", "count", 0, COUNTED_MAX, "marked amounts without decimals beside others with"
    ),
    FeatureBound("date_found", "0/1", 0, 1, "a date was read"),
    FeatureBound("date_ambiguous", "0/1", 0, 1, "it can be read in two ways"),
    FeatureBound("date_impossible", "count", 0, COUNTED_MAX, "printed days that never were"),
    FeatureBound(
        "dates_contradicting", "count", 0, COUNTED_MAX, "printed days that are not the day of the sale"
    ),
    FeatureBound("dates_agreeing", "count", 0, COUNTED_MAX, "further places that print the day of the sale"),
    FeatureBound(
        "dates_years_apart", "years", 0, COUNTED_MAX, "between the earliest and the latest printed year"
    ),
    FeatureBound("weekday_mismatch", "0/1", 0, 1, "the printed weekday is not that of the date"),
    FeatureBound("tax_period_mismatch", "0/1", 0, 1, "the named tax was not in force on that day"),
    FeatureBound("time_impossible", "0/1", 0, 1, "a printed time of day does not exist"),
    FeatureBound("confidence_decided", "share", 0, 1, "text reader's confidence where total and date stand"),
    FeatureBound("confidence_dip", "share", 0, 1, "how far the worst read amount lies below the mean"),
    FeatureBound("height_outlier", "deviations", 0, 12, "how far the oddest amount's height stands out"),
    FeatureBound(
        "right_edge_outlier", "deviations", 0, 12, "how far the oddest amount's right edge stands out"
    ),
)


def compute_features(reading: Reading, fields: ReceiptFields) -> Features:
    """Compute the features of one reading.

    Counts and deviations stop at their bound, because the tenth contradiction says no more than
    the sixth; sizes of money do not, so that absurd amounts are refused rather than scored.
    """
    book = keep_book(reading, fields)
    values = {**_sums(book, fields), **_amounts(book, fields), **_dates(read_dates(reading, fields), fields)}
    layout = read_layout(reading, book, fields)
    values["confidence_decided"] = layout.confidence_decided
    values["confidence_dip"] = layout.confidence_dip
    values["height_outlier"] = min(12.0, layout.height_outlier)
    values["right_edge_outlier"] = min(12.0, layout.right_edge_outlier)
    ordered = {bound.name: round(float(values[bound.name]), FEATURE_DIGITS) for bound in CONTRACT}
    return Features(contract=FEATURE_CONTRACT, values=ordered)


def admit(features: Features) -> tuple[str, ...]:
    """Return the names that break the contract, in its order; empty when the features are admitted.

    A value breaks it when it is absent, not finite, or outside the range the models were approved
    for; so does a feature that the contract does not know.
    """
    return bounds_broken(features, CONTRACT, contract=FEATURE_CONTRACT)


def bounds_broken(features: Features, bounds: Sequence[FeatureBound], *, contract: str) -> tuple[str, ...]:
    """Return the names that break these bounds, in their order, `contract` first if it is another."""
    known = {bound.name for bound in bounds}
    refused = [
        bound.name for bound in bounds if not _within(features.values.get(bound.name, math.nan), bound)
    ]
    refused += sorted(name for name in features.values if name not in known)
    if features.contract != contract:
        refused.insert(0, "contract")
    return tuple(refused)


def _within(value: float, bound: FeatureBound) -> bool:
    return math.isfinite(value) and bound.low <= value <= bound.high


def _sums(book: MoneyBook, fields: ReceiptFields) -> dict[str, float]:
    products = read_products(book)
    checks: dict[str, Check] = {check.name: check for check in all_checks(book, fields, products)}
    return {
        "sums_held": sum(check.held for check in checks.values()),
        "sums_failed": sum(check.failed for check in checks.values()),
        **{f"{name}_failed": float(check.failed) for name, check in checks.items()},
        "goods_unreachable": float(goods_unreachable(book, totals_of(book, fields))),
        "items_gap_size": _gap_size(checks["items"]),
        "change_gap_size": _gap_size(checks["change"]),
        "change_held": float(checks["change"].held),
        "products_failed": min(COUNTED_MAX, products.failed),
        "products_held": min(COUNTED_MAX, products.held),
        "columns_failed": min(COUNTED_MAX, columns_failed(book)),
        "table_rates_failed": min(COUNTED_MAX, table_rates_failed(book)),
        "cash_short": float(cash_short(book, totals_of(book, fields))),
    }


def _gap_size(check: Check) -> float:
    return math.log1p(check.gap_minor) if check.failed else 0.0


def _amounts(book: MoneyBook, fields: ReceiptFields) -> dict[str, float]:
    totals = totals_of(book, fields)
    total = abs(totals[0]) if totals else 0
    marks = {entry.currency for entry in book.entries if entry.exact} - {None}
    missing = sum(entry.marked_whole for entry in book.entries)
    support = total_support(book, totals)
    return {
        "total_support": support,
        "total_unsupported": float(bool(totals) and support == 0),
        "totals_contradicting": min(COUNTED_MAX, totals_contradicting(book)),
        "tail_unexplained": min(COUNTED_MAX, tail_unexplained(book)),
        "tax_number_odd": float(tax_number_odd(book.rows)),
        "total_round": float(total > 0 and total % 1000 == 0),
        "total_size": math.log1p(max([total, *map(abs, totals)])),
        "currencies_mixed": float(len(marks) > 1),
        "currency_foreign": float(_currency_foreign(book, fields)),
        "cents_missing": min(COUNTED_MAX, missing) if missing * 2 < len(book.entries) else 0,
    }


def _currency_foreign(book: MoneyBook, fields: ReceiptFields) -> bool:
    """Tell whether the receipt names countries, and none of them has its currency."""
    homes = {_HOME_CURRENCY[hint.country] for hint in hinted_countries(" \n ".join(book.rows))}
    return bool(homes) and fields.currency is not None and fields.currency not in homes


_HOME_CURRENCY = {
    "MY": "MYR", "SG": "SGD", "AU": "AUD", "NZ": "NZD", "HK": "HKD", "CA": "CAD",
    "DE": "EUR", "FR": "EUR", "IT": "EUR", "GB": "GBP", "US": "USD",
}  # fmt: skip


def _dates(evidence: DateEvidence, fields: ReceiptFields) -> dict[str, float]:
    return {
        "date_found": float(fields.date is not None and fields.date.iso is not None),
        "date_ambiguous": float(fields.date is not None and fields.date.ambiguous),
        "date_impossible": min(COUNTED_MAX, evidence.impossible),
        "dates_contradicting": min(COUNTED_MAX, evidence.contradicting),
        "dates_agreeing": min(COUNTED_MAX, max(0, evidence.agreeing - 1)),
        "dates_years_apart": min(COUNTED_MAX, evidence.years_apart),
        "weekday_mismatch": evidence.weekday_mismatch,
        "tax_period_mismatch": evidence.outside_tax_period,
        "time_impossible": evidence.time_impossible,
    }
