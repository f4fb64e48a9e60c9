"""Evaluation of reading: the four key fields in the form that scorers of scanned receipts compare."""

from __future__ import annotations

import re

from receipt_pipeline.chain.values import ReceiptFields


def strict_fields(fields: ReceiptFields) -> dict[str, str | None]:
    """Return company, date, address and total as printed, in upper case.

    Conventions of SROIE task 3: names without company numbers, address lines joined by one space,
    totals without the letters of a currency but with a `$` that touches them.
    """
    return {
        "company": _upper(fields.merchant),
        "date": _upper(fields.date.printed if fields.date is not None else None),
        "address": _upper(fields.address),
        "total": _total(fields.total.printed) if fields.total is not None else None,
    }


def _upper(text: str | None) -> str | None:
    return None if not text else " ".join(text.upper().split())


def _total(printed: str) -> str:
    return re.sub(r"[A-Za-z]+\.?|\s", "", printed)
