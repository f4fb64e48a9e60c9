"""Every amount gets its label, and the labels decide which one is the total."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from receipt_pipeline.chain.extract.amounts import (
    PRINTED_WHOLE,
    AmountContext,
    FoundAmount,
    find_amounts,
    normalized_digits,
)
from receipt_pipeline.chain.extract.labels import LabelKind, kind_of, kind_of_label, opens_tax_summary, parted
from receipt_pipeline.chain.extract.rows import Row
from receipt_pipeline.chain.values import ReadAmount
from receipt_pipeline.core.money import minor_digits

CELL_GAP = "  "
# Three digits: the least that an amount with cents shows when its mark is lost.
LOST_MARK_MINOR_MIN = 100_00
TOTAL_KINDS = frozenset({LabelKind.GRAND_TOTAL, LabelKind.TOTAL, LabelKind.TOTAL_BY_PART})
_KIND_SCORE = {LabelKind.GRAND_TOTAL: 5.0, LabelKind.TOTAL: 4.5, LabelKind.ROUNDING: 4.4, LabelKind.TOTAL_BY_PART: 3.5}
_IN_SUMMARY, _PAID_EXACTLY, _PAID_LESS_CHANGE, _ROUNDED, _ZERO = -4.0, 1.0, 3.0, 2.0, -3.0
_LATER_ROW = 0.01
_AGREEMENT = 0.3
# Labels that also take an amount that is broken or is next to their row.
_BORROWING = TOTAL_KINDS | {LabelKind.ROUNDING, LabelKind.CASH, LabelKind.CHANGE}
# Words that close a table of taxes because they belong to the payment.
_CLOSING = frozenset({LabelKind.GRAND_TOTAL, LabelKind.CASH, LabelKind.CHANGE, LabelKind.ROUNDING})
_BROKEN_CENTS = re.compile(r"(?<![\d.,-])(\d+)(?: ?[.,-] ?| )(\d{2})(?=\s*$)")


@dataclass(frozen=True, slots=True)
class LabeledAmount:
    """One amount with what its label says; `row` counts rows of the receipt, `confidence` is the reader's."""

    kind: LabelKind
    found: FoundAmount
    row: int
    confidence: float
    in_summary: bool
    label: str


def normalized_row(text: str) -> str:
    """Return a row's text with repaired digits, and with blanks between them and East Asian signs."""
    return parted(normalized_digits(text))


def label_amounts(
    rows: Sequence[Row],
    context: AmountContext,
    *,
    normalized: Callable[[str], str] = normalized_row,
    opens_summary: Callable[[str], bool] = opens_tax_summary,
) -> list[LabeledAmount]:
    """Give every amount of the receipt its label: the words left of it, or of the row it belongs to.

    `normalized` repairs a row's text before amounts are searched in it, `opens_summary` decides which rows
    without amounts begin a table of taxes.
    """
    labeled: list[LabeledAmount] = []
    summary = _SummaryTable(opens_summary)
    pen_line = False
    for index, row in enumerate(rows):
        text = normalized(CELL_GAP.join(cell.text for cell in row.cells))
        amounts = [found for found in find_amounts(text, context) if _is_money(found)]
        label = kind_of(_words(text, amounts))
        summary.step(text, label, len(amounts))
        # Below an open tip line a sum without an amount is a line for the pen as well.
        pen_line = pen_line or (label == LabelKind.TIP and not amounts)
        if not amounts and not pen_line and label in _BORROWING:
            amounts = _adjacent_amounts(rows, index, text, context, whole=label in TOTAL_KINDS)
        for kind, words, found in _labels_of(text, amounts):
            labeled.append(LabeledAmount(kind, found, index, _confidence(row, found), summary.inside, words))
    return labeled


class _SummaryTable:
    """Follows the rows through a table of taxes: its head, its rows, and the row after it."""

    def __init__(self, opens_summary: Callable[[str], bool]) -> None:
        self._opens_summary = opens_summary
        self.inside = False
        self._rows_seen = 0

    def step(self, text: str, label: LabelKind, amounts: int) -> None:
        """Take the next row into account."""
        if amounts == 0 and self._opens_summary(text):
            self.inside, self._rows_seen = True, 0
        elif self.inside and (label in _CLOSING or (amounts == 0 and self._rows_seen > 0)):
            self.inside = False
        elif self.inside:
            self._rows_seen += amounts > 0


def choose_total(labeled: Sequence[LabeledAmount]) -> LabeledAmount | None:
    """Choose the total among the amounts labeled so, by label and by what was paid and rounded.

    Cash, change, subtotals and sums brought forward are never candidates.
    """
    doubted = [_doubted_without_cents(item, labeled) for item in labeled if _can_be_total(item)]
    candidates = [_with_lost_mark(item, labeled) for item in doubted]
    if all(item.in_summary for item in candidates):
        return _paid_amount(labeled)
    scores = [_score(item, candidates, labeled) for item in candidates]
    best = max(range(len(candidates)), key=lambda index: (scores[index], candidates[index].row))
    return candidates[best]


def last_of_kind(labeled: Sequence[LabeledAmount], kind: LabelKind) -> LabeledAmount | None:
    """Return the last amount of a kind outside of tax tables; a rounding is always a small one."""
    fitting = [
        item
        for item in labeled
        if item.kind == kind and not item.in_summary and (kind != LabelKind.ROUNDING or _is_small(item.found))
    ]
    return fitting[-1] if fitting else None


def as_read_amount(item: LabeledAmount) -> ReadAmount:
    """Return the labeled amount as a field."""
    found = item.found
    return ReadAmount(found.printed, found.minor, found.currency, found.ambiguous, round(item.confidence, 4))


def _is_money(found: FoundAmount) -> bool:
    return found.has_cents or found.marked or found.ambiguous


def _is_small(found: FoundAmount) -> bool:
    return abs(found.minor) < int(10 ** minor_digits(found.currency))


def _can_be_total(item: LabeledAmount) -> bool:
    return item.kind in TOTAL_KINDS or (item.kind == LabelKind.ROUNDING and not _is_small(item.found))


def _score(item: LabeledAmount, candidates: Sequence[LabeledAmount], labeled: Sequence[LabeledAmount]) -> float:
    minor = item.found.minor
    cash = {abs(other.found.minor) for other in labeled if other.kind == LabelKind.CASH}
    change = {abs(other.found.minor) for other in labeled if other.kind == LabelKind.CHANGE}
    score = _KIND_SCORE[item.kind] + item.row * _LATER_ROW
    score += _IN_SUMMARY if item.in_summary else 0.0
    score += _ZERO if minor == 0 else 0.0
    score += _AGREEMENT * sum(1 for other in candidates if other.found.minor == minor and other is not item)
    if any(paid - back == abs(minor) for paid in cash for back in change):
        score += _PAID_LESS_CHANGE
    elif abs(minor) in cash:
        score += _PAID_EXACTLY
    roundings = {other.found.minor for other in labeled if other.kind == LabelKind.ROUNDING and other.found.minor}
    if any(minor - by == other.found.minor for by in roundings for other in candidates):
        score += _ROUNDED
    return score


def _with_lost_mark(item: LabeledAmount, labeled: Sequence[LabeledAmount]) -> LabeledAmount:
    """Give a total without its decimal mark ("600") the reading that another amount shows ("6.00")."""
    found = item.found
    if found.has_cents or not found.ambiguous or found.minor == 0:
        return item
    digits = re.sub(r"\D", "", found.printed)
    for other in labeled:
        if other.found.has_cents and re.sub(r"\D", "", other.found.printed) == digits:
            return replace(item, found=other.found)
    return item


def _doubted_without_cents(item: LabeledAmount, labeled: Sequence[LabeledAmount]) -> LabeledAmount:
    """Doubt a total of whole units among amounts with cents: its decimal mark may be lost ("RM2210")."""
    found = item.found
    if found.has_cents or abs(found.minor) < LOST_MARK_MINOR_MIN or found.currency in PRINTED_WHOLE:
        return item
    if not any(other.found.has_cents for other in labeled):
        return item
    return replace(item, found=replace(found, ambiguous=True))


def _paid_amount(labeled: Sequence[LabeledAmount]) -> LabeledAmount | None:
    """Return the printed amount that equals cash less change, where no label names a total."""
    cash = [item for item in labeled if item.kind == LabelKind.CASH]
    change = [item for item in labeled if item.kind == LabelKind.CHANGE]
    paid = {abs(given.found.minor) - abs(back.found.minor) for given in cash for back in change}
    fitting = [
        item
        for item in labeled
        if item.found.minor in paid and item.kind in (LabelKind.OTHER, LabelKind.SUBTOTAL, LabelKind.TAX)
    ]
    return fitting[-1] if fitting else None


def _labels_of(text: str, amounts: Sequence[FoundAmount]) -> Iterator[tuple[LabelKind, str, FoundAmount]]:
    """Yield each amount with the words since the amount before it; without words it inherits their kind."""
    begin, kind, words = 0, LabelKind.OTHER, ""
    for position, found in enumerate(amounts):
        own = text[begin : found.start]
        if re.search(r"[^\W\d_]{2}|%", own) or position == 0:
            words, kind = own.strip(), kind_of(own)
        # A label may also follow the only amount: "12.50 TOTAL".
        if kind == LabelKind.OTHER and len(amounts) == 1:
            trailing = kind_of(text[found.end :])
            kind = trailing if trailing in TOTAL_KINDS else kind
        yield kind, words, found
        begin = found.end


def _words(text: str, amounts: Sequence[FoundAmount]) -> str:
    return text[: amounts[0].start] if amounts else text


def _adjacent_amounts(
    rows: Sequence[Row], index: int, text: str, context: AmountContext, *, whole: bool
) -> list[FoundAmount]:
    """Return the amount of a labeled row that shows none: broken or whole in it, or alone next to it."""
    repaired = _BROKEN_CENTS.sub(r"\1.\2", text)
    broken = [found for found in find_amounts(repaired, context) if _is_money(found)]
    if broken:
        return [replace(broken[-1], start=min(broken[-1].start, len(text)), end=len(text))]
    for near in (index + 1, index - 1):
        if 0 <= near < len(rows) and rows[near].page == rows[index].page:
            alone = CELL_GAP.join(cell.text for cell in rows[near].cells)
            amounts = [found for found in find_amounts(alone, context) if _is_money(found)]
            gap = max(rows[near].top - rows[index].bottom, rows[index].top - rows[near].bottom)
            if len(amounts) == 1 and not re.search(r"[^\W\d_]{3}", alone) and gap < rows[index].height:
                return [replace(amounts[0], start=len(text), end=len(text))]
    # A whole number without cents or currency may have lost its decimal mark.
    last = [found for found in find_amounts(text, context) if whole and found.end == len(text)]
    return [replace(found, ambiguous=True) for found in last]


def _confidence(row: Row, found: FoundAmount) -> float:
    cells = [cell for cell in row.cells if found.printed in cell.text] or list(row.cells)
    return min(cell.confidence for cell in cells)


def apply_handwritten_tip(
    rows: Sequence[Row], labeled: Sequence[LabeledAmount], total: LabeledAmount | None, tip: ReadAmount | None
) -> tuple[ReadAmount | None, ReadAmount | None]:
    """Return total and tip after what is, or may be, on a tip line below the total.

    Where two amounts below fit as tip and new sum, they are taken; they came from a pen, so the total
    stays ambiguous. An open tip line alone also makes the printed total ambiguous.
    """
    if total is None:
        return None, tip
    read = as_read_amount(total)
    open_line = next(
        (
            index
            for index, row in enumerate(rows)
            if index > total.row
            and kind_of_label(row.text) == LabelKind.TIP
            and not any(item.row == index for item in labeled)
        ),
        None,
    )
    if open_line is None:
        return read, tip
    below = [item for item in labeled if item.row > total.row and item.kind == LabelKind.OTHER]
    for extra in below:
        for closing in below:
            if extra is not closing and total.found.minor + extra.found.minor == closing.found.minor:
                return replace(as_read_amount(closing), ambiguous=True), as_read_amount(extra)
    return replace(read, ambiguous=True), tip
