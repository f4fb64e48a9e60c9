"""Stage extract, rules part: what the chain revisions do differently, so that an older one never changes."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class ExtractRules:
    """The rules that came after `chain-v1`; all of them are off there.

    `names_above_numbers`: a line right above a bare company number is the name.
    `mends_headers`: brackets, stops and blanks in name and address are mended where their form proves it.
    `knows_branches`: a branch's name above an address that repeats it is no part of it; below, it is.
    `knows_item_heads`: the head of the columns of goods opens no table of taxes.
    `tells_payment`: how the receipt was paid is a field.
    `knows_buddhist_years`: a year of the Buddhist era is read as such.
    """

    names_above_numbers: bool = False
    mends_headers: bool = False
    knows_branches: bool = False
    knows_item_heads: bool = False
    tells_payment: bool = False
    knows_buddhist_years: bool = False


RULES_V1 = ExtractRules()
RULES_V2 = ExtractRules(**{rule.name: True for rule in fields(ExtractRules)})
