"""Sums that a genuine receipt keeps: which of them hold, which fail, and by how much."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product

from receipt_pipeline.chain.extract.labels import LabelKind
from receipt_pipeline.chain.extract.totals import TOTAL_KINDS
from receipt_pipeline.chain.features.amounts import PrintedAmounts
from receipt_pipeline.chain.values import ReceiptFields

_MARK = r"(?:RM|EUR|USD|[€$£])?"
QUANTITY_TIMES_PRICE = re.compile(
    r"(?<![\d.,])(?P<qty>\d{1,4}) ?(?:UNITS?|PCS?|NOS?|EA|CTN|PKT|#)? ?[X*@×] ?@? ?"
    rf"{_MARK} ?(?P<price>\d{{1,6}}[.,]\d{{2}}(?:\d{{2}})?)(?!\d)"
)
PRICE_TIMES_QUANTITY = re.compile(
    r"(?<![\d.,])(?P<price>\d{1,6}[.,]\d{2}(?:\d{2})?) ?[X*×] ?(?P<qty>\d{1,4})(?![\d.,])"
)
RATE = re.compile(r"(?<![\d.,])(\d{1,2})(?:[.,]0{1,2})? ?%")
# Taxes and shares are rounded line by line, so a sum may be off by a few minor units.
ROUNDING_SLACK_MINOR = 3
CASH_STEP_MINOR = 5
CASH_STEP_CURRENCIES = frozenset({"MYR", "AUD", "NZD", "CHF"})
ADJUSTMENTS_MAX = 4
RATES_PERCENT = range(1, 31)

GOODS_KINDS = frozenset({LabelKind.OTHER, LabelKind.COUNT, LabelKind.DISCOUNT, LabelKind.SERVICE})
REACH_MINOR_MAX = 10_000_000
# Rates of taxes appear in tables of taxes like amounts: `SR 6.00`.
TAX_PERCENT = frozenset({5, 6, 7, 8, 9, 10, 19})
PIECES = range(2, 13)
REACHED_MAX = 5_000
COUNT_ROW = re.compile(r"TOTAL (?:QTY|QUANTITY|ITEMS?)|ITEM\(?S?\)? ?COUNT|NO\.? OF ITEMS?")
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
        """Report whether the sum could be checked and does not hold."""
        return self.checked and not self.held


@dataclass(frozen=True, slots=True)
class Products:
    """Lines of the form quantity x price, their pieces together, and how many have no product printed."""

    failed: int
    quantity: int
    lines: int


def read_products(amounts: PrintedAmounts) -> Products:
    """Look for the product of each `quantity x price` among the printed amounts.

    Anywhere, because a scan read column by column has it far from its line.
    """
    failed = quantity = lines = 0
    printed = set(amounts.pool)
    for row in amounts.rows:
        for match in (*QUANTITY_TIMES_PRICE.finditer(row), *PRICE_TIMES_QUANTITY.finditer(row)):
            count = int(match["qty"])
            price = float(match["price"].replace(",", "."))
            lines, quantity = lines + 1, quantity + count
            product_minor = round(count * price * 100)
            failed += bool(printed) and all(abs(product_minor - minor) > 1 for minor in printed)
    return Products(failed=failed, quantity=quantity, lines=lines)


def find_totals(amounts: PrintedAmounts, fields: ReceiptFields) -> list[int]:
    """Return the distinct totals that are printed, the extracted one first.

    Without any label the amounts that are printed at least twice after the goods are taken.
    """
    found = [] if fields.total is None or fields.total.minor == 0 else [fields.total.minor]
    found += [minor for minor in amounts.minors(*TOTAL_KINDS) if minor > 0]
    if not found:
        found = [minor for minor, times in Counter(amounts.pool).items() if times > 1 and minor > 0]
    return list(dict.fromkeys(found))


def all_checks(amounts: PrintedAmounts, fields: ReceiptFields, products: Products) -> Iterator[Check]:
    """Yield every sum of the receipt in a fixed order."""
    totals = find_totals(amounts, fields)
    yield check_items(amounts, totals)
    yield check_subtotal(amounts, totals)
    yield check_change(amounts, totals)
    yield check_tax_table(amounts, totals)
    yield check_count(amounts, products)
    yield check_payable(amounts, totals, fields.currency)


def check_change(amounts: PrintedAmounts, totals: list[int]) -> Check:
    """Check that an amount given less an amount given back, both after the goods, is a total."""
    if not (amounts.names(LabelKind.CHANGE) and totals):
        return _unchecked("change")
    tail = [abs(minor) for minor in amounts.tail]
    seen = set(tail)
    exactly_paid = 0 in seen and any(tail.count(total) > 1 for total in totals)
    held = exactly_paid or any(
        paid - total in seen for paid, total in product(seen - set(totals), totals) if paid > total > 0
    )
    given, back = amounts.minors(LabelKind.CASH), amounts.minors(LabelKind.CHANGE)
    gaps = [abs(abs(paid) - abs(rest) - total) for paid, rest, total in product(given, back, totals)]
    if not (held or gaps):
        return _unchecked("change")
    return Check("change", checked=True, held=held or min(gaps) == 0, gap_minor=0 if held else min(gaps))


def check_subtotal(amounts: PrintedAmounts, totals: list[int]) -> Check:
    """Check that a subtotal, with tax and what else is added or taken off, makes a total."""
    parts = amounts.minors(LabelKind.SUBTOTAL)
    added = signed_sums({*amounts.minors(LabelKind.TAX, LabelKind.ROUNDING, LabelKind.DISCOUNT, LabelKind.SERVICE)})
    # A second part of the sale, such as its untaxed goods, may be among the sums.
    others = {0, *(minor for minor in amounts.tail if minor > 0)}
    gaps = [
        abs(part + extra + other - total)
        for part, extra, other, total in product(parts, added, others, totals)
        if other != total
    ]
    return _check("subtotal", gaps, slack=ROUNDING_SLACK_MINOR)


def check_items(amounts: PrintedAmounts, totals: list[int]) -> Check:
    """Check that the goods make the subtotal or a total, however prices and amounts are placed in a row."""
    # The heading of the goods may name a tax, so a table of taxes only counts after the goods.
    goods = [
        entry
        for entry in amounts.entries
        if entry.row < amounts.first_sum_row and entry.exact and entry.kind == LabelKind.OTHER
    ]
    values = [entry.minor for entry in goods]
    last_of_row = list({entry.row: entry.minor for entry in goods}.values())
    targets = {*totals, *amounts.minors(LabelKind.SUBTOTAL)}
    if not values or not targets:
        return _unchecked("items")
    added = signed_sums({*amounts.minors(LabelKind.TAX, LabelKind.ROUNDING, LabelKind.DISCOUNT, LabelKind.SERVICE)})
    gaps = [
        abs(total + extra - target)
        for total, extra, target in product(_plausible_sums(values, last_of_row), added, targets)
    ]
    if _unlabelled_subtotal_holds(last_of_row, totals, amounts.minors(LabelKind.ROUNDING)):
        return Check("items", checked=True, held=True)
    check = _check("items", gaps, slack=ROUNDING_SLACK_MINOR)
    # Where sums are unlabeled among the goods, a sum that is not found proves nothing.
    return _unchecked("items") if amounts.loose and check.failed else check


def goods_unreachable(amounts: PrintedAmounts, totals: list[int]) -> bool:
    """Report whether no selection of the amounts before the first sum makes a subtotal or total.

    A selection allows for prices, quantities and discounts in any layout, so a genuine receipt
    hardly ever fails; a long one hardly ever can.
    """
    goods = [
        entry.minor
        for entry in amounts.entries
        if entry.row < amounts.first_sum_row and entry.exact and entry.kind in GOODS_KINDS and entry.minor
    ]
    targets = {*totals, *amounts.minors(LabelKind.SUBTOTAL)}
    if not (goods and targets) or max(map(abs, targets)) > REACH_MINOR_MAX:
        return False
    added = signed_sums({*amounts.minors(LabelKind.TAX, LabelKind.ROUNDING, LabelKind.DISCOUNT, LabelKind.SERVICE)})
    wanted = {
        target - more + off
        for target, more, off in product(targets, added, range(-ROUNDING_SLACK_MINOR, ROUNDING_SLACK_MINOR + 1))
    }
    reached = {0}
    for minor in goods:
        reached |= {sum_ + minor for sum_ in reached}
        if len(reached) > REACHED_MAX or wanted & (reached - {0}):
            return False
    return True


def _unlabelled_subtotal_holds(values: list[int], totals: list[int], roundings: list[int]) -> bool:
    """Report whether an amount is the sum of those before it, and leads to a total with those after it.

    Labels far from their amounts leave subtotal and tax unlabeled after the goods.
    """
    for cut in range(1, len(values)):
        before, subtotal = values[:cut], values[cut]
        ways = (before, before[1::2], _without_repeats(before))
        if subtotal > 0 and any(way and sum(way) == subtotal for way in ways):
            after = [0, *signed_sums({*values[cut + 1 : cut + ADJUSTMENTS_MAX], *roundings})]
            if any(abs(subtotal + more - total) <= ROUNDING_SLACK_MINOR for more, total in product(after, totals)):
                return True
    return False


def _plausible_sums(values: list[int], last_of_row: list[int]) -> set[int]:
    """Return the sums of the goods for the ways in which prices, discounts and amounts are printed."""
    sums = {sum(values), sum(last_of_row), sum(_without_repeats(values))}
    for step in (2, 3):
        sums.update(sum(values[start::step]) for start in range(step))
    return sums


def _without_repeats(values: list[int]) -> list[int]:
    """Return the amounts without those that only repeat the one before, as for a single piece."""
    return [value for at, value in enumerate(values) if at == 0 or values[at - 1] != value]


def check_tax_table(amounts: PrintedAmounts, totals: list[int]) -> Check:
    """Check that the bases and taxes of a tax table make a total.

    A base and its tax are two amounts in a row of which one is a printed rate of the other.
    """
    rates = printed_rates(amounts)
    tail = amounts.tail if any(entry.in_summary for entry in amounts.entries) or rates else []
    taxed = {
        (base, tax)
        for base, tax in pairwise(tail)
        if tax > 0 and any(abs(base * rate - 100 * tax) <= 100 * ROUNDING_SLACK_MINOR // 2 for rate in rates)
    }
    untaxed = {base for base, tax in pairwise(tail) if tax == 0 < base and base not in totals}
    if not taxed:
        return _unchecked("tax_table")
    sums = {base + tax for base, tax in taxed} | {sum(base + tax for base, tax in taxed)}
    added = signed_sums({*amounts.minors(LabelKind.ROUNDING, LabelKind.SERVICE)})
    gaps = [
        abs(total + other + extra - target)
        for total, other, extra, target in product(sums, {0, *untaxed, sum(untaxed)}, added, totals)
    ]
    return _check("tax_table", gaps, slack=CASH_STEP_MINOR)


def check_count(amounts: PrintedAmounts, products: Products) -> Check:
    """Check that a printed number of pieces is that of the lines or of their quantities."""
    for at, row in enumerate(amounts.rows):
        if COUNT_ROW.search(row) and products.lines:
            counts = [int(count) for count in COUNT.findall(" ".join(amounts.rows[at : at + 2]))]
            wanted = (products.lines, products.quantity)
            return _check("count", [abs(n - m) for n, m in product(counts, wanted)], slack=0)
    return _unchecked("count")


def check_payable(amounts: PrintedAmounts, totals: list[int], currency: str | None) -> Check:
    """Check that a total which was rounded for cash is a multiple of the smallest coin."""
    rounded = amounts.names(LabelKind.ROUNDING) and currency in CASH_STEP_CURRENCIES
    return _check("payable", [total % CASH_STEP_MINOR for total in totals] if rounded else [], slack=0)


def total_support(amounts: PrintedAmounts, totals: list[int]) -> int:
    """Return in how many further places the best supported total is printed, at most 6."""
    places = max((amounts.pool.count(total) for total in totals), default=0)
    # A total whose amount is in doubt is not in the pool at all.
    return min(6, max(0, places - 1))


def totals_contradicting(amounts: PrintedAmounts) -> int:
    """Return how many printed totals nothing explains.

    A total is explained by appearing anywhere else again, by differing from another by a printed
    amount such as a rounding, tax, discount or part, or by being the tax within another.
    """
    labeled = list(dict.fromkeys(minor for minor in amounts.minors(*TOTAL_KINDS) if minor > 0))
    if len(labeled) < 2:
        return 0
    printed = Counter(abs(minor) for minor in amounts.pool)
    rates = printed_rates(amounts)
    return sum(not _explained(total, labeled, printed, rates) for total in labeled)


def _explained(total: int, labeled: list[int], printed: Counter[int], rates: set[int]) -> bool:
    others = [other for other in labeled if other != total]
    gaps = [abs(total - other) for other in others]
    shares = [abs(other * rate - total * (100 + rate)) for other, rate in product(others, rates)]
    return (
        printed[total] > 1
        or any(gap <= CASH_STEP_MINOR for gap in gaps)
        or any(abs(gap - amount) <= 1 for gap, amount in product(gaps, printed))
        or any(share <= 100 * ROUNDING_SLACK_MINOR for share in shares)
    )


def tail_unexplained(amounts: PrintedAmounts) -> int:
    """Return how many amounts after the goods are unexplained.

    A genuine amount appears twice, is made of two others, is a multiple or a share of another, or is
    its tax; an altered amount mostly loses all of these together.
    """
    pool = Counter(abs(minor) for minor in amounts.pool)
    rates = printed_rates(amounts)
    return sum(not _made_of_others(minor, pool, rates) for minor in {abs(minor) for minor in amounts.tail})


def _made_of_others(minor: int, pool: Counter[int], rates: set[int]) -> bool:
    percent, rest = divmod(minor, 100)
    if minor <= CASH_STEP_MINOR or pool[minor] > 1 or (rest == 0 and percent in TAX_PERCENT):
        return True
    others = [other for other in pool if other not in (0, minor)]
    seen = set(others)
    near = [minor + off for off in (-1, 0, 1)]
    return (
        any(abs(wanted - other) in seen or wanted + other in seen for wanted, other in product(near, others))
        or any(minor in (other * pieces, other / pieces) for other, pieces in product(others, PIECES))
        or any(abs(other * rate - minor * 100) <= 100 for other, rate in product(others, rates))
        or any(abs(other * rate - minor * (100 + rate)) <= 100 for other, rate in product(others, rates))
    )


def printed_rates(amounts: PrintedAmounts) -> set[int]:
    """Return the whole percentages that the receipt prints."""
    return {int(rate) for row in amounts.rows for rate in RATE.findall(row)} & set(RATES_PERCENT)


def _unchecked(name: str) -> Check:
    return Check(name, checked=False, held=False)


def _check(name: str, gaps: Iterable[int], *, slack: int) -> Check:
    gap = min(gaps, default=None)
    if gap is None:
        return _unchecked(name)
    return Check(name, checked=True, held=gap <= slack, gap_minor=gap)


def signed_sums(values: set[int]) -> list[int]:
    """Return every sum in which each value is added, taken off or left out; the smallest few enter."""
    used = sorted((value for value in values if value), key=abs)[:ADJUSTMENTS_MAX]
    return sorted({sum(signs) for signs in product(*[(0, value, -value) for value in used])})
