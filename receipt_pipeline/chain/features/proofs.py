"""Relations that a genuine receipt keeps: tax rates, change, rows of one form, explained amounts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from receipt_pipeline.chain.extract.labels import LabelKind
from receipt_pipeline.chain.features.amounts import WORDLESS, Entry, PrintedAmounts, PrintedNumber
from receipt_pipeline.chain.features.goods import COUNTED, Goods, makes, near
from receipt_pipeline.chain.features.sums import (
    CASH_STEP_MINOR,
    RATE,
    REACH_MINOR_MAX,
    ROUNDING_SLACK_MINOR,
    printed_rates,
)

TAX_NAMED = re.compile(r"\b(?:GST|SST|VAT|MWST|TAX)\b")
TAX_MINOR_MIN = 3
GOODS_CHECKED_MAX = 9
# A tax, service charge or rounding is less than a fifth of the total that it is added to.
TAX_SHARE_MAX = 5
CHANGE_NEEDS_AMOUNTS = 2


@dataclass(frozen=True, slots=True)
class Proof:
    """One relation that a receipt offers: whether it could be checked, and whether any amounts keep it."""

    checked: bool
    met: bool

    @property
    def unmet(self) -> bool:
        """Report whether the receipt offers the relation and nothing on it keeps it."""
        return self.checked and not self.met


def tax_at_rate(amounts: PrintedAmounts) -> Proof:
    """Look for a printed tax that is a printed rate of a printed base.

    Anywhere after the goods, because rows of a table may be read one by one.
    """
    rates = printed_rates(amounts)
    named = any(TAX_NAMED.search(row) for row in amounts.rows)
    tail = {abs(minor) for minor in amounts.tail}
    small = {minor for minor in tail if minor >= TAX_MINOR_MIN}
    if not (rates and named and len(small) > 1) or not _names_a_tax_amount(amounts):
        return Proof(checked=False, met=False)
    met = any(
        abs(base * rate - tax * 100) <= 100 * ROUNDING_SLACK_MINOR // 2
        for base, tax, rate in product(small, small, rates)
        if base > tax
    )
    return Proof(checked=True, met=met)


def _names_a_tax_amount(amounts: PrintedAmounts) -> bool:
    taxed = any(entry.kind == LabelKind.TAX or entry.in_summary for entry in amounts.entries)
    return taxed or any("SUMMARY" in row for row in amounts.rows)


def change_given(amounts: PrintedAmounts, totals: Sequence[int]) -> Proof:
    """Look for an amount given that is a total and the change together; none given back is zero."""
    back = [abs(minor) for minor in amounts.minors(LabelKind.CHANGE)]
    tail = [abs(minor) for minor in amounts.tail]
    if not (back and totals) or len(tail) < CHANGE_NEEDS_AMOUNTS:
        return Proof(checked=False, met=False)
    seen = set(tail)
    met = any(
        any(abs(total + change - paid) <= CASH_STEP_MINOR for paid in seen)
        if change
        else tail.count(total) > 1 or bool({total - 2, total - 1, total + 1, total + 2} & seen)
        for total, change in product(totals, {*back, *({0} & seen)})
    )
    return Proof(checked=True, met=met)


def goods_reach_total(amounts: PrintedAmounts, totals: Sequence[int]) -> Proof:
    """Check whether some of the amounts above the first print of the total make it, with tax or without.

    A sum printed without a label is no part of the goods, so whatever is printed from the first print of
    the total on is left out. What a long receipt can reach proves nothing, and is not checked.
    """
    if not totals:
        return Proof(checked=False, met=False)
    exact = [entry.minor for entry in amounts.entries if entry.exact and not entry.in_summary]
    above = exact[: min((exact.index(total) for total in totals if total in exact), default=len(exact))]
    goods = [minor for minor in above if minor]
    if not goods or len(goods) > GOODS_CHECKED_MAX or max(map(abs, (*goods, *totals))) > REACH_MINOR_MAX:
        return Proof(checked=False, met=False)
    more = {0, *(abs(minor) for minor in exact if abs(minor) * TAX_SHARE_MAX < max(totals))}
    wanted = {
        total + sign * extra + off
        for total, extra, sign, off in product(totals, more, (1, -1), range(-CASH_STEP_MINOR, CASH_STEP_MINOR + 1))
    }
    reached = {0}
    for minor in goods:
        reached |= {sum_ + minor for sum_ in reached}
    return Proof(checked=True, met=bool(wanted & (reached - {0})))


QUANTITY = re.compile(r"(?<![\d.,/:-])(\d{1,3})(?:[.,]0{1,4})?(?![\d.,/:%-])")
TAX_SLACK_MINOR = 2
# One row in the form of quantity, price and amount may be chance; two show that the shop prints so.
FORM_SHOWN_BY = 2


def columns_failed(amounts: PrintedAmounts) -> int:
    """Return how many goods break the form quantity, price, amount that the other goods keep."""
    held = failed = 0
    for counts, price, minors in _priced_goods(amounts):
        if any(count * price in minors for count in counts):
            held += 1
        else:
            failed += 1
    return failed if held >= max(FORM_SHOWN_BY, failed) else 0


def _priced_goods(amounts: PrintedAmounts) -> Iterator[tuple[list[int], int, list[int]]]:
    """Yield (possible quantities, price, amounts after it) of goods that show all of these."""
    by_row: dict[int, list[Entry]] = {}
    for entry in amounts.entries:
        if entry.row < amounts.first_sum_row and entry.kind == LabelKind.OTHER and entry.minor > 0:
            by_row.setdefault(entry.row, []).append(entry)
    if all(len(entries) == 1 for entries in by_row.values()):
        yield from _stacked_goods(amounts, by_row)
        return
    for row, entries in by_row.items():
        counts = [int(count) for count in QUANTITY.findall(amounts.rows[row]) if int(count) > 0]
        if len(entries) > 1 and counts and all(entry.exact for entry in entries):
            yield counts, entries[0].minor, [entry.minor for entry in entries[1:]]


def _stacked_goods(
    amounts: PrintedAmounts, by_row: dict[int, list[Entry]]
) -> Iterator[tuple[list[int], int, list[int]]]:
    """Yield goods whose quantity, price and amounts are in rows right below each other."""
    for row, entries in by_row.items():
        above = amounts.rows[row - 1].strip() if row > 0 else ""
        after = [by_row[below][0].minor for below in _unbroken(row + 1, by_row)]
        if after and re.fullmatch(r"\d{1,3}", above) and int(above) > 0:
            yield [int(above)], entries[0].minor, after


def _unbroken(row: int, by_row: dict[int, list[Entry]]) -> Iterator[int]:
    while row in by_row:
        yield row
        row += 1


def table_rates_failed(amounts: PrintedAmounts) -> int:
    """Return how many rows of a tax table hold a tax that is not the row's rate of its base."""
    rows: dict[int, list[int]] = {}
    for entry in amounts.entries:
        if entry.in_summary and entry.exact and entry.row >= amounts.first_sum_row:
            rows.setdefault(entry.row, []).append(entry.minor)
    return sum(
        len(minors) == 2 and minors[0] > minors[1] > 0 and _off_rate(minors, _rates_of(amounts.rows[row]))
        for row, minors in rows.items()
    )


def _rates_of(row: str) -> list[int]:
    return [int(rate) for rate in RATE.findall(row)]


def _off_rate(amounts: Sequence[int], rates: Sequence[int]) -> bool:
    base, tax = amounts
    return bool(rates) and all(abs(base * rate / 100 - tax) > TAX_SLACK_MINOR for rate in rates)


def is_cash_short(amounts: PrintedAmounts, totals: Sequence[int]) -> bool:
    """Report whether all that was given, with change given back, is less than the total."""
    given = [abs(minor) for minor in amounts.minors(LabelKind.CASH)]
    back = [abs(minor) for minor in amounts.minors(LabelKind.CHANGE)]
    return bool(given and any(back) and totals) and sum(given) < min(totals)


RATE_OR_AT = re.compile(r"(?<![\d.,])(\d{1,2})(?:[.,]0{1,2})? ?%|@ ?(\d{1,2})(?:\.0{1,2})?\b(?!\.)")
RATES_PERCENT_ALL = frozenset(range(1, 31))
# Malaysia's goods and services tax was six per cent all its life, and often only named.
GST = re.compile(r"\bGST\b")
GST_PERCENT = 6
# What else is printed after the goods: points, balances, savings, litres; no part of the sale's money.
NOT_OF_SALE = re.compile(r"POINT|BALANCE|\bBAL\b|MISSED|SAVING|SAVED|GOODS SOLD|LITRE|\bKG\b|AVERAGE|MEMBER")
NOT_OF_SALE_ABOVE = re.compile(r"POINT|SAVING|BALANCE|AVERAGE")
# Smaller amounts are roundings, which nothing need explain.
EXPLAINED_MINOR_MIN = 5
# From one unit on, an amount may be off by one minor unit of rounding.
ROUNDED_MINOR_MIN = 100
# More different amounts are a statement of account, and no end of a receipt.
AMOUNTS_CHECKED_MAX = 100
PIECES_MAX_E3 = 999_000
RATE_SLACK = 110


def unexplained_after_goods(goods: Goods) -> set[int]:
    """Return the amounts after the goods, in minor units, that no other amount explains."""
    rows = goods.rows
    numbers = [number for number in goods.numbers if number.row >= goods.end_row]
    minors = Counter(abs(one.minor) for one in numbers if one.decimals == 2 and _of_the_sale(one, rows))
    checked = {minor for minor in minors if minor}
    if len(checked) > AMOUNTS_CHECKED_MAX:
        return set()
    given = goods.sums_minor | _products_after(numbers)
    rates = rates_of(rows)
    return {
        minor
        for minor in checked
        if minors[minor] == 1
        and minor not in given
        and not _is_explained(minor, (checked | goods.sums_minor) - {minor}, rates)
    }


def rates_of(rows: Iterable[str]) -> frozenset[int]:
    """Return the whole percentages that the receipt prints, and the one that GST means."""
    printed: set[int] = set()
    for row in rows:
        printed |= {int(percent or at) for percent, at in RATE_OR_AT.findall(row)}
        printed |= {GST_PERCENT} if GST.search(row) else set()
    return RATES_PERCENT_ALL & printed


def _of_the_sale(number: PrintedNumber, rows: Sequence[str]) -> bool:
    """Leave out points, savings and measures, and pieces that are printed with decimals."""
    row, above = rows[number.row], rows[number.row - 1] if number.row else ""
    if NOT_OF_SALE.search(row) or (NOT_OF_SALE_ABOVE.search(above) and WORDLESS.match(row)):
        return False
    return number.minor % 100 != 0 or not COUNTED.search(above)


def _products_after(numbers: Sequence[PrintedNumber]) -> set[int]:
    """Return amounts and prices, in minor units, of lines that are quantity times price."""
    found: set[int] = set()
    prices = [one for one in numbers if one.decimals >= 2 and one.value_e4 > 0]
    counts = [one for one in numbers if 2000 <= one.pieces_e3 <= PIECES_MAX_E3 and one.decimals == 0]
    for amount in numbers:
        if not amount.is_amount:
            continue
        for price, pieces in product(near(amount, prices), near(amount, counts)):
            if makes(pieces, price, amount):
                found |= {abs(amount.minor), price.minor}
    return found


def _is_explained(minor: int, others: frozenset[int] | set[int], rates: frozenset[int]) -> bool:
    """Report whether an amount is small, the rate of the tax itself, or made of others."""
    if minor < EXPLAINED_MINOR_MIN or minor == GST_PERCENT * 100:
        return True
    near = (minor - 1, minor, minor + 1) if minor > ROUNDED_MINOR_MIN else (minor,)
    return any(_of_two(near, other, others) or any(_at_rate(minor, other, rate) for rate in rates) for other in others)


def _of_two(near: Sequence[int], other: int, others: frozenset[int] | set[int]) -> bool:
    """Report whether an amount, within its rounding, is the sum or difference of this and a further one."""
    return any(
        (abs(minor - other) in others and abs(minor - other) != other) or minor + other in others for minor in near
    )


def _at_rate(minor: int, other: int, rate: int) -> bool:
    """Report whether an amount is another's tax at a rate, its base, or either with the tax in it."""
    gaps = (
        other * rate - minor * 100,
        other * (100 + rate) - minor * 100,
        minor * (100 + rate) - other * 100,
        other * rate - minor * (100 + rate),
    )
    return any(abs(gap) <= RATE_SLACK for gap in gaps)
