"""Printed numbers become integer minor units, or are called ambiguous."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from receipt_pipeline.chain.extract.currency import DOLLAR, MARK_PATTERN, YEN, currency_of
from receipt_pipeline.chain.values import TextLine
from receipt_pipeline.core.money import ZERO_DECIMAL_CURRENCIES, minor_digits

# Currencies whose prices are printed without cents although the currency has minor units.
PRINTED_WHOLE = ZERO_DECIMAL_CURRENCIES | {"IDR", "HUF", "TWD"}
# What may touch an amount after it: tax codes, never units of measure.
_UNITS = "KG|MG|ML|CL|MM|CM|LB|OZ|GB|MB|HR|KM|PC|PK|CT|IN|FT|AM|PM|G|L|M|W|V"
_GROUPS = r"\d{1,3}(?:(?P<group>[.,'’])\d{3})(?:(?P=group)\d{3})*(?:[.,]\d{1,2})?"
_SPACED = r"\d{1,3}(?: \d{3})+,\d{2}"
_PLAIN = r"\d+[.,]\d{1,3}|\d+|[.,]\d{2}"
# As India groups: three digits before the mark, two in every group above.
_LAKHS = r"\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d{1,2})?"
_FORM = (
    rf"(?:(?<![\w.,/:#-])|(?<=[A-Za-z]:)|(?<=:)(?={MARK_PATTERN}))(?P<sign>[-−–(]\s?)?(?P<before>{MARK_PATTERN}\s{{0,2}}:?\s{{0,2}})?(?P<inner>[-−–]\s?)?"
    rf"(?P<number>NUMBER)(?![\d'’]|[.,]\d)"
    rf"(?P<after>\s{{0,2}}{MARK_PATTERN})?(?P<tail>\s?[-−–](?![\w-])|\))?"
    rf"(?!\s?%|\s?[xX*]\s?\d|(?:{_UNITS})\b|[A-Za-z]{{3,}}|[-/:]\d)"
)
_AMOUNT, _AMOUNT_OR_LAKHS = (
    re.compile(_FORM.replace("NUMBER", numbers), re.IGNORECASE)
    for numbers in (f"{_SPACED}|{_GROUPS}|{_PLAIN}", f"{_SPACED}|{_LAKHS}|{_GROUPS}|{_PLAIN}")
)
_LETTER_IN_AMOUNT = re.compile(
    r"(?<=\d)[Oo](?=[\d.,])|(?<=[.,])[Oo](?=[\dOo]\b)|(?<=[.,]\d)[Oo]\b|(?<=\bRM)[Il](?=[\d.,])|(?<=[$€£])[Il](?=[\d.,])"
)


@dataclass(frozen=True, slots=True)
class AmountContext:
    """What the whole receipt says about its amounts: the decimal mark it uses and its currency.

    `yen` is what the sign ¥ means.
    """

    decimal_mark: str | None = None
    currency: str | None = None
    dollar: str | None = None
    yen: str = "JPY"


@dataclass(frozen=True, slots=True)
class FoundAmount:
    """One amount in a text: as printed, its value, and what supports it.

    `has_cents` means that two (for some currencies three) decimals were printed, `marked` that a
    currency mark touches the number.
    """

    printed: str
    minor: int
    currency: str | None
    ambiguous: bool
    has_cents: bool
    marked: bool
    start: int
    end: int


def find_amounts(text: str, context: AmountContext) -> list[FoundAmount]:
    """Return all numbers of the text that can be amounts, left to right; bare whole numbers too."""
    return [_read(match, context) for match in _AMOUNT_OR_LAKHS.finditer(text)]


def normalized_digits(text: str) -> str:
    """Return the text with letters that a reader puts for digits inside amounts undone; same length."""
    return _LETTER_IN_AMOUNT.sub(lambda match: "0" if match.group() in "Oo" else "1", text)


def decimal_mark_of(texts: Iterable[str]) -> str | None:
    """Return the mark that clearly more amounts with two decimals use, or None."""
    counts: Counter[str] = Counter()
    for text in texts:
        for match in _AMOUNT.finditer(text):
            tail = re.search(r"([.,])\d{2}$", match["number"])
            if tail:
                counts[tail[1]] += 1
    point, comma = counts["."], counts[","]
    if max(point, comma) < 2 * min(point, comma) or point == comma:
        return None
    return "." if point > comma else ","


def _read(match: re.Match[str], context: AmountContext) -> FoundAmount:
    mark = (match["before"] or match["after"] or "").strip(" :")
    currency = currency_of(mark) if mark else None
    if currency == DOLLAR:
        currency = context.dollar
    elif mark == YEN:
        currency = context.yen
    elif currency is None:
        currency = context.currency
    value, ambiguous, has_cents = _value(match["number"], currency, context.decimal_mark)
    negative = bool(match["inner"]) or _is_minus(match["sign"], match["tail"])
    minor = Decimal(value).scaleb(minor_digits(currency)).to_integral_value()
    return FoundAmount(
        printed=_printed(match),
        minor=-int(minor) if negative else int(minor),
        currency=currency,
        ambiguous=ambiguous,
        has_cents=has_cents,
        marked=bool(mark),
        start=match.start(),
        end=match.end(),
    )


def _is_minus(sign: str | None, tail: str | None) -> bool:
    opening, closing = (sign or "").strip(), (tail or "").strip()
    if opening == "(":
        return closing == ")"
    return bool(opening) or closing not in ("", ")")


def _printed(match: re.Match[str]) -> str:
    printed = match.group().strip()
    # A bracket without its partner belongs to the text around the amount.
    if printed.startswith("(") != printed.endswith(")"):
        printed = printed.strip("()")
    return " ".join(printed.split())


def _value(number: str, currency: str | None, decimal_mark: str | None) -> tuple[str, bool, bool]:
    """Return the number as decimal text, whether another reading is as possible, and if it has cents."""
    digits = number.replace(" ", "").replace("'", "").replace("’", "")
    marks = re.findall(r"[.,]", digits)
    if not marks:
        return digits, False, False
    whole, _, tail = digits.rpartition(marks[-1])
    whole_digits = re.sub(r"[.,]", "", whole) or "0"
    decimals_wanted = 3 if minor_digits(currency) == 3 else 2
    if len(tail) == decimals_wanted and not (len(marks) > 1 and len(set(marks)) == 1):
        return f"{whole_digits}.{tail}", False, True
    if len(tail) == 3:
        grouped = whole_digits + tail
        certain = (
            len(set(marks)) < len(marks)
            or currency in PRINTED_WHOLE
            or (decimal_mark is not None and decimal_mark != marks[-1])
        )
        return grouped, not certain, False
    # One decimal, or a number of cents that its currency does not have.
    return f"{whole_digits}.{tail}", len(tail) != 2, len(tail) == 2


# At least this many amounts must have the mark itself before a letter in its place is taken for it.
MARKED_MIN = 2
_DOLLAR_CENTS = r"\d{1,3}(?:,\d{3})*\.\d{2}(?!\d)"
_MARKED = re.compile(rf"(?<![\w$])\${_DOLLAR_CENTS}")
_LETTER_FOR_MARK = re.compile(rf"(?<![\w$])(?:\$?[Ss])(?={_DOLLAR_CENTS})")


def with_dollar_marks(lines: Sequence[TextLine]) -> tuple[TextLine, ...]:
    """Return the lines with `S8.20` and `$S8.20` read as `$8.20`, where the receipt prints `$`.

    It does so where at least two amounts have `$` and no fewer do than have the letter; otherwise
    the lines come back as they are.
    """
    marked, lettered = (sum(len(form.findall(line.text)) for line in lines) for form in (_MARKED, _LETTER_FOR_MARK))
    if not lettered or marked < max(MARKED_MIN, lettered):
        return tuple(lines)
    return tuple(replace(line, text=_LETTER_FOR_MARK.sub("$", line.text)) for line in lines)
