"""What was sold: quantities times prices, and lines that add up to a printed sum."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from receipt_pipeline.chain.extract.labels import LabelKind, kind_of_label
from receipt_pipeline.chain.features.amounts import (
    SUM_KINDS,
    WORDLESS,
    PrintedAmounts,
    PrintedNumber,
    printed_numbers,
    with_points,
)
from receipt_pipeline.chain.features.sums import ROUNDING_SLACK_MINOR, signed_sums

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
# A label of the sums has its amount within this many rows, or further labels next to it.
LABEL_ROWS_MAX = 4
LABELS_TOGETHER = 3
# One line left out of a sum is a line that was altered; more are a form that is not understood.
LINES_INVALID_MAX = 2
CODED = re.compile(r"\d ?(?:SR0?|ZRL?|S|Z|T|\*)$")
LONG_LIST = 4


@dataclass(frozen=True, slots=True)
class Goods:
    """What was sold.

    `rows` have points before decimals, `numbers` are all of the receipt; the goods end before `end_row`.
    `checked`: there are goods and an amount after them; `added_up`: they make one. `lines_invalid` is how
    many amounts among goods that add up are no part of it; `quantities_invalid` how many printed quantities
    contradict their amount. `sums_minor` are the amounts of the lines and their sum.
    """

    rows: tuple[str, ...]
    numbers: tuple[PrintedNumber, ...]
    end_row: int
    checked: bool
    added_up: bool
    lines_invalid: int
    quantities_invalid: int
    sums_minor: frozenset[int]

    @property
    def sum_unmet(self) -> bool:
        """Report whether the goods make no amount after them."""
        return self.checked and not self.added_up

    @property
    def has_invalid_line(self) -> bool:
        """Report whether one or two amounts are left over by goods that add up without them."""
        return 0 < self.lines_invalid <= LINES_INVALID_MAX


def read_goods(amounts: PrintedAmounts, totals: Sequence[int]) -> Goods:
    """Read the goods of one receipt and add them up; totals in minor units, as printed."""
    rows = with_points(amounts.rows)
    numbers = printed_numbers(rows)
    first_row, end_row = _stretch(rows, numbers)
    among = tuple(number for number in numbers if first_row <= number.row < end_row)
    roles = roles_of(among, rows)
    after = [number.minor for number in numbers if number.is_amount and number.row >= end_row]
    targets = {*totals, *amounts.minors(LabelKind.SUBTOTAL), *after[:1]} - {0}
    reached = _Reached(frozenset(after), frozenset(_with_adjustments(amounts, targets)), len(roles.amounts))
    ways = [way for way in _ways(roles, rows) if way and reached.by(roles.sum_of(way))]
    added_up = bool(ways and after)
    way = min(ways, key=lambda one: len(roles.unexplained_besides(one))) if ways else roles.lines
    return Goods(
        rows=rows,
        numbers=numbers,
        end_row=end_row,
        checked=bool(roles.lines and targets and after),
        added_up=added_up,
        lines_invalid=len(roles.unexplained_besides(way)) if added_up else 0,
        quantities_invalid=roles.quantities_invalid,
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
        """Report whether a sum of goods is printed after them, or makes a total with what is added."""
        slack = int(self.amounts >= LONG_LIST)
        return bool(sum_minor) and (
            any(sum_minor + off in self.printed for off in range(-slack, slack + 1))
            or any(sum_minor + off in self.adjusted for off in range(-ROUNDING_SLACK_MINOR, ROUNDING_SLACK_MINOR + 1))
        )


def _with_adjustments(amounts: PrintedAmounts, targets: set[int]) -> Iterator[int]:
    """Yield the sums that lead to a target with tax, rounding, discount and service added or taken off."""
    added = signed_sums({*amounts.minors(LabelKind.TAX, LabelKind.ROUNDING, LabelKind.DISCOUNT, LabelKind.SERVICE)})
    yield from (target - more for more, target in product(added, targets))


def _ways(roles: Roles, rows: Sequence[str]) -> Iterator[list[int]]:
    """Yield the selections of amounts that a receipt may add up, the likeliest first.

    Lines without their prices; those with a tax code; those without discounts; those in rows of their own,
    or next to words; all; the last of each row; every second or third, as columns read across give.
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
    """Return the first row that may hold goods, and the row in which the sums after them begin."""
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


# Quantity, price and amount of one good are within this many rows.
NEAR_ROWS = 8
# A page full of figures must not take minutes.
NEAR_MAX = 40
# A price that is printed once more as the amount of a single piece, and a discount that takes it all off.
REPEATED_ROWS, CANCELLED_ROWS = 3, 6
# From this many pieces on, the product is off by half a minor unit each where its price was rounded.
ROUNDED_FROM = 8
QUANTITY_BEFORE = re.compile(r"\s*\d{1,2} ?(?:X|\*|PCS?|UNIT|NOS?)")
QUANTITIES_INVALID = range(2, 31)
QUOTED = re.compile(r"@[ RM$€£]*$")
ONE_MINOR = 100
# What tax a price before it and a price with it may differ by, in per cent.
TAX_PERCENT = 6
TAXED_SLACK = 110


@dataclass(slots=True)
class Roles:
    """The amounts of the goods in reading order, and what is known of each by its position.

    `prices` are prices of pieces and so no part of a sum; `proven` amounts are made by a price or repeat one.
    """

    amounts: tuple[PrintedNumber, ...]
    prices: set[int] = field(default_factory=set)
    proven: set[int] = field(default_factory=set)
    quantities_invalid: int = 0

    @property
    def lines(self) -> list[int]:
        """Return the positions of the amounts that are no prices."""
        return [at for at in range(len(self.amounts)) if at not in self.prices]

    def open(self, at: int) -> bool:
        """Report whether there is such an amount and nothing is known of it yet."""
        return 0 <= at < len(self.amounts) and at not in self.prices and at not in self.proven

    def known(self, at: int) -> bool:
        """Report whether there is such an amount and its role is known."""
        return 0 <= at < len(self.amounts) and not self.open(at)

    def sum_of(self, way: Sequence[int]) -> int:
        """Return the sum of a selection of amounts, in minor units."""
        return sum(self.amounts[at].minor for at in way)

    def unexplained_besides(self, way: Sequence[int]) -> list[int]:
        """Return the amounts that are neither in a selection nor explained."""
        return [at for at in range(len(self.amounts)) if self.open(at) and at not in way]


def roles_of(numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> Roles:
    """Distinguish prices from amounts among the numbers of the goods; rows are those of the whole receipt."""
    amounts = (one for one in numbers if one.is_amount and one.closes)
    roles = Roles(tuple(one for one in amounts if not QUOTED.search(rows[one.row][: one.at + 1].rstrip())))
    for mark in MARKING:
        mark(roles, numbers, rows)
    return roles


@dataclass(frozen=True, slots=True)
class _Product:
    """An amount, by its position, as a product of price and quantity; the nearest are believed first."""

    apart: int
    at: int
    price: PrintedNumber
    pieces: PrintedNumber


def _mark_products(roles: Roles, numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> None:
    """Take amounts as products of a price and a quantity near them, each number for one good only."""
    position = {id(amount): at for at, amount in enumerate(roles.amounts)}
    taken: set[int] = set()
    for found in sorted(_products(roles.amounts, numbers), key=lambda one: (one.apart, one.at)):
        used = {id(roles.amounts[found.at]), id(found.price), id(found.pieces)}
        price_at = position.get(id(found.price), -1)
        if found.at in roles.prices or price_at in roles.proven or used & taken:
            continue
        taken |= used
        roles.proven.add(found.at)
        roles.prices |= {position[one] for one in used - {id(roles.amounts[found.at])} if one in position}


def _products(amounts: Sequence[PrintedNumber], numbers: Sequence[PrintedNumber]) -> Iterator[_Product]:
    prices = [one for one in numbers if one.decimals >= 2 and one.value_e4 > 0]
    counts = [one for one in numbers if one.pieces_e3 > 1000 or (one.pieces_e3 and one.decimals == 3)]
    for at, amount in enumerate(amounts):
        near_prices, near_counts = near(amount, prices), near(amount, counts)
        for price in near_prices:
            for pieces in near_counts:
                if pieces is not price and makes(pieces, price, amount):
                    yield _Product(_apart(amount, price, pieces), at, price, pieces)


def makes(pieces: PrintedNumber, price: PrintedNumber, amount: PrintedNumber) -> bool:
    """Report whether a quantity times a price is an amount, as far as the price was rounded."""
    gap_e7 = abs(pieces.pieces_e3 * price.value_e4 - 1000 * abs(amount.value_e4))
    many = pieces.pieces_e3 >= 1000 * ROUNDED_FROM
    slack_minor_e3 = 500 if price.decimals > 2 else pieces.pieces_e3 // 2 if many else 1000
    return gap_e7 <= 100 * slack_minor_e3


def near(amount: PrintedNumber, numbers: Sequence[PrintedNumber]) -> list[PrintedNumber]:
    """Return the other numbers that may belong to the good of an amount; of very many the nearest."""
    found = [one for one in numbers if one is not amount and abs(one.row - amount.row) <= NEAR_ROWS]
    return found if len(found) <= NEAR_MAX else sorted(found, key=lambda one: abs(one.row - amount.row))[:NEAR_MAX]


def _apart(amount: PrintedNumber, price: PrintedNumber, pieces: PrintedNumber) -> int:
    """Return how far the three are apart in rows; those that follow their amount count as further."""
    place = (amount.row, amount.at)
    after = 3 * ((price.row, price.at) > place) + ((pieces.row, pieces.at) > place)
    return abs(price.row - amount.row) + abs(pieces.row - amount.row) + after


def _mark_unsold(roles: Roles, numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> None:
    """Take an amount as a price where no pieces and then an amount of zero are printed right below."""
    for at, price in enumerate(roles.amounts):
        after = roles.amounts[at + 1].row if at + 1 < len(roles.amounts) else price.row + NEAR_ROWS
        zeros = [
            one for one in numbers if one.value_e4 == 0 and price.row < one.row < min(after, price.row + NEAR_ROWS)
        ]
        if price.wordless and zeros and zeros[-1].decimals == 2 and any(one.decimals == 0 for one in zeros):
            roles.prices.add(at)


def _mark_columns(roles: Roles, numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> None:
    """Take blocks of amounts below each other as columns of prices and of amounts, read one by one."""
    for block in _blocks(roles.amounts):
        for height in range(2, len(block) // 2 + 1):
            if len(block) % height == 0:
                _mark_columns_of(roles, [block[at : at + height] for at in range(0, len(block), height)])


def _mark_columns_of(roles: Roles, columns: Sequence[list[int]]) -> None:
    for last in range(len(columns) - 1, 0, -1):
        for column in columns[:last]:
            alike = [
                (price, at)
                for price, at in zip(column, columns[last], strict=True)
                if abs(roles.amounts[price].minor - roles.amounts[at].minor) <= 1
            ]
            if len(alike) >= max(2, len(column) - 1):
                for price, at in alike:
                    if at not in roles.prices:
                        roles.proven = (roles.proven | {at}) - {price}
                        roles.prices.add(price)


def _blocks(amounts: Sequence[PrintedNumber]) -> Iterator[list[int]]:
    """Yield runs of amounts in rows without words, right below each other."""
    block: list[int] = []
    for at, amount in enumerate(amounts):
        if not (block and amount.wordless and amount.row == amounts[block[-1]].row + 1):
            yield block
            block = []
        if amount.wordless:
            block.append(at)
    yield block


def _mark_repeated(roles: Roles, numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> None:
    """Take the first of two equal amounts as the price of one piece, the second as its amount."""
    amounts = roles.amounts
    for at in range(len(amounts) - 1):
        first, second = amounts[at], amounts[at + 1]
        rows_max = CANCELLED_ROWS if second.value_e4 < 0 else REPEATED_ROWS
        equal = abs(first.value_e4) == abs(second.value_e4) and second.row - first.row <= rows_max
        if equal and roles.open(at) and roles.open(at + 1):
            roles.prices.add(at)
            roles.proven.add(at + 1)
            roles.quantities_invalid += _is_quantity_contradicted(numbers, rows, first, second)
        elif equal and roles.open(at + 1) and at and amounts[at - 1].value_e4 == first.value_e4:
            # A third print of it: price, amount before a discount, amount.
            roles.prices.add(at)
            roles.proven = (roles.proven | {at + 1}) - {at}


def _is_quantity_contradicted(
    numbers: Sequence[PrintedNumber], rows: Sequence[str], price: PrintedNumber, amount: PrintedNumber
) -> bool:
    """Report whether several pieces are printed right before a price that is also the amount of the line."""
    if not (price.wordless and amount.wordless):
        return False
    before = [
        one
        for one in numbers
        if one.pieces_e3
        and one.decimals == 0
        and price.row - 2 <= one.row
        and (one.row, one.at) < (price.row, price.at)
        and (one.wordless or QUANTITY_BEFORE.match(rows[one.row]))
    ]
    return bool(before) and before[-1].pieces_e3 // 1000 in QUANTITIES_INVALID


def _mark_named(roles: Roles, numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> None:
    """Take an amount that ends a name as a price where the same price is right below."""
    for at, amount in enumerate(roles.amounts[:-1]):
        after = roles.amounts[at + 1]
        below = after.value_e4 == amount.value_e4 and after.row - amount.row <= REPEATED_ROWS
        if not amount.wordless and roles.open(at) and at + 1 in roles.prices and below:
            roles.prices.add(at)


def _mark_quoted(roles: Roles, numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> None:
    """Take an amount as proven where a price that closes no row is right before it."""
    own = {id(amount) for amount in roles.amounts}
    for at, amount in enumerate(roles.amounts):
        if roles.open(at) and any(
            one.decimals >= 2
            and one.value_e4 == amount.value_e4
            and id(one) not in own
            and (one.row, one.at) < (amount.row, amount.at)
            and amount.row - one.row <= REPEATED_ROWS
            for one in numbers
        ):
            roles.proven.add(at)


def _mark_before_tax(roles: Roles, numbers: Sequence[PrintedNumber], rows: Sequence[str]) -> None:
    """Take an amount as a price where the next is the same with tax, or where it is one piece as `1.00`."""
    amounts = roles.amounts
    for at, amount in enumerate(amounts[:-1]):
        after = amounts[at + 1]
        if not roles.open(at) or after.row - amount.row > NEAR_ROWS // 2:
            continue
        taxed = abs(after.minor * 100 - amount.minor * (100 + TAX_PERCENT)) <= TAXED_SLACK
        together = after.wordless and amount.wordless and amount.value_e4 > 0
        if taxed and (roles.known(at + 1) or together):
            roles.prices.add(at)
            roles.proven |= {at + 1} - roles.prices
        elif amount.minor == ONE_MINOR and (roles.known(at + 1) or roles.known(at + 2)):
            roles.prices.add(at)


MARKING: tuple[Callable[[Roles, Sequence[PrintedNumber], Sequence[str]], None], ...] = (
    _mark_unsold,
    _mark_products,
    _mark_columns,
    _mark_named,
    _mark_repeated,
    _mark_quoted,
    _mark_before_tax,
)
