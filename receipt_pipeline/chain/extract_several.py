"""Stage extract, pages part: tells whether more than one shop receipt is in a file or in a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from receipt_pipeline.chain.extract_dates import FoundDate
from receipt_pipeline.chain.extract_labels import LabelKind
from receipt_pipeline.chain.extract_rows import Row
from receipt_pipeline.chain.extract_totals import TOTAL_KINDS, LabelledAmount
from receipt_pipeline.chain.values import Reading, TextLine

_PAGE_OF = re.compile(
    r"\b(?:PAGE|SEITE|PAGINA|HALAMAN|S\.?)\s*:?\s*\d+\s*(?:/|OF|VON|DE)\s*\d+", re.IGNORECASE
)
# Between two receipts in a picture there is more room than between the words of one line.
GUTTER_HEIGHTS_MIN = 1.5
# A receipt beside another has this many lines of words of its own; a column of amounts has none.
WORDED_LINES_MIN = 4
_WORD = re.compile(r"[^\W\d_]{3}|[\u3400-\u9fff]{2}")


def columns_beside(reading: Reading) -> tuple[Reading, ...]:
    """Return the columns of a page that no line crosses, each with words of its own; empty for one column.

    A column of amounts beside its labels has no words and is no column here.
    """
    for page in range(len(reading.page_sizes)):
        lines = sorted((line for line in reading.lines if line.page == page), key=lambda line: line.box[0])
        for cut in _gutters(lines):
            sides = lines[:cut], lines[cut:]
            if all(sum(1 for line in side if _WORD.search(line.text)) >= WORDED_LINES_MIN for side in sides):
                return tuple(_column(reading, side) for side in sides)
    return ()


def _gutters(lines: Sequence[TextLine]) -> list[int]:
    """Return at which of the lines, ordered by their left edge, a stretch without any line ends."""
    if not lines:
        return []
    room = GUTTER_HEIGHTS_MIN * median(line.box[3] - line.box[1] for line in lines)
    cuts, right = [], lines[0].box[2]
    for index, line in enumerate(lines):
        if line.box[0] - right >= room:
            cuts.append(index)
        right = max(right, line.box[2])
    return cuts


def _column(reading: Reading, lines: Sequence[TextLine]) -> Reading:
    kept = set(lines)
    return Reading(tuple(line for line in reading.lines if line in kept), reading.page_sizes)


def holds_several_receipts(
    rows: Sequence[Row], labelled: Sequence[LabelledAmount], dates: Sequence[FoundDate]
) -> bool:
    """Tell whether the rows are of several receipts: on pages of their own, or one above the other.

    Pages that carry a sum over, or count themselves, are one receipt.
    """
    if any(item.kind == LabelKind.CARRY for item in labelled) or any(
        _PAGE_OF.search(row.text) for row in rows
    ):
        return False
    totals = [item for item in labelled if item.kind in TOTAL_KINDS and not item.in_summary]
    return _on_several_pages(rows, totals, dates) or _stacked(rows, totals, labelled, dates)


def _on_several_pages(
    rows: Sequence[Row], totals: Sequence[LabelledAmount], dates: Sequence[FoundDate]
) -> bool:
    """Tell whether two pages each close with a total and differ in total or day."""
    seen: list[tuple[int, frozenset[str]]] = []
    for page in sorted({row.page for row in rows}):
        sums = [item.found.minor for item in totals if rows[item.row].page == page]
        if sums:
            days = frozenset(date.printed for date in dates if rows[date.row].page == page)
            seen.append((sums[-1], days))
    return any(one[0] != two[0] or (one[1] and two[1] and not one[1] & two[1]) for one, two in pairwise(seen))


def _stacked(
    rows: Sequence[Row],
    totals: Sequence[LabelledAmount],
    labelled: Sequence[LabelledAmount],
    dates: Sequence[FoundDate],
) -> bool:
    """Tell whether after a total, on the same page, a head with a date, items and another total follow."""
    for upper, lower in pairwise(totals):
        if rows[upper.row].page != rows[lower.row].page or upper.found.minor == lower.found.minor:
            continue
        before = {date.printed for date in dates if date.row < upper.row}
        between = [date for date in dates if upper.row < date.row < lower.row]
        if not before or not between:
            continue
        items = sum(
            item.found.minor
            for item in labelled
            if between[0].row < item.row < lower.row and item.kind == LabelKind.OTHER
        )
        if items == lower.found.minor or (items and not before & {date.printed for date in between}):
            return True
    return False
