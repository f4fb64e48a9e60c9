"""Sums that a genuine receipt keeps: which of them hold, which fail, and by how much."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from receipt_pipeline.chain.features_book import Label, MoneyBook
from receipt_pipeline.chain.values import ReceiptFields

# Taxes and shares are rounded line by line, so a sum may be off by a few minor units.
ROUNDING_SLACK_MINOR = 3
CASH_STEP_MINOR = 5
CASH_STEP_CURRENCIES = frozenset({"MYR", "AUD", "NZD", "CHF"})
PRODUCT_REACH = 4
ADJUSTMENTS_MAX = 3

QUANTITY_TIMES_PRICE = re.compile(
    r"(?<![\d.,])(?P<qty>\d{1,4}) ?(?:UNITS?|PCS?|NOS?|EA|CTN|PKT|#)? ?[X*@×] ?@? ?(?:RM|EUR|USD|[€$£])? ?"
    r"(?P<price>\d{1,6}[.,]\d{2}(?:\d{2})?)(?!\d)"
)
PRICE_TIMES_QUANTITY = re.compile(
    r"(?<![\d.,])(?P<price>\d{1,6}[.,]\d{2}(?:\d{2})?) ?[X*×] ?(?P<qty>\d{1,4})(?![\d.,])"
)
RATE = re.compile(r"(?<![\d.,])(\d{1,2})(?:[.,]0{1,2})? ?%")
COUNT = re.compile(r"(?<![\d.,])(\d{1,3})(?:[.,]0{1,2})?(?![\d.,%/])")


@dataclass(frozen=True, slots=True)
class Check:
    """One sum of the receipt: whether it could be checked, whether it held, and the gap in minor units."""

    name: str
    checked: bool
    held: bool
    gap_minor: int = 0

    @property
    def failed(self) -> bool:
        """Tell whether the sum could be checked and does not hold."""
        return self.checked and not self.held


@dataclass(frozen=True, slots=True)
class Products:
    """Lines of the form quantity x price: how many name their product beside them, how many do not."""

    held: int
    failed: int
    quantity: int
    lines: int


def totals_of(book: MoneyBook, fields: ReceiptFields) -> list[int]:
    """Return the distinct totals that are printed, the extracted one first."""
    found = [] if fields.total is None else [fields.total.minor]
    return list(dict.fromkeys([*found, *book.minors(Label.TOTAL)]))


def check_change(book: MoneyBook, totals: list[int]) -> Check:
    """Check that what was given less the change is a total."""
    given, change = book.minors(Label.CASH), book.minors(Label.CHANGE)
    gaps = [abs(paid - abs(back) - total) for paid, back, total in product(given, change, totals)]
    return _check("change", gaps, slack=0)


def check_subtotal(book: MoneyBook, totals: list[int]) -> Check:
    """Check that subtotal, tax and what else is added or taken off make a total."""
    parts, taxes = book.minors(Label.SUBTOTAL), [0, *book.minors(Label.TAX)]
    others = set(book.minors(Label.ROUNDING, Label.DISCOUNT, Label.SERVICE))
    gaps = [
        abs(part + tax + extra - total)
        for part, tax, extra, total in product(
            parts[:ADJUSTMENTS_MAX], taxes[:ADJUSTMENTS_MAX], _signed_sums(others), totals
        )
    ]
    return _check("subtotal", gaps, slack=ROUNDING_SLACK_MINOR)


def check_items(book: MoneyBook, totals: list[int]) -> Check:
    """Check that the items make the subtotal or a total, however prices and amounts stand in a row."""
    items = [entry for entry in book.entries if entry.label is Label.ITEM]
    targets = {*totals, *book.minors(Label.SUBTOTAL)}
    extras = _signed_sums({*book.minors(Label.ROUNDING, Label.DISCOUNT, Label.SERVICE, Label.TAX)})
    last_of_row = list({entry.row: entry.minor for entry in items}.values())
    values = [entry.minor for entry in items]
    without_echo = [value for at, value in enumerate(values) if at == 0 or values[at - 1] != value]
    sums = {sum(last_of_row), sum(values), sum(without_echo), sum(values[1::2]), sum(values[::2])}
    gaps = [abs(total + extra - target) for total, extra, target in product(sums, extras, targets)]
    return _check("items", gaps if items else [], slack=ROUNDING_SLACK_MINOR)


def check_rate(book: MoneyBook) -> Check:
    """Check that a printed tax is a printed rate of a printed amount, inclusive or exclusive."""
    rates = {int(rate) for row in book.rows for rate in RATE.findall(row) if 0 < int(rate) <= 30}
    taxes = [tax for tax in book.minors(Label.TAX) if tax > 0]
    pool = {value for value in book.pool if value > 0}
    gaps = [
        min(abs(round(value * rate / 100) - tax), abs(round(value * rate / (100 + rate)) - tax))
        for tax, rate, value in product(taxes, sorted(rates), pool)
        if value != tax
    ]
    return _check("rate", gaps, slack=ROUNDING_SLACK_MINOR)


def check_count(book: MoneyBook, products: Products) -> Check:
    """Check that a printed number of pieces is that of the lines or of their quantities."""
    for at, row in enumerate(book.rows):
        if (
            re.search(r"TOTAL (?:QTY|QUANTITY|ITEMS?)|ITEM\(?S?\)? ?COUNT|NO\.? OF ITEMS?", row)
            and products.lines
        ):
            near = " ".join(book.rows[at : at + 2])
            counts = [int(count) for count in COUNT.findall(near)]
            return _check(
                "count", [abs(n - m) for n in counts for m in (products.lines, products.quantity)], slack=0
            )
    return Check("count", checked=False, held=False)


def check_payable(book: MoneyBook, totals: list[int], currency: str | None) -> Check:
    """Check that a total which was rounded for cash is a multiple of the smallest coin."""
    rounded = bool(book.minors(Label.ROUNDING)) and currency in CASH_STEP_CURRENCIES
    return _check("payable", [total % CASH_STEP_MINOR for total in totals] if rounded else [], slack=0)


def read_products(book: MoneyBook) -> Products:
    """Compare each `quantity x price` with the amounts printed beside or just after it."""
    held = failed = quantity = lines = 0
    for at, row in enumerate(book.rows):
        for match in (*QUANTITY_TIMES_PRICE.finditer(row), *PRICE_TIMES_QUANTITY.finditer(row)):
            count = int(match["qty"])
            price = float(match["price"].replace(",", "."))
            near = [entry.minor for entry in book.entries if at - 1 <= entry.row <= at + PRODUCT_REACH]
            lines, quantity = lines + 1, quantity + count
            if any(abs(round(count * price * 100) - minor) <= 1 for minor in near):
                held += 1
            elif near:
                failed += 1
    return Products(held=held, failed=failed, quantity=quantity, lines=lines)


def total_support(book: MoneyBook, totals: list[int]) -> int:
    """Return in how many further places the best supported total is printed, at most 6."""
    return min(6, max((book.pool.count(total) - 1 for total in totals), default=0))


def totals_contradicting(book: MoneyBook, totals: list[int]) -> int:
    """Return how many printed totals no other amount of the receipt explains.

    A second total is explained by rounding, tax, discount or service between it and another.
    """
    labelled = list(dict.fromkeys(book.minors(Label.TOTAL)))
    steps = {abs(value) for value in book.minors(Label.ROUNDING, Label.TAX, Label.DISCOUNT, Label.SERVICE)}
    unexplained = 0
    for at, total in enumerate(labelled[1:], start=1):
        differences = [abs(total - other) for other in labelled[:at]]
        if not any(gap <= CASH_STEP_MINOR or gap in steps for gap in differences):
            unexplained += 1
    return unexplained


def _check(name: str, gaps: Iterable[int], *, slack: int) -> Check:
    known = list(gaps)
    if not known:
        return Check(name, checked=False, held=False)
    gap = min(known)
    return Check(name, checked=True, held=gap <= slack, gap_minor=gap)


def _signed_sums(values: set[int]) -> list[int]:
    """Return every sum in which each value is added, taken off or left out."""
    used = sorted(values, key=abs)[:ADJUSTMENTS_MAX]
    return sorted({sum(signs) for signs in product(*[(0, value, -value) for value in used])} | {0})


def all_checks(book: MoneyBook, fields: ReceiptFields, products: Products) -> Iterator[Check]:
    """Yield every sum of the receipt in a fixed order."""
    totals = totals_of(book, fields)
    yield check_items(book, totals)
    yield check_subtotal(book, totals)
    yield check_change(book, totals)
    yield check_rate(book)
    yield check_count(book, products)
    yield check_payable(book, totals, fields.currency)
