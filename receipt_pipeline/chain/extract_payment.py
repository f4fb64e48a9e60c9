"""Stage extract, payment part: how the receipt says it was paid."""

from __future__ import annotations

import re
from collections.abc import Sequence

from receipt_pipeline.chain.extract_labels import LabelKind, fold_label
from receipt_pipeline.chain.extract_rows import Row
from receipt_pipeline.chain.extract_totals import TOTAL_KINDS, LabelledAmount

# The first line that fits names the method: a cash card is a card, a gift card a voucher.
_METHODS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("voucher", re.compile(r"\b(?:\w*VOUCHERS?|GIFT ?CARD|GUTSCHEIN\w*|BAUCAR)\b")),
    (
        "wallet",
        re.compile(r"\b(?:E ?WALLETS?|GRAB ?PAY|APPLE ?PAY|GOOGLE ?PAY|ALIPAY|WECHAT|PAYPAL|TOUCH N GO)\b"),
    ),
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


def payment_methods(rows: Sequence[Row], labelled: Sequence[LabelledAmount]) -> tuple[str, ...]:
    """Return the methods in the order of their print: cash, card, voucher, wallet, cheque, transfer."""
    totals = [item.row for item in labelled if item.kind in TOTAL_KINDS]
    last_total = max(totals, default=len(rows))
    # Below the total also a label that names no more than its method is a payment.
    paid_rows = {
        item.row
        for item in labelled
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
