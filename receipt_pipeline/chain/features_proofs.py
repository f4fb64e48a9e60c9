"""Proofs that a genuine receipt offers wherever its amounts stand: tax rate, change, goods that make it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from receipt_pipeline.chain.extract_labels import LabelKind
from receipt_pipeline.chain.features_book import MoneyBook
from receipt_pipeline.chain.features_sums import (
    CASH_STEP_MINOR,
    REACH_MINOR_MAX,
    ROUNDING_SLACK_MINOR,
    printed_rates,
)

TAX_NAMED = re.compile(r"\b(?:GST|SST|VAT|MWST|TAX)\b")
TAX_MINOR_MIN = 3
GOODS_ASKED_MAX = 9
# A tax, service charge or rounding is less than a fifth of the total that it is added to.
TAX_SHARE_MAX = 5
CHANGE_NEEDS_AMOUNTS = 2


@dataclass(frozen=True, slots=True)
class Proof:
    """One relation that a receipt offers: whether it could be asked, and whether any amounts keep it."""

    asked: bool
    met: bool

    @property
    def unmet(self) -> bool:
        """Tell whether the receipt offers the relation and nothing on it keeps it."""
        return self.asked and not self.met


def tax_at_rate(book: MoneyBook) -> Proof:
    """Ask for a printed tax that is a printed rate of a printed base.

    Anywhere after the goods, because rows of a table may be read one by one.
    """
    rates = printed_rates(book)
    named = any(TAX_NAMED.search(row) for row in book.rows)
    tail = {abs(minor) for minor in book.tail}
    small = {minor for minor in tail if minor >= TAX_MINOR_MIN}
    if not (rates and named and len(small) > 1) or not _names_a_tax_amount(book):
        return Proof(asked=False, met=False)
    met = any(
        abs(base * rate - tax * 100) <= 100 * ROUNDING_SLACK_MINOR // 2
        for base, tax, rate in product(small, small, rates)
        if base > tax
    )
    return Proof(asked=True, met=met)


def _names_a_tax_amount(book: MoneyBook) -> bool:
    taxed = any(entry.kind == LabelKind.TAX or entry.in_summary for entry in book.entries)
    return taxed or any("SUMMARY" in row for row in book.rows)


def change_given(book: MoneyBook, totals: Sequence[int]) -> Proof:
    """Ask for an amount given that is a total and the change together; none given back is zero."""
    back = [abs(minor) for minor in book.minors(LabelKind.CHANGE)]
    tail = [abs(minor) for minor in book.tail]
    if not (back and totals) or len(tail) < CHANGE_NEEDS_AMOUNTS:
        return Proof(asked=False, met=False)
    seen = set(tail)
    met = any(
        any(abs(total + change - paid) <= CASH_STEP_MINOR for paid in seen)
        if change
        else tail.count(total) > 1 or bool({total - 2, total - 1, total + 1, total + 2} & seen)
        for total, change in product(totals, {*back, *({0} & seen)})
    )
    return Proof(asked=True, met=met)


def goods_reach_total(book: MoneyBook, totals: Sequence[int]) -> Proof:
    """Ask whether some of the amounts above the first print of the total make it, with tax or without.

    A sum printed without a label is no part of the goods, so whatever stands from the first print of
    the total on is left out. What a long receipt can reach proves nothing, and is not asked.
    """
    if not totals:
        return Proof(asked=False, met=False)
    exact = [entry.minor for entry in book.entries if entry.exact and not entry.in_summary]
    above = exact[: min((exact.index(total) for total in totals if total in exact), default=len(exact))]
    goods = [minor for minor in above if minor]
    if not goods or len(goods) > GOODS_ASKED_MAX or max(map(abs, (*goods, *totals))) > REACH_MINOR_MAX:
        return Proof(asked=False, met=False)
    more = {0, *(abs(minor) for minor in exact if abs(minor) * TAX_SHARE_MAX < max(totals))}
    wanted = {
        total + sign * extra + off
        for total, extra, sign, off in product(
            totals, more, (1, -1), range(-CASH_STEP_MINOR, CASH_STEP_MINOR + 1)
        )
    }
    reached = {0}
    for minor in goods:
        reached |= {sum_ + minor for sum_ in reached}
    return Proof(asked=True, met=bool(wanted & (reached - {0})))
