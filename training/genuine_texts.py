"""Transcribed genuine receipts as content that can be altered, each line under its kind.

Source: truth files of the form of SROIE (CC BY 4.0), `lines` with a text each, and `forged` false.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.extract.labels import LabelKind
from receipt_pipeline.chain.extract.totals import TOTAL_KINDS
from receipt_pipeline.chain.features.amounts import Entry, PrintedAmounts, collect_amounts
from receipt_pipeline.chain.values import page_text_of
from training.content import Cell, Content, Row

KIND_OF_LABEL = {
    LabelKind.SUBTOTAL: "subtotal",
    LabelKind.CASH: "cash",
    LabelKind.CHANGE: "change",
    LabelKind.TAX: "tax",
    LabelKind.DISCOUNT: "discount",
    LabelKind.ROUNDING: "rounding",
    LabelKind.SERVICE: "service",
}
KIND_OF_TEXT: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("date", re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}|\d{1,2} ?[A-Z]{3} ?\d{2,4}|\d:\d\d", re.IGNORECASE)),
    ("tax_number", re.compile(r"GST.*\d{9}", re.IGNORECASE)),
    ("phone", re.compile(r"TEL|FAX|\d{2,3}-\d{6,8}", re.IGNORECASE)),
    ("registration", re.compile(r"\(.*\d{4,}-[A-Z]", re.IGNORECASE)),
    ("number", re.compile(r"(?:INV|BILL|RECEIPT|DOC|NO).*\d{4,}", re.IGNORECASE)),
    ("address", re.compile(r"\d{5}")),
)


@dataclass(frozen=True, slots=True)
class GenuineText:
    """One genuine receipt: its shop, by which folds are kept apart, and its lines."""

    shop: str
    key: str
    texts: tuple[str, ...]


def read_genuine_texts(folder: Path, *, without: Collection[str] = ()) -> list[GenuineText]:
    """Return the genuine receipts of a folder, but none of those whose key is kept for evaluation."""
    found = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or document.get("forged") is not False:
            continue
        key = str(document.get("sroie_key", path.stem))
        texts = tuple(line["text"] for line in document.get("lines", []) if line["text"].strip())
        if key not in without and texts:
            found.append(GenuineText(str(document.get("company") or key), key, texts))
    return found


def content_of_text(texts: tuple[str, ...]) -> Content:
    """Return the lines as rows under the kinds that alterations look for."""
    page_text = page_text_of(texts)
    amounts = collect_amounts(page_text, extract_fields(page_text))
    kinds = {_line_of(entry, texts): _kind_of_entry(entry, amounts) for entry in amounts.entries}
    rows = [Row(kinds.get(at) or _kind_of_text(text), (Cell(text),)) for at, text in enumerate(texts)]
    return Content(tuple(rows), {"tampered": False})


def _line_of(entry: Entry, texts: tuple[str, ...]) -> int:
    """Return the line on which the amount itself stands; a label may have borrowed it from beside it."""
    printed = f"{abs(entry.minor) // 100}.{abs(entry.minor) % 100:02d}"
    near = (entry.row + 1, entry.row - 1) if entry.borrowed else ()
    holding = (at for at in near if 0 <= at < len(texts) and printed in texts[at].replace(",", ""))
    return next(holding, entry.row)


def _kind_of_entry(entry: Entry, amounts: PrintedAmounts) -> str:
    if entry.in_summary:
        return "tax_table"
    if entry.kind in TOTAL_KINDS:
        return "total"
    fallback = "item" if entry.row < amounts.first_sum_row else "amount"
    return KIND_OF_LABEL.get(entry.kind, fallback)


def _kind_of_text(text: str) -> str:
    return next((kind for kind, pattern in KIND_OF_TEXT if pattern.search(text)), "text")
