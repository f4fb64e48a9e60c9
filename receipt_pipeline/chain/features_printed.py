"""Stage features of `chain-v4`, first step: every number with its place, its decimals and its row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from receipt_pipeline.chain.extract_amounts import decimal_mark_of

# Codes of a tax that shops print behind an amount.
_TAX_CODE = r"(?:SR0?|ES|ZRL?|S|Z|T|N|SVC)"
NUMBER = re.compile(
    r"(?<![\d.,:/])(?P<before>-|\()? ?(?P<mark>RM|[$€£])? ?(?P<inner>-)?"
    r"(?P<whole>\d{1,3}(?:,\d{3})+|\d+)?(?:\.(?P<decimals>\d{1,4}))?(?![\d:/]|[.,]\d| ?: ?\d)"
)
PERCENT = re.compile(r" ?%")
# Behind an amount that ends its row: a tax code, a mark, a currency.
ROW_ENDS = re.compile(r"\s*[A-Z*#)]{0,3}\d?[*)]?\s*(?:[A-Z]{2,3}|[*€£])?\s*$")
UNIT = re.compile(rf"(?!(?:{_TAX_CODE}|EUR)\b|X ?\d)[A-Z]")
WORDLESS = re.compile(rf"^(?:RM|[\s\d.,$€£()*X@+-])*{_TAX_CODE}?[\s*]*$")
WHOLE_DIGITS_MAX = 7
PIECES_DIGITS_MAX = 4
WEIGHT_DECIMALS = 3
_EXCHANGED = str.maketrans(".,", ",.")


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """One printed number.

    `row` and `at` (characters) tell where it stands. `value_e4` is its value in ten-thousandths, with
    its sign; `decimals` how many are printed, 0 also where a unit of measure follows. `pieces_e3` is the
    quantity that it may be, in thousandths, or 0. `closes` tells that nothing but a code or mark follows
    in its row, `wordless` that the row has no words.
    """

    row: int
    at: int
    value_e4: int
    decimals: int
    pieces_e3: int
    closes: bool
    wordless: bool

    @property
    def minor(self) -> int:
        """Return the value in minor units of a currency with two decimals."""
        return round(self.value_e4 / 100)

    @property
    def is_amount(self) -> bool:
        """Tell whether it is printed as an amount other than zero."""
        return self.decimals == 2 and self.value_e4 != 0


def with_points(rows: Sequence[str]) -> tuple[str, ...]:
    """Return the rows with points before decimals, where the receipt prints commas there."""
    commas = decimal_mark_of(rows) == ","
    return tuple(row.translate(_EXCHANGED) for row in rows) if commas else tuple(rows)


def printed_numbers(rows: Sequence[str]) -> tuple[PrintedNumber, ...]:
    """Return the numbers of rows in capitals with points before decimals, in reading order."""
    return tuple(number for at, row in enumerate(rows) for number in _numbers_of(row, at))


def _numbers_of(row: str, number: int) -> Iterator[PrintedNumber]:
    wordless = WORDLESS.match(row) is not None
    for match in NUMBER.finditer(row):
        whole, decimals = (match["whole"] or "").replace(",", ""), match["decimals"] or ""
        after = row[match.end() :]
        printed = whole or len(decimals) == 2
        if not printed or len(whole) > WHOLE_DIGITS_MAX or PERCENT.match(after):
            continue
        value_e4 = int(whole or "0") * 10_000 + int(decimals.ljust(4, "0"))
        amount = len(decimals) == 2 and UNIT.match(after) is None
        yield PrintedNumber(
            row=number,
            at=match.start(),
            value_e4=-value_e4 if _is_minus(row, match) else value_e4,
            decimals=len(decimals) if amount or len(decimals) != 2 else 0,
            pieces_e3=value_e4 // 10 if _may_be_pieces(row, match) else 0,
            closes=amount and ROW_ENDS.fullmatch(after) is not None,
            wordless=wordless,
        )


def _is_minus(row: str, match: re.Match[str]) -> bool:
    """Tell a minus or a pair of brackets from a hyphen within a word."""
    before = row[match.start() - 1] if match.start() else " "
    enclosed = match["before"] == "(" and row[match.end() : match.end() + 1] == ")"
    return bool(match["before"] or match["inner"]) and (before in " :" or enclosed)


def _may_be_pieces(row: str, match: re.Match[str]) -> bool:
    """Tell whether a number may be how many were sold: small and whole, standing free, or a weight."""
    decimals = match["decimals"] or ""
    if len(decimals) == WEIGHT_DECIMALS:
        return True
    before = row[match.start() - 1] if match.start() else " "
    touched = (before.isalnum() and before != "X") or before in "#/" or match["mark"]
    whole = not decimals.strip("0") and len(match["whole"] or "") <= PIECES_DIGITS_MAX
    return whole and not touched and row[match.end() : match.end() + 1] in ("", *" X*@)U")
