"""Stage features of `chain-v4`: what was sold, as quantity times price, and as lines that add up.

A receipt prints its goods in rows, stacked, or column by column, each with one amount or with price and
amount. Amounts that are known to be prices are left out; what remains must add up to an amount behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from receipt_pipeline.chain.extract_labels import LabelKind, kind_of_label
from receipt_pipeline.chain.features_book import SUM_KINDS, MoneyBook
from receipt_pipeline.chain.features_goods_roles import Roles, roles_of
from receipt_pipeline.chain.features_printed import WORDLESS, PrintedNumber, printed_numbers, with_points
from receipt_pipeline.chain.features_sums import ROUNDING_SLACK_MINOR, signed_sums

COUNTED = re.compile(
    r"TOTAL (?:QTY|QUANTITY|ITEMS?)|TOT QTY|ITEM ?\(?S?\)? ?(?:COUNT|SOLD)|^(?:ITEM|QTY) ?\(S\)"
    r"|NO\.? OF ITEMS?|^QTY ?:|QUANTITY OUT|^ITEM QTY"
)
HEADING = re.compile(r"\bQTY\b|\bDESC|\bU\.?/?P\b|UNIT PRICE|\bMENGE\b")
END_KINDS = SUM_KINDS - {LabelKind.DISCOUNT}
END_WORDS = re.compile(
    r"\bSUB ?-?TOTAL|\bTOTAL\b|^TL\b|GROSS (?:AMT|AMOUNT)|ROUND|TENDER|\bCHANGE\b|^CASH\b|SERV\. CHARGE"
    r"|\bDUE\b|PAYMENT"
)
# A label of the sums has its amount within so many rows, or further labels beside it.
LABEL_ROWS_MAX = 4
LABELS_TOGETHER = 3
# One line left out of a sum is a line that was altered; more are a form that is not understood.
LINES_ODD_MAX = 2
CODED = re.compile(r"\d ?(?:SR0?|ZRL?|S|Z|T|\*)$")
LONG_LIST = 4


@dataclass(frozen=True, slots=True)
class Goods:
    """What was sold.

    `rows` have points before decimals, `numbers` are all of the receipt; the goods end before `end_row`.
    `asked` tells that there are goods and an amount behind them, `added_up` that they make one. `lines_odd`
    is how many amounts among goods that add up are no part of it; `quantities_odd` how many printed
    quantities their amount denies. `sums_minor` are the amounts of the lines and their sum.
    """

    rows: tuple[str, ...]
    numbers: tuple[PrintedNumber, ...]
    end_row: int
    asked: bool
    added_up: bool
    lines_odd: int
    quantities_odd: int
    sums_minor: frozenset[int]

    @property
    def sum_unmet(self) -> bool:
        """Tell whether the goods make no amount behind them."""
        return self.asked and not self.added_up

    @property
    def line_odd(self) -> bool:
        """Tell whether one or two amounts stand out of goods that add up without them."""
        return 0 < self.lines_odd <= LINES_ODD_MAX


def read_goods(book: MoneyBook, totals: Sequence[int]) -> Goods:
    """Read the goods of one receipt and add them up; totals in minor units, as printed."""
    rows = with_points(book.rows)
    numbers = printed_numbers(rows)
    first_row, end_row = _stretch(rows, numbers)
    among = tuple(number for number in numbers if first_row <= number.row < end_row)
    roles = roles_of(among, rows)
    behind = [number.minor for number in numbers if number.is_amount and number.row >= end_row]
    targets = {*totals, *book.minors(LabelKind.SUBTOTAL), *behind[:1]} - {0}
    reached = _Reached(frozenset(behind), frozenset(_with_adjustments(book, targets)), len(roles.amounts))
    ways = [way for way in _ways(roles, rows) if way and reached.by(roles.sum_of(way))]
    added_up = bool(ways and behind)
    way = min(ways, key=lambda one: len(roles.odd_beside(one))) if ways else roles.lines
    return Goods(
        rows=rows,
        numbers=numbers,
        end_row=end_row,
        asked=bool(roles.lines and targets and behind),
        added_up=added_up,
        lines_odd=len(roles.odd_beside(way)) if added_up else 0,
        quantities_odd=roles.quantities_odd,
        sums_minor=frozenset(
            abs(minor) for minor in (roles.sum_of(way), *(roles.amounts[at].minor for at in roles.lines))
        ),
    )


@dataclass(frozen=True, slots=True)
class _Reached:
    """The amounts that the goods may add up to, in minor units."""

    printed: frozenset[int]
    adjusted: frozenset[int]
    amounts: int

    def by(self, sum_minor: int) -> bool:
        """Tell whether a sum of goods is printed behind them, or makes a total with what is added."""
        slack = int(self.amounts >= LONG_LIST)
        return bool(sum_minor) and (
            any(sum_minor + off in self.printed for off in range(-slack, slack + 1))
            or any(
                sum_minor + off in self.adjusted
                for off in range(-ROUNDING_SLACK_MINOR, ROUNDING_SLACK_MINOR + 1)
            )
        )


def _with_adjustments(book: MoneyBook, targets: set[int]) -> Iterator[int]:
    """Yield the sums that lead to a target with tax, rounding, discount and service added or taken off."""
    added = signed_sums(
        {*book.minors(LabelKind.TAX, LabelKind.ROUNDING, LabelKind.DISCOUNT, LabelKind.SERVICE)}
    )
    yield from (target - more for more, target in product(added, targets))


def _ways(roles: Roles, rows: Sequence[str]) -> Iterator[list[int]]:
    """Yield the selections of amounts that a receipt may add up, the likeliest first.

    Lines without their prices; those with a tax code; those without discounts; those in rows of their own,
    or beside words; all; the last of each row; every second or third, as columns read across give.
    """
    amounts, every = roles.amounts, list(range(len(roles.amounts)))
    yield roles.lines
    yield [at for at in every if CODED.search(rows[amounts[at].row].rstrip())]
    yield [at for at in roles.lines if amounts[at].value_e4 > 0]
    yield [at for at in roles.lines if amounts[at].wordless]
    yield [at for at in roles.lines if not amounts[at].wordless]
    yield every
    yield list({amounts[at].row: at for at in every}.values())
    yield from (every[start::step] for step in (2, 3) for start in range(step))


def _stretch(rows: Sequence[str], numbers: Sequence[PrintedNumber]) -> tuple[int, int]:
    """Return the first row that may hold goods, and the row in which the sums behind them begin."""
    closing = [number.row for number in numbers if number.is_amount and number.closes]
    if not closing:
        return 0, len(rows)
    start = next((at for at, row in enumerate(rows) if _is_heading(row)), 0)
    if closing[-1] < start:
        start = 0
    first = next(row for row in closing if row >= start)
    ends = [_names_a_sum(row) for row in rows]
    with_amount = {number.row for number in numbers if number.decimals == 2}
    for at in range(first, len(rows)):
        near = with_amount & set(range(at, at + LABEL_ROWS_MAX))
        if ends[at] and (near or sum(ends[at : at + LABEL_ROWS_MAX + 1]) >= LABELS_TOGETHER):
            return start, at
    return start, len(rows)


def _is_heading(row: str) -> bool:
    return HEADING.search(row) is not None and not COUNTED.search(row) and not re.search(r"\d", row)


def _names_a_sum(row: str) -> bool:
    if WORDLESS.match(row):
        return False
    named = COUNTED.search(row) or END_WORDS.search(row)
    return named is not None or kind_of_label(re.sub(r"[-\d.,]+", " ", row)) in END_KINDS
