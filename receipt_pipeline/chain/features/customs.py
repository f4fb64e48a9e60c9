"""Amounts that a genuine receipt keeps in order by custom: coins, roundings, what was paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from receipt_pipeline.chain.extract.labels import LabelKind
from receipt_pipeline.chain.features.amounts import PrintedAmounts
from receipt_pipeline.chain.features.sums import CASH_STEP_CURRENCIES, CASH_STEP_MINOR, tail_unexplained

# A cash total moves to the nearest coin of five, so its printed rounding is two at most, and a chain's four.
ROUNDING_MINOR_MAX = 4


@dataclass(frozen=True, slots=True)
class CustomEvidence:
    """What amounts say by themselves; 0 or 1, counts, and shares of 0..1."""

    paid_off_coin: bool
    rounding_invalid: bool
    unexplained_share: float
    paid_otherwise: bool


def read_customs(amounts: PrintedAmounts, totals: Sequence[int], currency: str | None) -> CustomEvidence:
    """Look at coins, roundings, what was paid, and what nothing else explains."""
    tail = {abs(minor) for minor in amounts.tail}
    return CustomEvidence(
        paid_off_coin=_is_paid_off_coin(amounts, currency),
        rounding_invalid=_is_rounding_invalid(amounts, currency),
        unexplained_share=tail_unexplained(amounts) / len(tail) if tail else 0.0,
        paid_otherwise=_is_paid_otherwise(amounts, totals),
    )


def _is_paid_off_coin(amounts: PrintedAmounts, currency: str | None) -> bool:
    """Report whether change was given in coins that do not exist."""
    change = [abs(minor) for minor in amounts.minors(LabelKind.CHANGE)]
    given = [abs(minor) for minor in amounts.minors(LabelKind.CASH)]
    if currency not in CASH_STEP_CURRENCIES or not (change and given):
        return False
    return all(minor % CASH_STEP_MINOR for minor in change) or all(minor % CASH_STEP_MINOR for minor in given)


def _is_rounding_invalid(amounts: PrintedAmounts, currency: str | None) -> bool:
    roundings = [abs(minor) for minor in amounts.minors(LabelKind.ROUNDING)]
    return currency in CASH_STEP_CURRENCIES and bool(roundings) and min(roundings) > ROUNDING_MINOR_MAX


def _is_paid_otherwise(amounts: PrintedAmounts, totals: Sequence[int]) -> bool:
    """Report whether what was paid, without change, is no printed total."""
    paid = [abs(minor) for minor in amounts.minors(LabelKind.CASH)]
    change = [minor for minor in amounts.minors(LabelKind.CHANGE) if minor]
    if not (paid and totals) or change:
        return False
    return all(abs(minor - total) > ROUNDING_MINOR_MAX for minor in (*paid, sum(paid)) for total in totals)
