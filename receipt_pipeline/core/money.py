"""Money as integer minor units with an ISO 4217 currency; never a float."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

ZERO_DECIMAL_CURRENCIES = frozenset(
    {
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    }
)
THREE_DECIMAL_CURRENCIES = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})


def minor_digits(currency: str | None) -> int:
    """Return the number of minor digits of a currency; 2 where the currency is unknown."""
    if currency in ZERO_DECIMAL_CURRENCIES:
        return 0
    return 3 if currency in THREE_DECIMAL_CURRENCIES else 2


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in integer minor units; `currency` is ISO 4217 or None when unknown."""

    amount_minor: int
    currency: str | None = None

    def as_decimal_text(self) -> str:
        """Return the amount as exact decimal text, `1234.50`."""
        digits = minor_digits(self.currency)
        return f"{Decimal(self.amount_minor).scaleb(-digits):.{digits}f}"
