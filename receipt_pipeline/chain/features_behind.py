"""Stage features of `chain-v4`: whether each amount behind the goods is explained by another.

A genuine amount stands twice, is made of two others, is quantity times price, or is the tax of another;
an altered one mostly loses all of these at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

from receipt_pipeline.chain.features_goods import COUNTED, Goods
from receipt_pipeline.chain.features_goods_roles import makes, near
from receipt_pipeline.chain.features_printed import WORDLESS, PrintedNumber

RATE = re.compile(r"(?<![\d.,])(\d{1,2})(?:[.,]0{1,2})? ?%|@ ?(\d{1,2})(?:\.0{1,2})?\b(?!\.)")
RATES_PERCENT = frozenset(range(1, 31))
# Malaysia's goods and services tax was six per cent all its life, and often only named.
GST = re.compile(r"\bGST\b")
GST_PERCENT = 6
# What else stands behind the goods: points, balances, savings, litres; no part of the sale's money.
BESIDE_SALE = re.compile(r"POINT|BALANCE|\bBAL\b|MISSED|SAVING|SAVED|GOODS SOLD|LITRE|\bKG\b|AVERAGE|MEMBER")
BESIDE_SALE_ABOVE = re.compile(r"POINT|SAVING|BALANCE|AVERAGE")
# Smaller amounts are roundings, which nothing need explain.
EXPLAINED_MINOR_MIN = 5
# From one unit on, an amount may be off by one minor unit of rounding.
ROUNDED_MINOR_MIN = 100
# So many different amounts are a statement of account, and no end of a receipt.
AMOUNTS_ASKED_MAX = 100
PIECES_MAX_E3 = 999_000
RATE_SLACK = 110


def unexplained_behind(goods: Goods) -> set[int]:
    """Return the amounts behind the goods, in minor units, that no other amount explains."""
    rows = goods.rows
    numbers = [number for number in goods.numbers if number.row >= goods.end_row]
    minors = Counter(abs(one.minor) for one in numbers if one.decimals == 2 and _of_the_sale(one, rows))
    asked = {minor for minor in minors if minor}
    if len(asked) > AMOUNTS_ASKED_MAX:
        return set()
    given = goods.sums_minor | _products(numbers)
    rates = rates_of(rows)
    return {
        minor
        for minor in asked
        if minors[minor] == 1
        and minor not in given
        and not _explained(minor, (asked | goods.sums_minor) - {minor}, rates)
    }


def rates_of(rows: Iterable[str]) -> frozenset[int]:
    """Return the whole percentages that the receipt prints, and the one that GST stands for."""
    printed: set[int] = set()
    for row in rows:
        printed |= {int(percent or at) for percent, at in RATE.findall(row)}
        printed |= {GST_PERCENT} if GST.search(row) else set()
    return RATES_PERCENT & printed


def _of_the_sale(number: PrintedNumber, rows: Sequence[str]) -> bool:
    """Leave out points, savings and measures, and pieces that are printed with decimals."""
    row, above = rows[number.row], rows[number.row - 1] if number.row else ""
    if BESIDE_SALE.search(row) or (BESIDE_SALE_ABOVE.search(above) and WORDLESS.match(row)):
        return False
    return number.minor % 100 != 0 or not COUNTED.search(above)


def _products(numbers: Sequence[PrintedNumber]) -> set[int]:
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


def _explained(minor: int, others: frozenset[int] | set[int], rates: frozenset[int]) -> bool:
    """Tell whether an amount is small, the rate of the tax itself, or made of others."""
    if minor < EXPLAINED_MINOR_MIN or minor == GST_PERCENT * 100:
        return True
    near = (minor - 1, minor, minor + 1) if minor > ROUNDED_MINOR_MIN else (minor,)
    return any(
        _of_two(near, other, others) or any(_at_rate(minor, other, rate) for rate in rates)
        for other in others
    )


def _of_two(near: Sequence[int], other: int, others: frozenset[int] | set[int]) -> bool:
    """Tell whether an amount, within its rounding, is the sum or difference of this and a further one."""
    return any(
        (abs(minor - other) in others and abs(minor - other) != other) or minor + other in others
        for minor in near
    )


def _at_rate(minor: int, other: int, rate: int) -> bool:
    """Tell whether an amount is another's tax at a rate, its base, or either with the tax in it."""
    gaps = (
        other * rate - minor * 100,
        other * (100 + rate) - minor * 100,
        minor * (100 + rate) - other * 100,
        other * rate - minor * (100 + rate),
    )
    return any(abs(gap) <= RATE_SLACK for gap in gaps)
