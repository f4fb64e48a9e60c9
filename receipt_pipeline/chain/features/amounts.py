"""Every printed amount of a receipt, with its row and what its label calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from receipt_pipeline.chain.extract.amounts import AmountContext, decimal_mark_of, normalized_digits
from receipt_pipeline.chain.extract.labels import LabelKind, fold_label, kind_of_label, names_tax_column
from receipt_pipeline.chain.extract.rows import Row, build_rows
from receipt_pipeline.chain.extract.totals import TOTAL_KINDS, LabeledAmount, label_amounts
from receipt_pipeline.chain.values import PageText, ReceiptFields, TextLine
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
    """One printed amount in minor units, with its row, label and its text line.

    `in_summary` means that it is in a table of taxes. `exact` means that its decimals are
    printed, or that its currency has none; `marked_whole` that a mark is next to a bare number.
    `borrowed` means that it is alone in the row next to its label.
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
class PrintedAmounts:
    """All amounts of one receipt in reading order, and its rows' texts in upper case."""

    entries: tuple[Entry, ...]
    rows: tuple[str, ...]

    def minors(self, *kinds: LabelKind) -> list[int]:
        """Return the amounts under these labels outside of tax tables, in reading order."""
        return [entry.minor for entry in self.entries if entry.kind in kinds and entry.exact and not entry.in_summary]

    @property
    def pool(self) -> list[int]:
        """Return every exact amount, in reading order."""
        return [entry.minor for entry in self.entries if entry.exact]

    @property
    def first_sum_row(self) -> int:
        """Return the first row that is labeled as a subtotal or total; the number of rows without one."""
        wanted = TOTAL_KINDS | {LabelKind.SUBTOTAL}
        labeled = [entry.row for entry in self.entries if entry.kind in wanted]
        return min(labeled, default=len(self.rows))

    @property
    def tail(self) -> list[int]:
        """Return the exact amounts from the first subtotal or total on."""
        return [entry.minor for entry in self.entries if entry.row >= self.first_sum_row and entry.exact]

    @property
    def loose(self) -> bool:
        """Report whether several labels of sums have no amount, so that others are unlabeled."""
        with_amount = {entry.row for entry in self.entries}
        bare = [row for at, row in enumerate(self.rows) if at not in with_amount]
        named = (kind_of_label(row) for row in bare if not HEADING.search(row))
        return sum(kind in LOOSE_KINDS for kind in named) >= LOOSE_LABELS

    def names(self, kind: LabelKind) -> bool:
        """Report whether any row or amount is labeled so, with an amount next to it or not."""
        return any(entry.kind == kind for entry in self.entries) or any(kind_of_label(row) == kind for row in self.rows)


def collect_amounts(page_text: PageText, fields: ReceiptFields) -> PrintedAmounts:
    """Enter every printed amount of the receipt under its label.

    A scan read column by column gives a block of labels and then a block of amounts; where both
    are equally long they belong together in order.
    """
    rows = build_rows(page_text)
    texts = [row.text for row in rows]
    context = AmountContext(decimal_mark_of(texts), fields.currency, None)
    # The risk model was fitted to amounts that are found this way.
    labeled = label_amounts(rows, context, normalized=normalized_digits, opens_summary=names_tax_column)
    entries = [_entry(item, rows[item.row]) for item in labeled]
    amounts = PrintedAmounts(_without_lenders(entries), tuple(fold_label(text, keep_marks=True) for text in texts))
    return _with_columns_joined(amounts)


def _entry(item: LabeledAmount, row: Row) -> Entry:
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
    """Keep one entry of each amount that a label borrowed from a row next to its own.

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


def _with_columns_joined(amounts: PrintedAmounts) -> PrintedAmounts:
    """Give the amounts of an unlabeled block the labels of the block before it, in order."""
    joined: dict[int, LabelKind] = {}
    entries = list(amounts.entries)
    for labels, places in _column_blocks(amounts.rows, entries):
        if len(labels) == len(places) > 1:
            joined.update(zip(places, labels, strict=True))
    relabelled = (
        replace(entry, kind=joined[at], in_summary=False) if at in joined else entry for at, entry in enumerate(entries)
    )
    return PrintedAmounts(tuple(relabelled), amounts.rows)


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


# Codes of a tax that shops print after an amount.
_TAX_CODE = r"(?:SR0?|ES|ZRL?|S|Z|T|N|SVC)"
NUMBER = re.compile(
    r"(?<![\d.,:/])(?P<before>-|\()? ?(?P<mark>RM|[$€£])? ?(?P<inner>-)?"
    r"(?P<whole>\d{1,3}(?:,\d{3})+|\d+)?(?:\.(?P<decimals>\d{1,4}))?(?![\d:/]|[.,]\d| ?: ?\d)"
)
PERCENT = re.compile(r" ?%")
# Behind an amount that ends its row: a tax code, a mark, a currency.
ROW_ENDS = re.compile(r"\s*[A-Z*#)]{0,3}\d?[*)]?\s*(?:[A-Z]{2,3}|[*€£])?\s*$")
UNIT = re.compile(rf"(?!(?:{_TAX_CODE}|EUR)\b|X ?\d)[A-Z]")
WORDLESS = re.compile(rf"^(?:RM|[\s\d.,$€£()*X@+-])*{_TAX_CODE}?[\s*]*$")
WHOLE_DIGITS_MAX = 7
PIECES_DIGITS_MAX = 4
WEIGHT_DECIMALS = 3
_EXCHANGED = str.maketrans(".,", ",.")


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """One printed number.

    `row` and `at` (characters) say where it is. `value_e4` is its value in ten-thousandths, with
    its sign; `decimals` how many are printed, 0 also where a unit of measure follows. `pieces_e3` is the
    quantity that it may be, in thousandths, or 0. `closes` means that nothing but a code or mark follows
    in its row, `wordless` that the row has no words.
    """

    row: int
    at: int
    value_e4: int
    decimals: int
    pieces_e3: int
    closes: bool
    wordless: bool

    @property
    def minor(self) -> int:
        """Return the value in minor units of a currency with two decimals."""
        return round(self.value_e4 / 100)

    @property
    def is_amount(self) -> bool:
        """Report whether it is printed as an amount other than zero."""
        return self.decimals == 2 and self.value_e4 != 0


def with_points(rows: Sequence[str]) -> tuple[str, ...]:
    """Return the rows with points before decimals, where the receipt prints commas there."""
    commas = decimal_mark_of(rows) == ","
    return tuple(row.translate(_EXCHANGED) for row in rows) if commas else tuple(rows)


def printed_numbers(rows: Sequence[str]) -> tuple[PrintedNumber, ...]:
    """Return the numbers of rows in capitals with points before decimals, in reading order."""
    return tuple(number for at, row in enumerate(rows) for number in _numbers_of(row, at))


def _numbers_of(row: str, number: int) -> Iterator[PrintedNumber]:
    wordless = WORDLESS.match(row) is not None
    for match in NUMBER.finditer(row):
        whole, decimals = (match["whole"] or "").replace(",", ""), match["decimals"] or ""
        after = row[match.end() :]
        printed = whole or len(decimals) == 2
        if not printed or len(whole) > WHOLE_DIGITS_MAX or PERCENT.match(after):
            continue
        value_e4 = int(whole or "0") * 10_000 + int(decimals.ljust(4, "0"))
        amount = len(decimals) == 2 and UNIT.match(after) is None
        yield PrintedNumber(
            row=number,
            at=match.start(),
            value_e4=-value_e4 if _is_minus(row, match) else value_e4,
            decimals=len(decimals) if amount or len(decimals) != 2 else 0,
            pieces_e3=value_e4 // 10 if _may_be_pieces(row, match) else 0,
            closes=amount and ROW_ENDS.fullmatch(after) is not None,
            wordless=wordless,
        )


def _is_minus(row: str, match: re.Match[str]) -> bool:
    """Distinguish a minus or a pair of brackets from a hyphen within a word."""
    before = row[match.start() - 1] if match.start() else " "
    enclosed = match["before"] == "(" and row[match.end() : match.end() + 1] == ")"
    return bool(match["before"] or match["inner"]) and (before in " :" or enclosed)


def _may_be_pieces(row: str, match: re.Match[str]) -> bool:
    """Report whether a number may be how many were sold: small and whole, by itself, or a weight."""
    decimals = match["decimals"] or ""
    if len(decimals) == WEIGHT_DECIMALS:
        return True
    before = row[match.start() - 1] if match.start() else " "
    touched = (before.isalnum() and before != "X") or before in "#/" or match["mark"]
    whole = not decimals.strip("0") and len(match["whole"] or "") <= PIECES_DIGITS_MAX
    return whole and not touched and row[match.end() : match.end() + 1] in ("", *" X*@)U")
