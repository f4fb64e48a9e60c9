"""Rows that a genuine receipt keeps in one form: quantity, price and amount; base and tax at a rate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from receipt_pipeline.chain.extract_labels import LabelKind
from receipt_pipeline.chain.features_book import Entry, MoneyBook

_MARK = r"(?:RM|EUR|USD|[€$£])?"
QUANTITY_TIMES_PRICE = re.compile(
    r"(?<![\d.,])(?P<qty>\d{1,4}) ?(?:UNITS?|PCS?|NOS?|EA|CTN|PKT|#)? ?[X*@×] ?@? ?"
    rf"{_MARK} ?(?P<price>\d{{1,6}}[.,]\d{{2}}(?:\d{{2}})?)(?!\d)"
)
PRICE_TIMES_QUANTITY = re.compile(
    r"(?<![\d.,])(?P<price>\d{1,6}[.,]\d{2}(?:\d{2})?) ?[X*×] ?(?P<qty>\d{1,4})(?![\d.,])"
)
QUANTITY = re.compile(r"(?<![\d.,/:-])(\d{1,3})(?:[.,]0{1,4})?(?![\d.,/:%-])")
RATE = re.compile(r"(?<![\d.,])(\d{1,2})(?:[.,]0{1,2})? ?%")
TAX_SLACK_MINOR = 2
# One row in the form of quantity, price and amount may be chance; two show that the shop prints so.
FORM_SHOWN_BY = 2


@dataclass(frozen=True, slots=True)
class Products:
    """Lines of the form quantity x price: how many have their product printed, how many have not."""

    held: int
    failed: int
    quantity: int
    lines: int


def read_products(book: MoneyBook) -> Products:
    """Look for the product of each `quantity x price` among the printed amounts.

    Anywhere, because a scan read column by column has it far from its line.
    """
    held = failed = quantity = lines = 0
    printed = set(book.pool)
    for row in book.rows:
        for match in (*QUANTITY_TIMES_PRICE.finditer(row), *PRICE_TIMES_QUANTITY.finditer(row)):
            count = int(match["qty"])
            price = float(match["price"].replace(",", "."))
            lines, quantity = lines + 1, quantity + count
            if any(abs(round(count * price * 100) - minor) <= 1 for minor in printed):
                held += 1
            elif printed:
                failed += 1
    return Products(held=held, failed=failed, quantity=quantity, lines=lines)


def columns_failed(book: MoneyBook) -> int:
    """Return how many goods break the form quantity, price, amount that the other goods keep."""
    held = failed = 0
    for counts, price, amounts in _priced_goods(book):
        if any(count * price in amounts for count in counts):
            held += 1
        else:
            failed += 1
    return failed if held >= max(FORM_SHOWN_BY, failed) else 0


def _priced_goods(book: MoneyBook) -> Iterator[tuple[list[int], int, list[int]]]:
    """Yield (possible quantities, price, amounts after it) of goods that show all of these."""
    by_row: dict[int, list[Entry]] = {}
    for entry in book.entries:
        if entry.row < book.first_sum_row and entry.kind == LabelKind.OTHER and entry.minor > 0:
            by_row.setdefault(entry.row, []).append(entry)
    if all(len(entries) == 1 for entries in by_row.values()):
        yield from _stacked_goods(book, by_row)
        return
    for row, entries in by_row.items():
        counts = [int(count) for count in QUANTITY.findall(book.rows[row]) if int(count) > 0]
        if len(entries) > 1 and counts and all(entry.exact for entry in entries):
            yield counts, entries[0].minor, [entry.minor for entry in entries[1:]]


def _stacked_goods(
    book: MoneyBook, by_row: dict[int, list[Entry]]
) -> Iterator[tuple[list[int], int, list[int]]]:
    """Yield goods whose quantity, price and amounts stand in rows right below each other."""
    for row, entries in by_row.items():
        above = book.rows[row - 1].strip() if row > 0 else ""
        after = [by_row[below][0].minor for below in _unbroken(row + 1, by_row)]
        if after and re.fullmatch(r"\d{1,3}", above) and int(above) > 0:
            yield [int(above)], entries[0].minor, after


def _unbroken(row: int, by_row: dict[int, list[Entry]]) -> Iterator[int]:
    while row in by_row:
        yield row
        row += 1


def table_rates_failed(book: MoneyBook) -> int:
    """Return how many rows of a tax table hold a tax that is not the row's rate of its base."""
    rows: dict[int, list[int]] = {}
    for entry in book.entries:
        if entry.in_summary and entry.exact and entry.row >= book.first_sum_row:
            rows.setdefault(entry.row, []).append(entry.minor)
    return sum(
        len(amounts) == 2 and amounts[0] > amounts[1] > 0 and _off_rate(amounts, _rates_of(book.rows[row]))
        for row, amounts in rows.items()
    )


def _rates_of(row: str) -> list[int]:
    return [int(rate) for rate in RATE.findall(row)]


def _off_rate(amounts: Sequence[int], rates: Sequence[int]) -> bool:
    base, tax = amounts
    return bool(rates) and all(abs(base * rate / 100 - tax) > TAX_SLACK_MINOR for rate in rates)


def cash_short(book: MoneyBook, totals: Sequence[int]) -> bool:
    """Tell whether all that was given, with change given back, is less than the total."""
    given = [abs(minor) for minor in book.minors(LabelKind.CASH)]
    back = [abs(minor) for minor in book.minors(LabelKind.CHANGE)]
    return bool(given and any(back) and totals) and sum(given) < min(totals)
