"""The fields of a shop receipt, found in its text lines by fixed rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from receipt_pipeline.chain.extract.amounts import AmountContext, decimal_mark_of, with_dollar_marks
from receipt_pipeline.chain.extract.currency import (
    DOLLAR,
    CountryHint,
    day_comes_first,
    dollar_currency,
    hinted_countries,
    marks_in,
    stated_currency,
)
from receipt_pipeline.chain.extract.dates import FoundDate, choose_date, find_dates
from receipt_pipeline.chain.extract.labels import LabelKind, fold_label, prints_yuan
from receipt_pipeline.chain.extract.merchant import find_header
from receipt_pipeline.chain.extract.rows import Row, build_rows
from receipt_pipeline.chain.extract.totals import (
    TOTAL_KINDS,
    LabeledAmount,
    apply_handwritten_tip,
    as_read_amount,
    choose_total,
    label_amounts,
    last_of_kind,
)
from receipt_pipeline.chain.values import PageText, ReadAmount, ReceiptFields, TextLine


def extract_fields(page_text: PageText) -> ReceiptFields:
    """Return the fields of the receipt; pure and deterministic, nothing is guessed by default.

    Amounts are integer minor units with the currency that the receipt states, dates ISO where their
    order is certain; both keep the print next to the value.
    """
    marked = _with_marks(page_text)
    fields = _fields_of(marked)
    if not fields.several_receipts and _are_side_by_side(marked):
        return replace(fields, several_receipts=True)
    return fields


def _with_marks(page_text: PageText) -> PageText:
    return replace(page_text, lines=with_dollar_marks(page_text.lines))


def _fields_of(page_text: PageText) -> ReceiptFields:
    rows = build_rows(page_text)
    if not rows:
        return ReceiptFields()
    texts = [row.text for row in rows]
    hints = hinted_countries("\n".join(texts))
    dollar = dollar_currency(hints)
    context = _context_of(texts, hints, dollar)
    labeled = label_amounts(rows, context)
    total = choose_total(labeled)
    currency = _currency_of_total(rows, total, context) or context.currency
    if currency != context.currency:
        context = replace(context, currency=currency)
        labeled = label_amounts(rows, context)
        total = choose_total(labeled)
    dates = find_dates(rows)
    merchant, address = find_header(rows)
    tip = _field(labeled, LabelKind.TIP)
    total_amount, tip = apply_handwritten_tip(rows, labeled, total, tip)
    return ReceiptFields(
        merchant=merchant,
        address=address,
        date=choose_date(dates, country_day_first=day_comes_first(currency, hints)),
        total=total_amount,
        currency=currency,
        subtotal=_field(labeled, LabelKind.SUBTOTAL),
        tax=_field(labeled, LabelKind.TAX),
        rounding=_field(labeled, LabelKind.ROUNDING),
        cash=_field(labeled, LabelKind.CASH),
        change=_field(labeled, LabelKind.CHANGE),
        tip=tip,
        line_amounts=_line_amounts(labeled),
        several_receipts=holds_several_receipts(rows, labeled, dates),
        payment=payment_methods(rows, labeled),
    )


def _are_side_by_side(page_text: PageText) -> bool:
    """Report whether two columns of a page are receipts: each with a total, and a day or cash."""
    columns = [_fields_of(_with_marks(column)) for column in split_columns(page_text)]
    return len(columns) > 1 and all(
        column.total is not None and (column.date is not None or column.cash is not None) for column in columns
    )


def _context_of(texts: Sequence[str], hints: Sequence[CountryHint], dollar: str | None) -> AmountContext:
    """Return what the whole receipt says about its amounts."""
    yen = "CNY" if prints_yuan(texts) else "JPY"
    stated = stated_currency(texts, hints)
    currency = yen if stated == "JPY" else stated
    return AmountContext(decimal_mark_of(texts), currency, dollar, yen)


def _currency_of_total(rows: Sequence[Row], total: LabeledAmount | None, context: AmountContext) -> str | None:
    """Return the one currency marked in the total's own row."""
    if total is None:
        return None
    meant = {DOLLAR: context.dollar, "JPY": context.yen}
    marks = {meant.get(mark, mark) for mark in marks_in(rows[total.row].text)}
    return marks.pop() if len(marks) == 1 else None


def _field(labeled: Sequence[LabeledAmount], kind: LabelKind) -> ReadAmount | None:
    item = last_of_kind(labeled, kind)
    return None if item is None else as_read_amount(item)


def _line_amounts(labeled: Sequence[LabeledAmount]) -> tuple[ReadAmount, ...]:
    """Return the rightmost unlabeled amount of each row above the first sum."""
    sums = [item.row for item in labeled if item.kind in TOTAL_KINDS or item.kind == LabelKind.SUBTOTAL]
    first_sum = min(sums, default=None)
    cents_are_printed = any(item.found.has_cents for item in labeled)
    rightmost: dict[int, LabeledAmount] = {}
    for item in labeled:
        above = first_sum is None or item.row < first_sum
        is_price_each = item.label.startswith("@")
        plausible = item.found.has_cents or not cents_are_printed
        if item.kind == LabelKind.OTHER and above and plausible and not item.in_summary and not is_price_each:
            rightmost[item.row] = item
    return tuple(as_read_amount(item) for item in rightmost.values())


_PAGE_OF = re.compile(r"\b(?:PAGE|SEITE|PAGINA|HALAMAN|S\.?)\s*:?\s*\d+\s*(?:/|OF|VON|DE)\s*\d+", re.IGNORECASE)
# Between two receipts in a picture there is more space than between the words of one line.
GUTTER_HEIGHTS_MIN = 1.5
# A receipt next to another has this many lines with words; a column of amounts has none.
WORDED_LINES_MIN = 4
_WORD = re.compile(r"[^\W\d_]{3}|[\u3400-\u9fff]{2}")


def split_columns(page_text: PageText) -> tuple[PageText, ...]:
    """Return the columns of a page that no line crosses, each with words; empty for one column.

    A column of amounts next to its labels has no words and is no column here.
    """
    for page in range(len(page_text.page_sizes)):
        lines = sorted((line for line in page_text.lines if line.page == page), key=lambda line: line.box[0])
        for cut in _gutters(lines):
            sides = lines[:cut], lines[cut:]
            if all(sum(1 for line in side if _WORD.search(line.text)) >= WORDED_LINES_MIN for side in sides):
                return tuple(_column(page_text, side) for side in sides)
    return ()


def _gutters(lines: Sequence[TextLine]) -> list[int]:
    """Return at which of the lines, ordered by their left edge, a stretch without any line ends."""
    if not lines:
        return []
    space = GUTTER_HEIGHTS_MIN * median(line.box[3] - line.box[1] for line in lines)
    cuts, right = [], lines[0].box[2]
    for index, line in enumerate(lines):
        if line.box[0] - right >= space:
            cuts.append(index)
        right = max(right, line.box[2])
    return cuts


def _column(page_text: PageText, lines: Sequence[TextLine]) -> PageText:
    kept = set(lines)
    return PageText(tuple(line for line in page_text.lines if line in kept), page_text.page_sizes)


def holds_several_receipts(rows: Sequence[Row], labeled: Sequence[LabeledAmount], dates: Sequence[FoundDate]) -> bool:
    """Report whether the rows are of several receipts: on pages of their own, or one above the other.

    Pages that bring a sum forward, or count themselves, are one receipt.
    """
    if any(item.kind == LabelKind.CARRY for item in labeled) or any(_PAGE_OF.search(row.text) for row in rows):
        return False
    totals = [item for item in labeled if item.kind in TOTAL_KINDS and not item.in_summary]
    return _on_several_pages(rows, totals, dates) or _stacked(rows, totals, labeled, dates)


def _on_several_pages(rows: Sequence[Row], totals: Sequence[LabeledAmount], dates: Sequence[FoundDate]) -> bool:
    """Report whether two pages each close with a total and differ in total or day."""
    seen: list[tuple[int, frozenset[str]]] = []
    for page in sorted({row.page for row in rows}):
        sums = [item.found.minor for item in totals if rows[item.row].page == page]
        if sums:
            days = frozenset(date.printed for date in dates if rows[date.row].page == page)
            seen.append((sums[-1], days))
    return any(one[0] != two[0] or (one[1] and two[1] and not one[1] & two[1]) for one, two in pairwise(seen))


def _stacked(
    rows: Sequence[Row], totals: Sequence[LabeledAmount], labeled: Sequence[LabeledAmount], dates: Sequence[FoundDate]
) -> bool:
    """Report whether after a total, on the same page, a head with a date, items and another total follow."""
    for upper, lower in pairwise(totals):
        if rows[upper.row].page != rows[lower.row].page or upper.found.minor == lower.found.minor:
            continue
        before = {date.printed for date in dates if date.row < upper.row}
        between = [date for date in dates if upper.row < date.row < lower.row]
        if not before or not between:
            continue
        items = sum(
            item.found.minor
            for item in labeled
            if between[0].row < item.row < lower.row and item.kind == LabelKind.OTHER
        )
        if items == lower.found.minor or (items and not before & {date.printed for date in between}):
            return True
    return False


# The first line that fits names the method: a cash card is a card, a gift card a voucher.
_METHODS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("voucher", re.compile(r"\b(?:\w*VOUCHERS?|GIFT ?CARD|GUTSCHEIN\w*|BAUCAR)\b")),
    ("wallet", re.compile(r"\b(?:E ?WALLETS?|GRAB ?PAY|APPLE ?PAY|GOOGLE ?PAY|ALIPAY|WECHAT|PAYPAL|TOUCH N GO)\b")),
    ("cheque", re.compile(r"\b(?:CHEQUE|CHECK NO|CEK)\b")),
    ("transfer", re.compile(r"\b(?:BANK TRANSFER|TRANSFER|UEBERWEISUNG|UBERWEISUNG|LASTSCHRIFT)\b")),
    (
        "card",
        re.compile(
            r"\b(?:\w*CARDS?|VISA|MASTER\w*|MAESTRO|AMEX|DEBIT|CREDIT|CB|EFTPOS|\w*KORT|\w*KARTE|GIROCARD"
            r"|EC CASH|VPAY|UNIONPAY)\b"
        ),
    ),
    ("cash", re.compile(r"\b(?:CASH|TUNAI|BAR|BARGELD|ESPECES|EFECTIVO|CONTANTI|CONTANT|GOTOWKA|KONTANT)\b")),
)
_SAYS_HOW = re.compile(
    r"\b(?:PAYMENT|PAID|PAY) ?(?:TYPE|MODE|METHOD|BY|VIA)\b|\bTENDER TYPE\b|\bZAHLUNGSART\b|\bCARA BAYARAN\b"
)


def payment_methods(rows: Sequence[Row], labeled: Sequence[LabeledAmount]) -> tuple[str, ...]:
    """Return the methods in the order of their print: cash, card, voucher, wallet, cheque, transfer."""
    totals = [item.row for item in labeled if item.kind in TOTAL_KINDS]
    last_total = max(totals, default=len(rows))
    # Below the total also a label that names no more than its method is a payment.
    paid_rows = {
        item.row
        for item in labeled
        if item.found.minor != 0
        and (item.kind == LabelKind.CASH or (item.kind == LabelKind.OTHER and item.row > last_total))
    }
    found: list[str] = []
    for index, row in enumerate(rows):
        label = fold_label(row.text)
        if index not in paid_rows and not _SAYS_HOW.search(label):
            continue
        method = next((name for name, pattern in _METHODS if pattern.search(label)), None)
        if method is not None and method not in found:
            found.append(method)
    return tuple(found)
