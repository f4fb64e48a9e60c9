"""Evaluation of reading: the four key fields in the form that scorers of scanned receipts compare."""

from __future__ import annotations

import re
import unicodedata

from receipt_pipeline.chain.values import ReceiptFields

# The reader often takes a small comma for a full stop; between the parts of an address a comma is meant.
_STOP_FOR_COMMA = re.compile(r"(?:(?<=[A-Z]{4})|(?<=\d))\.(?= [A-Z0-9])")


def strict_fields(fields: ReceiptFields) -> dict[str, str | None]:
    """Return company, date, address and total as printed, in upper case.

    Conventions of SROIE task 3: plain letters, names without company numbers, address lines joined by
    one space, totals without the letters of a currency but with a `$` that touches them.
    """
    return {
        "company": _with_spaces(_plain_upper(fields.merchant)),
        "date": _plain_upper(fields.date.printed if fields.date is not None else None),
        "address": _with_commas(_plain_upper(fields.address)),
        "total": _bare_total(fields.total.printed) if fields.total is not None else None,
    }


def _plain_upper(text: str | None) -> str | None:
    if not text:
        return None
    decomposed = unicodedata.normalize("NFKD", text)
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return " ".join(plain.upper().split())


def _with_spaces(name: str | None) -> str | None:
    """Give a name the spaces that the reader swallowed around brackets, stops and legal forms."""
    if name is None:
        return None
    name = re.sub(r"\s*\(\s*", " (", re.sub(r"\s*\)\s*", ") ", name))
    name = re.sub(r"\bMR\.(?=\w)", "MR. ", re.sub(r"\.(?=[A-Z]{3,})", ". ", name))
    name = re.sub(r"(?<=[A-Z])SDN\b", " SDN", name.replace("SDNBHD", "SDN BHD"))
    return " ".join(name.replace("5/B", "S/B").split())


def _with_commas(address: str | None) -> str | None:
    return None if address is None else _STOP_FOR_COMMA.sub(",", address)


def _bare_total(printed: str) -> str:
    return re.sub(r"[A-Za-z]+\.?|\s", "", printed)
