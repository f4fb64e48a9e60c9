"""Money as integer minor units with an ISO 4217 currency; never a float."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from iso4217 import Currency

DIGITS_UNKNOWN = 2
# Precious metals, funds and test codes have no minor unit.
MINOR_DIGITS = {
    currency.code: DIGITS_UNKNOWN if currency.exponent is None else currency.exponent for currency in Currency
}

ZERO_DECIMAL_CURRENCIES = frozenset(code for code, digits in MINOR_DIGITS.items() if digits == 0)


def minor_digits(currency: str | None) -> int:
    """Return the number of minor digits of a currency, 2 where the currency is unknown.

    Source: ISO 4217, table A.1, as published in the package `iso4217`.
    """
    return MINOR_DIGITS.get(currency or "", DIGITS_UNKNOWN)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in integer minor units; `currency` is ISO 4217, or None when unknown."""

    amount_minor: int
    currency: str | None = None

    def as_decimal_text(self) -> str:
        """Return the amount as exact decimal text, `1234.50`."""
        digits = minor_digits(self.currency)
        return f"{Decimal(self.amount_minor).scaleb(-digits):.{digits}f}"
