"""Stage extract: the fields of a shop receipt from the lines that were read, by fixed rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from receipt_pipeline.chain.extract_amounts import AmountContext, decimal_mark_of
from receipt_pipeline.chain.extract_cjk import prints_yuan
from receipt_pipeline.chain.extract_currency import (
    DOLLAR,
    CountryHint,
    day_comes_first,
    dollar_currency,
    hinted_countries,
    marks_in,
    stated_currency,
)
from receipt_pipeline.chain.extract_dates import choose_date, find_dates
from receipt_pipeline.chain.extract_labels import LabelKind
from receipt_pipeline.chain.extract_marks import with_dollar_marks
from receipt_pipeline.chain.extract_merchant import find_header
from receipt_pipeline.chain.extract_payment import payment_methods
from receipt_pipeline.chain.extract_rows import Row, build_rows
from receipt_pipeline.chain.extract_rules import RULES_V1, ExtractRules
from receipt_pipeline.chain.extract_several import columns_beside, holds_several_receipts
from receipt_pipeline.chain.extract_totals import (
    TOTAL_KINDS,
    LabelledAmount,
    as_read_amount,
    choose_total,
    label_amounts,
    last_of_kind,
)
from receipt_pipeline.chain.extract_written import settle_written_tip
from receipt_pipeline.chain.values import ReadAmount, Reading, ReceiptFields


def extract_fields(reading: Reading, rules: ExtractRules = RULES_V1) -> ReceiptFields:
    """Return the fields of the receipt; pure and deterministic, nothing is guessed by default.

    Amounts are integer minor units with the currency that the receipt states, dates ISO where their
    order is certain; both keep the print beside the reading.
    """
    if rules.mends_marks:
        reading = replace(reading, lines=with_dollar_marks(reading.lines))
    rows = build_rows(reading)
    if not rows:
        return ReceiptFields()
    texts = [row.text for row in rows]
    hints = hinted_countries("\n".join(texts))
    dollar = dollar_currency(hints)
    context = _context_of(texts, hints, dollar, rules)
    labelled = label_amounts(rows, context, rules)
    total = choose_total(labelled)
    currency = _currency_of_total(rows, total, context) or context.currency
    if currency != context.currency:
        context = replace(context, currency=currency)
        labelled = label_amounts(rows, context, rules)
        total = choose_total(labelled)
    dates = find_dates(rows, rules)
    merchant, address = find_header(rows, rules)
    tip = _field(labelled, LabelKind.TIP)
    total_amount, tip = settle_written_tip(rows, labelled, total, tip)
    return ReceiptFields(
        merchant=merchant,
        address=address,
        date=choose_date(dates, country_day_first=day_comes_first(currency, hints)),
        total=total_amount,
        currency=currency,
        subtotal=_field(labelled, LabelKind.SUBTOTAL),
        tax=_field(labelled, LabelKind.TAX),
        rounding=_field(labelled, LabelKind.ROUNDING),
        cash=_field(labelled, LabelKind.CASH),
        change=_field(labelled, LabelKind.CHANGE),
        tip=tip,
        line_amounts=_line_amounts(labelled),
        several_receipts=holds_several_receipts(rows, labelled, dates)
        or (rules.tells_receipts_apart and _stand_side_by_side(reading, rules)),
        payment=payment_methods(rows, labelled) if rules.tells_payment else (),
    )


def _stand_side_by_side(reading: Reading, rules: ExtractRules) -> bool:
    """Tell whether two columns of a page are receipts: each with a total, and a day or cash."""
    alone = replace(rules, tells_receipts_apart=False)
    columns = [extract_fields(column, alone) for column in columns_beside(reading)]
    return len(columns) > 1 and all(
        column.total is not None and (column.date is not None or column.cash is not None)
        for column in columns
    )


def _context_of(
    texts: Sequence[str], hints: Sequence[CountryHint], dollar: str | None, rules: ExtractRules
) -> AmountContext:
    """Return what the whole receipt says about its amounts."""
    yen = "CNY" if rules.knows_cjk_labels and prints_yuan(texts) else "JPY"
    stated = stated_currency(texts, hints)
    currency = yen if stated == "JPY" else stated
    return AmountContext(decimal_mark_of(texts), currency, dollar, rules.knows_lakh_groups, yen)


def _currency_of_total(
    rows: Sequence[Row], total: LabelledAmount | None, context: AmountContext
) -> str | None:
    """Return the one currency marked in the total's own row."""
    if total is None:
        return None
    meant = {DOLLAR: context.dollar, "JPY": context.yen}
    marks = {meant.get(mark, mark) for mark in marks_in(rows[total.row].text)}
    return marks.pop() if len(marks) == 1 else None


def _field(labelled: Sequence[LabelledAmount], kind: LabelKind) -> ReadAmount | None:
    item = last_of_kind(labelled, kind)
    return None if item is None else as_read_amount(item)


def _line_amounts(labelled: Sequence[LabelledAmount]) -> tuple[ReadAmount, ...]:
    """Return the rightmost unlabelled amount of each row above the first sum."""
    sums = [item.row for item in labelled if item.kind in TOTAL_KINDS or item.kind == LabelKind.SUBTOTAL]
    first_sum = min(sums, default=None)
    cents_are_printed = any(item.found.has_cents for item in labelled)
    rightmost: dict[int, LabelledAmount] = {}
    for item in labelled:
        above = first_sum is None or item.row < first_sum
        is_price_each = item.label.startswith("@")
        plausible = item.found.has_cents or not cents_are_printed
        if item.kind == LabelKind.OTHER and above and plausible and not item.in_summary and not is_price_each:
            rightmost[item.row] = item
    return tuple(as_read_amount(item) for item in rightmost.values())
