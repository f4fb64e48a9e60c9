"""Precision, recall and F1 of fields."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import pandas as pd

from receipt_pipeline.chain.values import ReceiptFields

FIELDS = ("company", "date", "address", "total")
OVERALL = "overall"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SEPARATOR = r"(?P<s> ?[-/.] ?| )"
_YEAR = r"(?P<y>\d{4}|\d{2})(?!\d)"
_DAY_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<!\d)(?P<y>\d{{4}}){_SEPARATOR}(?P<m>\d{{1,2}})(?P=s)(?P<d>\d{{1,2}})(?!\d)",
        r"(?<!\d)(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})(?!\d)",
        rf"(?<!\d)(?P<d>\d{{1,2}}){_SEPARATOR}(?P<m>\d{{1,2}})(?P=s){_YEAR}",
        rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[-/., ]*(?P<m>[a-z]{{3,9}})[-/., ]*{_YEAR}",
        rf"(?P<m>[a-z]{{3,9}})[-/., ]*(?P<d>\d{{1,2}})(?:st|nd|rd|th)?[-/., ]+{_YEAR}",
    )
)

KeyFields = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class FieldScore:
    """How many values were right, predicted and wanted; the rates follow from them."""

    right: int
    predicted: int
    wanted: int

    @property
    def precision(self) -> float:
        """Return right over predicted, 0 where nothing was predicted."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Return right over wanted, 0 where nothing was wanted."""
        return self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        both = self.predicted + self.wanted
        return 2 * self.right / both if both else 0.0


@dataclass(frozen=True, slots=True)
class FieldScores:
    """Scores by field and `overall` (micro): strings equal, and values equal after normalization."""

    strict: Mapping[str, FieldScore]
    normalized: Mapping[str, FieldScore]


def evaluate_fields(predictions: Mapping[str, KeyFields], truths: Mapping[str, KeyFields]) -> FieldScores:
    """Compare predictions with truths by receipt id.

    A None in the truth is left out; a None, an empty text or no entry is no prediction. Strict compares
    the strings as SROIE task 3 does; normalized compares totals as amounts, dates as days, company and
    address without case, spaces and punctuation.
    """
    rows = [
        (field, bool(guess), guess == value, bool(guess) and _is_same_value(field, guess or "", value))
        for receipt_id, truth in truths.items()
        for field, value in truth.items()
        if field in FIELDS and value is not None
        for guess in [predictions.get(receipt_id, {}).get(field)]
    ]
    comparisons = pd.DataFrame(rows, columns=["field", "predicted", "strict", "normalized"]).assign(wanted=True)
    return FieldScores(strict=_scores(comparisons, "strict"), normalized=_scores(comparisons, "normalized"))


def _is_same_value(field: str, guess: str, truth: str) -> bool:
    return normalized_value(field, guess) == normalized_value(field, truth)


def normalized_value(field: str, text: str) -> str | Decimal:
    """Return a comparable value; what cannot be read as an amount or a day is compared folded."""
    value = {"total": read_amount, "date": read_day}.get(field, _nothing)(text)
    return folded(text) if value is None else value


def folded(text: str) -> str:
    """Return letters and digits only, without case."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())


def read_amount(text: str) -> Decimal | None:
    """Return the one amount in the text (`RM1,234.50`, `8,20`), or None where no reading is safe."""
    found = re.findall(r"\d[\d.,]*", text)
    if len(found) != 1:
        return None
    whole, mark, cents = found[0].rstrip(".,"), "", ""
    match = re.fullmatch(r"(.*)([.,])(\d{1,2})", whole)
    if match:
        whole, mark, cents = match.groups()
        if mark in whole:
            return None
    first, *rest = re.split(r"[.,]", whole)
    if rest and (len(first) > 3 or any(len(group) != 3 for group in rest)):
        return None
    sign = "-" if re.search(r"[-(−]\D*\d", text) else ""
    return Decimal(f"{sign}{first}{''.join(rest)}.{cents or '0'}")


def read_day(text: str) -> str | None:
    """Return the ISO day in the text, day first where both readings are possible, or None."""
    for pattern in _DAY_PATTERNS:
        for match in pattern.finditer(text.casefold()):
            iso = _iso(match["y"], match["m"], match["d"])
            if iso:
                return iso
    return None


def _nothing(_text: str) -> None:
    return None


def _iso(year_text: str, month_text: str, day_text: str) -> str | None:
    year = int(year_text) + (2000 if len(year_text) == 2 else 0)
    if month_text.isdecimal():
        month = int(month_text)
    elif month_text[:3] in _MONTHS:
        month = _MONTHS.index(month_text[:3]) + 1
    else:
        return None
    day = int(day_text)
    if month > 12 >= day:
        month, day = day, month
    try:
        return datetime.date(year, month, day).isoformat()
    except ValueError:
        return None


def _scores(comparisons: pd.DataFrame, kind: str) -> dict[str, FieldScore]:
    counts = comparisons.groupby("field")[[kind, "predicted", "wanted"]].sum().reindex(FIELDS, fill_value=0)
    counts.loc[OVERALL] = counts.sum()
    return {str(field): FieldScore(*map(int, row)) for field, row in counts.iterrows()}


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
