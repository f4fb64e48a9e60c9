"""Amounts that a genuine receipt keeps in order by custom: coins, roundings, what was paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from receipt_pipeline.chain.extract_labels import LabelKind
from receipt_pipeline.chain.features_book import MoneyBook
from receipt_pipeline.chain.features_sums import (
    CASH_STEP_CURRENCIES,
    CASH_STEP_MINOR,
    tail_unexplained,
)

# A cash total moves to the nearest coin of five, so its printed rounding is two at most, and a chain's four.
ROUNDING_MINOR_MAX = 4


@dataclass(frozen=True, slots=True)
class MoneyEvidence:
    """What amounts say by themselves; 0 or 1, counts, and shares of 0..1."""

    paid_off_coin: bool
    rounding_odd: bool
    unexplained_share: float
    paid_otherwise: bool


def read_money(book: MoneyBook, totals: Sequence[int], currency: str | None) -> MoneyEvidence:
    """Look at coins, roundings, what was paid, and what nothing else explains."""
    tail = {abs(minor) for minor in book.tail}
    return MoneyEvidence(
        paid_off_coin=_paid_off_coin(book, currency),
        rounding_odd=_rounding_odd(book, currency),
        unexplained_share=tail_unexplained(book) / len(tail) if tail else 0.0,
        paid_otherwise=_paid_otherwise(book, totals),
    )


def _paid_off_coin(book: MoneyBook, currency: str | None) -> bool:
    """Tell whether change was given in coins that do not exist."""
    change = [abs(minor) for minor in book.minors(LabelKind.CHANGE)]
    given = [abs(minor) for minor in book.minors(LabelKind.CASH)]
    if currency not in CASH_STEP_CURRENCIES or not (change and given):
        return False
    return all(minor % CASH_STEP_MINOR for minor in change) or all(minor % CASH_STEP_MINOR for minor in given)


def _rounding_odd(book: MoneyBook, currency: str | None) -> bool:
    roundings = [abs(minor) for minor in book.minors(LabelKind.ROUNDING)]
    return currency in CASH_STEP_CURRENCIES and bool(roundings) and min(roundings) > ROUNDING_MINOR_MAX


def _paid_otherwise(book: MoneyBook, totals: Sequence[int]) -> bool:
    """Tell whether what was paid, without change, is no printed total."""
    paid = [abs(minor) for minor in book.minors(LabelKind.CASH)]
    change = [minor for minor in book.minors(LabelKind.CHANGE) if minor]
    if not (paid and totals) or change:
        return False
    return all(abs(minor - total) > ROUNDING_MINOR_MAX for minor in (*paid, sum(paid)) for total in totals)
