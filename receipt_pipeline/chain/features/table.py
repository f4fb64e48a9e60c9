"""The features of the risk model in one table: name, bounds, meaning, kind of evidence, and source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from receipt_pipeline.chain.extract.currency import hinted_countries
from receipt_pipeline.chain.features.amounts import PrintedAmounts, collect_amounts
from receipt_pipeline.chain.features.customs import CustomEvidence, read_customs
from receipt_pipeline.chain.features.dates import ClockEvidence, DateEvidence, is_sold_at_night, read_clock, read_dates
from receipt_pipeline.chain.features.goods import Goods, read_goods
from receipt_pipeline.chain.features.picture import has_copied_figures
from receipt_pipeline.chain.features.proofs import (
    change_given,
    columns_failed,
    goods_reach_total,
    is_cash_short,
    table_rates_failed,
    tax_at_rate,
    unexplained_after_goods,
)
from receipt_pipeline.chain.features.shop_numbers import ShopEvidence, is_tax_number_invalid, read_shop_numbers
from receipt_pipeline.chain.features.sums import (
    Check,
    Products,
    all_checks,
    find_totals,
    goods_unreachable,
    read_products,
    tail_unexplained,
    total_support,
    totals_contradicting,
)
from receipt_pipeline.chain.values import DecodedScan, Features, PageText, ReceiptFields, TextLine
from receipt_pipeline.core.reasons import (
    AMOUNT_ODD,
    DATE_CONTRADICTED,
    PICTURE_ALTERED,
    SHOP_CONTRADICTED,
    SUMS_DISAGREE,
    Reason,
)

FEATURE_CONTRACT = "receipt-features/v5"
FEATURE_DIGITS = 6
# The tenth contradiction says no more than the sixth.
COUNTED_MAX = 6
# exp(21) minor units are 13 million whole ones: a larger amount on a shop receipt is refused, not scored.
LOG_MINOR_MAX = 21
HOME_CURRENCY = {
    "MY": "MYR", "SG": "SGD", "AU": "AUD", "NZ": "NZD", "HK": "HKD", "CA": "CAD",
    "DE": "EUR", "FR": "EUR", "IT": "EUR", "GB": "GBP", "US": "USD",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one receipt offers, each kind measured once; the features are read from it."""

    page_text: PageText
    fields: ReceiptFields
    amounts: PrintedAmounts
    totals: list[int]
    products: Products
    checks: Mapping[str, Check]
    customs: CustomEvidence
    goods: Goods
    dates: DateEvidence
    clock: ClockEvidence
    shop: ShopEvidence
    figures_copied: bool

    @property
    def sums_held(self) -> int:
        """Return how many printed sums hold."""
        return sum(check.held for check in self.checks.values())

    @property
    def sums_failed(self) -> int:
        """Return how many printed sums could be checked and fail."""
        return sum(check.failed for check in self.checks.values())

    @property
    def total_minor(self) -> int:
        """Return the size of the first total, 0 without one."""
        return abs(self.totals[0]) if self.totals else 0

    @property
    def is_clock_invalid(self) -> bool:
        """Report whether any day or time contradicts another: one weighs much, further ones add little."""
        dates, clock = self.dates, self.clock
        return any(
            (
                dates.impossible,
                dates.contradicting,
                dates.time_impossible,
                dates.outside_tax_period,
                dates.weekday_mismatch,
                clock.times_apart,
                clock.weekday_contradicting,
                clock.numbers_contradicting,
            )
        )

    @property
    def is_shop_invalid(self) -> bool:
        """Report whether any number of the shop contradicts itself or its place."""
        shop = self.shop
        numbers = (shop.register_invalid, shop.postcode_invalid, shop.telephone_invalid, shop.article_invalid)
        return any(numbers) or is_tax_number_invalid(self.amounts.rows)


Source = Callable[[Evidence], float]


def collect_evidence(scan: DecodedScan, page_text: PageText, fields: ReceiptFields) -> Evidence:
    """Measure one receipt; a scan without pages has no picture evidence."""
    amounts = collect_amounts(page_text, fields)
    totals = find_totals(amounts, fields)
    products = read_products(amounts)
    capitals = [line.text.upper() for line in page_text.lines]
    return Evidence(
        page_text=page_text,
        fields=fields,
        amounts=amounts,
        totals=totals,
        products=products,
        checks={check.name: check for check in all_checks(amounts, fields, products)},
        customs=read_customs(amounts, totals, fields.currency),
        goods=read_goods(amounts, totals),
        dates=read_dates(page_text, fields),
        clock=read_clock(page_text, fields),
        shop=read_shop_numbers(capitals),
        figures_copied=has_copied_figures(scan, page_text),
    )


def _decided_confidence(page_text: PageText, fields: ReceiptFields) -> float:
    """Return the mean confidence, 0..1, of the lines that hold total or date; of all where none does."""
    confidences = [line.confidence for line in _decided_lines(page_text, fields)]
    return sum(confidences) / len(confidences) if confidences else 0.0


def _decided_lines(page_text: PageText, fields: ReceiptFields) -> list[TextLine]:
    """Return the lines that hold the total or the date; all lines where neither is found."""
    printed = [value.printed for value in (fields.total, fields.date) if value is not None and value.printed]
    lines = [line for line in page_text.lines if any(text in line.text for text in printed)]
    return lines or list(page_text.lines)


def _failed(name: str) -> Source:
    return lambda e: e.checks[name].failed


def _gap_size(name: str) -> Source:
    """Return the source of a sum's gap: ln(1 + minor units) where the sum fails, else 0."""
    return lambda e: math.log1p(e.checks[name].gap_minor) if e.checks[name].failed else 0.0


def _cents_missing(e: Evidence) -> float:
    missing = sum(entry.marked_whole for entry in e.amounts.entries)
    return missing if missing * 2 < len(e.amounts.entries) else 0


def _currencies_mixed(e: Evidence) -> float:
    marked = {entry.currency for entry in e.amounts.entries if entry.exact} - {None}
    return len(marked) > 1


def _currency_foreign(e: Evidence) -> float:
    """Report whether the receipt names countries, and none of them has its currency."""
    home = {HOME_CURRENCY[hint.country] for hint in hinted_countries(" \n ".join(e.amounts.rows))}
    return bool(home) and e.fields.currency is not None and e.fields.currency not in home


def _sums_failed_share(e: Evidence) -> float:
    checked = e.sums_held + e.sums_failed
    return e.sums_failed / checked if checked else 0.0


@dataclass(frozen=True, slots=True)
class Feature:
    """One line of the contract.

    Attributes:
        low, high: the range that the models were approved for; a value outside is refused.
        evidence: the reason that a review names where this feature raises the risk; None for no evidence.
        source: the value, before rounding and before counts stop at `COUNTED_MAX`.
    """

    name: str
    unit: str
    low: float
    high: float
    meaning: str
    evidence: Reason | None
    source: Source

    def value(self, evidence: Evidence) -> float:
        """Return the feature of one receipt; counts stop at their bound, sizes of money do not."""
        value = float(self.source(evidence))
        return round(min(self.high, value) if self.unit == "count" else value, FEATURE_DIGITS)


def _flag(name: str, meaning: str, evidence: Reason | None, source: Source) -> Feature:
    return Feature(name, "0/1", 0, 1, meaning, evidence, source)


def _count(name: str, meaning: str, evidence: Reason | None, source: Source) -> Feature:
    return Feature(name, "count", 0, COUNTED_MAX, meaning, evidence, source)


def _size(name: str, meaning: str, evidence: Reason | None, source: Source) -> Feature:
    return Feature(name, "ln(1+minor)", 0, LOG_MINOR_MAX, meaning, evidence, source)


def _share(name: str, meaning: str, evidence: Reason | None, source: Source) -> Feature:
    return Feature(name, "share", 0, 1, meaning, evidence, source)


_SUMS, _DATES, _AMOUNTS, _SHOP = SUMS_DISAGREE, DATE_CONTRADICTED, AMOUNT_ODD, SHOP_CONTRADICTED

# The length of a receipt is no evidence: nothing here counts its lines, rows or pages.
# fmt: off
FEATURES: tuple[Feature, ...] = (
    _count("sums_held", "printed sums that hold", _SUMS, lambda e: e.sums_held),
    _count("sums_failed", "printed sums that could be checked and fail", _SUMS, lambda e: e.sums_failed),
    _flag("goods_unreachable", "no selection of the goods makes the subtotal or total", _SUMS,
          lambda e: goods_unreachable(e.amounts, e.totals)),
    _size("items_gap_size", "by how much the items miss it", _SUMS, _gap_size("items")),
    _flag("subtotal_failed", "subtotal, tax and adjustments do not make the total", _SUMS,
          _failed("subtotal")),
    _flag("change_failed", "cash less change is no total", _SUMS, _failed("change")),
    _size("change_gap_size", "by how much it misses one", _SUMS, _gap_size("change")),
    _flag("tax_table_failed", "bases and taxes of the tax table do not make a total", _SUMS,
          _failed("tax_table")),
    _flag("count_failed", "the printed number of pieces is another", _SUMS, _failed("count")),
    _flag("payable_failed", "a total rounded for cash is no multiple of the coin", _SUMS,
          _failed("payable")),
    _count("products_failed", "quantity x price whose product is not printed", _SUMS,
          lambda e: e.products.failed),
    _count("columns_failed", "goods that break the form quantity, price, amount", _SUMS,
          lambda e: columns_failed(e.amounts)),
    _count("table_rates_failed", "rows of a tax table that break their rate", _SUMS,
          lambda e: table_rates_failed(e.amounts)),
    _flag("cash_short", "less was given than the total although change was given back", _SUMS,
          lambda e: is_cash_short(e.amounts, e.totals)),
    _count("total_support", "further places that print the total", _SUMS,
          lambda e: total_support(e.amounts, e.totals)),
    _flag("total_unsupported", "no other place prints the total", _SUMS,
          lambda e: bool(e.totals) and total_support(e.amounts, e.totals) == 0),
    _count("totals_contradicting", "printed totals that nothing explains", _SUMS,
          lambda e: totals_contradicting(e.amounts)),
    _count("tail_unexplained", "amounts after the goods that nothing else explains", _SUMS,
          lambda e: tail_unexplained(e.amounts)),
    _flag("tax_number_odd", "a Malaysian GST number that was never given out", _SHOP,
          lambda e: is_tax_number_invalid(e.amounts.rows)),
    _flag("total_round", "the total is a multiple of ten whole units", _AMOUNTS,
          lambda e: e.total_minor > 0 and e.total_minor % 1000 == 0),
    # No evidence, but its bound refuses absurd amounts.
    _size("total_size", "size of the total", None,
          lambda e: math.log1p(max([e.total_minor, *map(abs, e.totals)]))),
    _flag("currencies_mixed", "amounts carry marks of several currencies", _AMOUNTS, _currencies_mixed),
    _flag("currency_foreign", "the currency is not that of the country of the shop", _AMOUNTS,
          _currency_foreign),
    _count("cents_missing", "marked amounts without decimals beside others with", _AMOUNTS, _cents_missing),
    _count("date_impossible", "printed days that never were", _DATES, lambda e: e.dates.impossible),
    _count("dates_contradicting", "printed days that are not the day of the sale", _DATES,
          lambda e: e.dates.contradicting),
    _count("dates_agreeing", "further places that print the day of the sale", _DATES,
          lambda e: max(0, e.dates.agreeing - 1)),
    Feature("dates_years_apart", "years", 0, COUNTED_MAX, "between the earliest and the latest printed year",
            _DATES, lambda e: min(COUNTED_MAX, e.dates.years_apart)),
    _flag("weekday_mismatch", "the printed weekday is not that of the date", _DATES,
          lambda e: e.dates.weekday_mismatch),
    _flag("tax_period_mismatch", "the named tax was not in force on that day", _DATES,
          lambda e: e.dates.outside_tax_period),
    _flag("time_impossible", "a printed time of day does not exist", _DATES,
          lambda e: e.dates.time_impossible),
    # No evidence, but the policy reads it.
    _share("confidence_decided", "text reader's confidence where total and date stand", None,
          lambda e: _decided_confidence(e.page_text, e.fields)),
    _share("sums_failed_share", "of the printed sums that could be checked", _SUMS, _sums_failed_share),
    _share("unexplained_share", "of the amounts after the goods, unexplained", _SUMS,
          lambda e: e.customs.unexplained_share),
    _flag("change_unmet", "no amount given is a total and the change", _SUMS,
          lambda e: change_given(e.amounts, e.totals).unmet),
    _flag("tax_rate_unmet", "no printed tax is a printed rate of a base", _SUMS,
          lambda e: tax_at_rate(e.amounts).unmet),
    _flag("goods_short", "no amounts above the total make it", _SUMS,
          lambda e: goods_reach_total(e.amounts, e.totals).unmet),
    _flag("paid_otherwise", "what was paid, without change, is no total", _SUMS,
          lambda e: e.customs.paid_otherwise),
    _flag("paid_off_coin", "cash or change in coins that do not exist", _AMOUNTS,
          lambda e: e.customs.paid_off_coin),
    _flag("rounding_odd", "a rounding larger than the smallest coin", _AMOUNTS,
          lambda e: e.customs.rounding_invalid),
    _count("numbers_agreeing", "numbers of the bill on its day", _DATES,
          lambda e: e.clock.numbers_agreeing),
    _count("numbers_contradicting", "numbers of the bill on another day", _DATES,
          lambda e: e.clock.numbers_contradicting),
    _flag("times_apart", "printed times of the sale hours apart", _DATES, lambda e: e.clock.times_apart),
    _flag("weekday_contradicting", "a weekday that is not the sale's", _DATES,
          lambda e: e.clock.weekday_contradicting),
    _flag("figures_copied", "a figure is the very picture of another", PICTURE_ALTERED,
          lambda e: e.figures_copied),
    _flag("register_odd", "a company number its letter denies", _SHOP, lambda e: e.shop.register_invalid),
    _flag("telephone_odd", "a telephone number of another state", _SHOP,
          lambda e: e.shop.telephone_invalid),
    _flag("article_odd", "an article code its last digit denies", _SHOP, lambda e: e.shop.article_invalid),
    _flag("time_at_night", "a sale between midnight and six", _DATES,
          lambda e: is_sold_at_night([line.text.upper() for line in e.page_text.lines])),
    _flag("goods_sum_unmet", "the goods add up to no printed sum", _SUMS, lambda e: e.goods.sum_unmet),
    _flag("goods_line_odd", "one or two lines stand out of goods that add up", _SUMS,
          lambda e: e.goods.has_invalid_line),
    _flag("goods_quantity_odd", "several pieces for the price of one", _SUMS,
          lambda e: e.goods.quantities_invalid > 0),
    _flag("behind_unexplained", "an amount behind the goods that no other explains", _SUMS,
          lambda e: bool(unexplained_after_goods(e.goods))),
    _flag("clock_odd", "a day or time that another one denies", _DATES, lambda e: e.is_clock_invalid),
    _flag("shop_odd", "a number of the shop that denies itself", _SHOP, lambda e: e.is_shop_invalid),
)
# fmt: on
MEANINGS: Mapping[str, str] = {feature.name: feature.meaning for feature in FEATURES}
EVIDENCE_OF: Mapping[str, Reason] = {
    feature.name: feature.evidence for feature in FEATURES if feature.evidence is not None
}


def contract_document() -> dict[str, object]:
    """Return name and bounds of the contract as plain JSON, for the chain revision."""
    bounds = [
        {"name": one.name, "unit": one.unit, "low": one.low, "high": one.high, "meaning": one.meaning}
        for one in FEATURES
    ]
    return {"contract": FEATURE_CONTRACT, "bounds": bounds}


def compute_features(scan: DecodedScan, page_text: PageText, fields: ReceiptFields) -> Features:
    """Compute the features of one receipt; a scan without pages has no picture evidence."""
    evidence = collect_evidence(scan, page_text, fields)
    return Features(FEATURE_CONTRACT, {feature.name: feature.value(evidence) for feature in FEATURES})


def refused_features(features: Features) -> tuple[str, ...]:
    """Return the names that break the contract, in its order; empty when the features are admitted.

    A value breaks it when it is absent, not finite, or out of bounds; so does an unknown feature.
    `contract` comes first if the features are under another one.
    """
    refused = ["contract"] if features.contract != FEATURE_CONTRACT else []
    refused += [one.name for one in FEATURES if not _is_within(features.values.get(one.name, math.nan), one)]
    refused += sorted(features.values.keys() - MEANINGS.keys())
    return tuple(refused)


def _is_within(value: float, feature: Feature) -> bool:
    return math.isfinite(value) and feature.low <= value <= feature.high
