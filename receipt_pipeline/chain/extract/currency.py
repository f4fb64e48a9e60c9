"""Currency marks, and hints of the country that a receipt comes from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# The dollar sign alone names no country; it is resolved from the rest of the receipt.
DOLLAR = "$"
# The sign of the yen is that of the yuan as well.
YEN = "¥"

_SIGNS = {
    "US$": "USD",
    "S$": "SGD",
    "A$": "AUD",
    "AU$": "AUD",
    "C$": "CAD",
    "CA$": "CAD",
    "HK$": "HKD",
    "NT$": "TWD",
    "NZ$": "NZD",
    "R$": "BRL",
    "$": DOLLAR,
    "€": "EUR",
    "£": "GBP",
    YEN: "JPY",
    "฿": "THB",
    "₹": "INR",
    "₩": "KRW",
    "₫": "VND",
    "₱": "PHP",
    "₺": "TRY",
    "₽": "RUB",
    "₪": "ILS",
    "₴": "UAH",
    "円": "JPY",
    "元": "CNY",
    "원": "KRW",
}
_WORDS = {
    "RM": "MYR",
    "RINGGIT": "MYR",
    "EURO": "EUR",
    "RP": "IDR",
    "BAHT": "THB",
    "FR": "CHF",
    "SFR": "CHF",
    "RMB": "CNY",
    "RS": "INR",
    "KC": "CZK",
    "KČ": "CZK",
    "ZŁ": "PLN",
    "FT": "HUF",
    "TL": "TRY",
}
# Codes that are also words of shops and goods (PEN, MAD, COP, BHD as in SDN BHD) are left out: a currency
# that is not recognized is unknown, never wrong.
_ISO_CODES = [
    "MYR", "EUR", "USD", "GBP", "SGD", "IDR", "THB", "CHF", "JPY", "CNY", "KRW", "INR", "AUD", "CAD",
    "NZD", "HKD", "TWD", "PHP", "VND", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "RON", "BGN", "TRY",
    "BRL", "MXN", "ZAR", "AED", "SAR", "ILS", "UAH", "RUB", "CLP", "ARS", "KWD",
    "OMR", "JOD", "TND", "EGP", "KES", "NGN", "ISK", "BND", "LKR", "PKR", "BDT",
]  # fmt: skip
_WORDS.update({code: code for code in _ISO_CODES})
# Short words that also mean other things count only where they touch a number.
_ONLY_NEXT_TO_NUMBERS = frozenset({"FR", "RS", "KC", "KČ", "FT", "TL", "RP", "ZŁ", "TRY", "RON"})

_SIGN_PATTERN = "|".join(re.escape(sign) for sign in sorted(_SIGNS, key=len, reverse=True))
_WORD_PATTERN = "|".join(sorted(_WORDS, key=len, reverse=True))
MARK_PATTERN = rf"(?:{_SIGN_PATTERN}|(?<![A-Za-z])(?:{_WORD_PATTERN})(?![A-Za-z])(?:\.(?!\d))?)"
_MARK = re.compile(MARK_PATTERN, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CountryHint:
    """What names a country on a receipt, what `$` means there, and how it writes dates (None: both)."""

    country: str
    pattern: re.Pattern[str]
    dollar: str | None
    day_first: bool | None


COUNTRY_HINTS = (
    CountryHint(
        "MY",
        re.compile(
            r"\bSDN\.?\s?BHD|\bMALAYSIA\b|\bM'SIA\b|\bKUALA LUMPUR\b|\bSELANGOR\b|\bJOHOR\b"
            r"|\bSARAWAK\b|\bSABAH\b|\bPULAU PINANG\b|\bPENANG\b|\bNEGERI SEMBILAN\b|\bJALAN\b|\bJLN\b"
        ),
        None,
        True,
    ),
    CountryHint("SG", re.compile(r"\bSINGAPORE\b|\bPTE\.? LTD"), "SGD", True),
    CountryHint("AU", re.compile(r"\bAUSTRALIA\b|\bPTY\.? LTD|\bABN\b"), "AUD", True),
    CountryHint("NZ", re.compile(r"\bNEW ZEALAND\b"), "NZD", True),
    CountryHint("HK", re.compile(r"\bHONG KONG\b|\bKOWLOON\b"), "HKD", True),
    CountryHint("CA", re.compile(r"\bCANADA\b|\bONTARIO\b|\bQUEBEC\b"), "CAD", None),
    CountryHint("DE", re.compile(r"\bGMBH\b|\bMWST\b|\bUST\b|\bSUMME\b|\bSTEUER\b|\bDATUM\b"), None, True),
    CountryHint("FR", re.compile(r"\bTVA\b|\bSARL\b|\bSIRET\b"), None, True),
    CountryHint("IT", re.compile(r"\bP\.? ?IVA\b|\bTOTALE\b|\bS\.?R\.?L\b"), None, True),
    CountryHint("GB", re.compile(r"\bUNITED KINGDOM\b|\bLONDON\b|\bENGLAND\b|\bVAT REG"), None, True),
    CountryHint(
        "US",
        re.compile(r"\bU\.?S\.?A\b|\b[A-Z]{2} \d{5}(?:-\d{4})?\b|\(\d{3}\) ?\d{3}-\d{4}\b|\bSALES TAX\b"),
        "USD",
        False,
    ),
)
DAY_FIRST_CURRENCIES = frozenset(
    (
        "MYR", "EUR", "GBP", "SGD", "AUD", "NZD", "IDR", "THB", "CHF", "INR", "HKD", "PLN", "CZK",
        "RON", "BGN", "TRY", "BRL", "MXN", "ZAR", "AED", "ILS", "UAH", "RUB", "NOK", "DKK",
    )
)  # fmt: skip
MONTH_FIRST_CURRENCIES = frozenset({"USD", "PHP"})


def marks_in(text: str) -> list[str]:
    """Return the currencies marked in the text, in order; `$` stays `$`."""
    found = []
    for match in _MARK.finditer(text):
        word = match.group().rstrip(".").upper()
        touches = re.search(r"\d\s?$", text[: match.start()]) or re.match(r"\.?\s?-?\d", text[match.end() :])
        if word in _ONLY_NEXT_TO_NUMBERS and not touches:
            continue
        found.append(currency_of(match.group()))
    return found


def currency_of(mark: str) -> str:
    """Return the ISO code of one mark as printed, or `$`."""
    word = mark.rstrip(".").upper()
    return _SIGNS[word] if word in _SIGNS else _WORDS[word]


def hinted_countries(text: str) -> tuple[CountryHint, ...]:
    """Return the hints found in the whole text of a receipt."""
    upper = text.upper()
    return tuple(hint for hint in COUNTRY_HINTS if hint.pattern.search(upper))


def dollar_currency(hints: Iterable[CountryHint]) -> str | None:
    """Return what `$` means on this receipt: US dollars unless the receipt names another country.

    None where the named country has no dollar, or several countries are named.
    """
    named = {hint.dollar for hint in hints}
    if not named:
        return "USD"
    return named.pop() if len(named) == 1 else None


def stated_currency(texts: Iterable[str], hints: Iterable[CountryHint]) -> str | None:
    """Return the one currency that the texts mark, or None; there is no default."""
    counts: Counter[str | None] = Counter()
    for text in texts:
        counts.update(dollar_currency(hints) if mark == DOLLAR else mark for mark in marks_in(text))
    counts.pop(None, None)
    if not counts:
        return None
    (first, times), *others = counts.most_common(2)
    # A second currency is believed to be a misreading or a conversion only where it is clearly rarer.
    if others and others[0][1] * 2 > times:
        return None
    return first


def day_comes_first(currency: str | None, hints: Iterable[CountryHint]) -> bool | None:
    """Return the order of day and month that the receipt's country uses; None when unknown."""
    orders = {hint.day_first for hint in hints}
    if currency in DAY_FIRST_CURRENCIES:
        orders.add(True)
    elif currency in MONTH_FIRST_CURRENCIES:
        orders.add(False)
    orders.discard(None)
    return orders.pop() if len(orders) == 1 else None
