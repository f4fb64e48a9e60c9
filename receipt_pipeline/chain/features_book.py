"""The money book of a reading: every printed amount with its row and what its label calls it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from receipt_pipeline.chain.extract_amounts import AmountContext, decimal_mark_of
from receipt_pipeline.chain.extract_labels import LabelKind, fold_label, kind_of_label
from receipt_pipeline.chain.extract_rows import Row, build_rows
from receipt_pipeline.chain.extract_totals import TOTAL_KINDS, LabelledAmount, label_amounts
from receipt_pipeline.chain.values import Reading, ReceiptFields, TextLine
from receipt_pipeline.core.money import minor_digits

SUM_KINDS = TOTAL_KINDS | {
    LabelKind.SUBTOTAL,
    LabelKind.TAX,
    LabelKind.SERVICE,
    LabelKind.DISCOUNT,
    LabelKind.ROUNDING,
    LabelKind.CASH,
    LabelKind.CHANGE,
}
LOOSE_KINDS = TOTAL_KINDS | {LabelKind.SUBTOTAL, LabelKind.CHANGE}
LOOSE_LABELS = 2
HEADING = re.compile(r"DESC|QTY|PRICE|ITEM")
WORDS = re.compile(r"[^\W\d_]{3}")
DECIMALS = re.compile(r"\d[.,]\d\d")


@dataclass(frozen=True, slots=True)
class Entry:
    """One printed amount in minor units, with its row, label and the line it stands on.

    `in_summary` tells that it stands in a table of taxes. `exact` tells that its decimals are
    printed, or that its currency has none; `marked_whole` that a mark stands beside a bare number.
    `borrowed` tells that it stands alone in the row next to its label.
    """

    minor: int
    kind: LabelKind
    row: int
    line: TextLine
    currency: str | None
    in_summary: bool
    exact: bool
    marked_whole: bool
    borrowed: bool


@dataclass(frozen=True, slots=True)
class MoneyBook:
    """All amounts of one reading in reading order, and its rows' texts in upper case."""

    entries: tuple[Entry, ...]
    rows: tuple[str, ...]

    def minors(self, *kinds: LabelKind) -> list[int]:
        """Return the amounts under these labels outside of tax tables, in reading order."""
        return [
            entry.minor
            for entry in self.entries
            if entry.kind in kinds and entry.exact and not entry.in_summary
        ]

    @property
    def pool(self) -> list[int]:
        """Return every exact amount, in reading order."""
        return [entry.minor for entry in self.entries if entry.exact]

    @property
    def first_sum_row(self) -> int:
        """Return the first row that is labelled as a subtotal or total; the number of rows without one."""
        wanted = TOTAL_KINDS | {LabelKind.SUBTOTAL}
        labelled = [entry.row for entry in self.entries if entry.kind in wanted]
        return min(labelled, default=len(self.rows))

    @property
    def tail(self) -> list[int]:
        """Return the exact amounts from the first subtotal or total on."""
        return [entry.minor for entry in self.entries if entry.row >= self.first_sum_row and entry.exact]

    @property
    def loose(self) -> bool:
        """Tell whether several labels of sums stand without an amount, so that others are unlabelled."""
        with_amount = {entry.row for entry in self.entries}
        bare = [row for at, row in enumerate(self.rows) if at not in with_amount]
        named = (kind_of_label(row) for row in bare if not HEADING.search(row))
        return sum(kind in LOOSE_KINDS for kind in named) >= LOOSE_LABELS

    def names(self, kind: LabelKind) -> bool:
        """Tell whether any row or amount is labelled so, with an amount beside it or not."""
        return any(entry.kind == kind for entry in self.entries) or any(
            kind_of_label(row) == kind for row in self.rows
        )


def keep_book(reading: Reading, fields: ReceiptFields) -> MoneyBook:
    """Enter every printed amount of the reading under its label.

    A scan read column by column gives a block of labels and then a block of amounts; where both
    are equally long they belong together in order.
    """
    rows = build_rows(reading)
    texts = [row.text for row in rows]
    context = AmountContext(decimal_mark_of(texts), fields.currency, None)
    entries = [_entry(item, rows[item.row]) for item in label_amounts(rows, context)]
    book = MoneyBook(_without_lenders(entries), tuple(fold_label(text, keep_marks=True) for text in texts))
    return _with_columns_joined(book)


def _entry(item: LabelledAmount, row: Row) -> Entry:
    found = item.found
    line = next((cell for cell in row.cells if found.printed in cell.text), None)
    return Entry(
        minor=found.minor,
        kind=item.kind,
        row=item.row,
        line=line or row.cells[-1],
        currency=found.currency if found.marked else None,
        in_summary=item.in_summary,
        exact=found.has_cents or (found.marked and minor_digits(found.currency) == 0),
        marked_whole=found.marked and not found.has_cents and minor_digits(found.currency) > 0,
        borrowed=line is None,
    )


def _without_lenders(entries: list[Entry]) -> tuple[Entry, ...]:
    """Keep one entry of each amount that a label borrowed from a row beside its own.

    From the row below, the label's entry stays; from the row above, the row's own, because an
    amount above a label mostly closes the block before.
    """
    bare = {(entry.row, entry.minor): at for at, entry in enumerate(entries) if not entry.borrowed}
    dropped: set[int] = set()
    for at, entry in enumerate(entries):
        if entry.borrowed and (entry.row + 1, entry.minor) in bare:
            dropped.add(bare[entry.row + 1, entry.minor])
        elif entry.borrowed and (entry.row - 1, entry.minor) in bare:
            dropped.add(at)
    return tuple(entry for at, entry in enumerate(entries) if at not in dropped)


def _with_columns_joined(book: MoneyBook) -> MoneyBook:
    """Give the amounts of an unlabelled block the labels of the block before it, in order."""
    joined: dict[int, LabelKind] = {}
    entries = list(book.entries)
    for labels, amounts in _column_blocks(book.rows, entries):
        if len(labels) == len(amounts) > 1:
            joined.update(zip(amounts, labels, strict=True))
    relabelled = (
        replace(entry, kind=joined[at], in_summary=False) if at in joined else entry
        for at, entry in enumerate(entries)
    )
    return MoneyBook(tuple(relabelled), book.rows)


def _column_blocks(rows: Sequence[str], entries: Sequence[Entry]) -> list[tuple[list[LabelKind], list[int]]]:
    """Return blocks of consecutive sum labels, each with the positions of the bare amounts after it."""
    places: dict[int, list[int]] = {}
    for at, entry in enumerate(entries):
        # What the last label of a block borrowed is the first amount of the block of amounts.
        places.setdefault(entry.row + entry.borrowed, []).append(at)
    blocks: list[tuple[list[LabelKind], list[int]]] = []
    labels: list[LabelKind] = []
    amounts: list[int] = []
    for number, row in enumerate(rows):
        if labels and number in places and not WORDS.search(row):
            amounts += places[number]
            continue
        if amounts:
            blocks.append((labels, amounts))
            labels, amounts = [], []
        kind = kind_of_label(row)
        labels = [*labels, kind] if kind in SUM_KINDS and not DECIMALS.search(row) else []
    if amounts:
        blocks.append((labels, amounts))
    return blocks
