"""Stage extract, pages part: tells whether more than one shop receipt is in a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from receipt_pipeline.chain.extract_dates import FoundDate
from receipt_pipeline.chain.extract_labels import LabelKind
from receipt_pipeline.chain.extract_rows import Row
from receipt_pipeline.chain.extract_totals import TOTAL_KINDS, LabelledAmount

_PAGE_OF = re.compile(
    r"\b(?:PAGE|SEITE|PAGINA|HALAMAN|S\.?)\s*:?\s*\d+\s*(?:/|OF|VON|DE)\s*\d+", re.IGNORECASE
)


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
