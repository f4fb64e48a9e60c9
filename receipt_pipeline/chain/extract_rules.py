"""Stage extract, rules part: what the chain revisions do differently, so that an older one never changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class ExtractRules:
    """The rules that came after `chain-v1`; all of them are off there.

    `names_above_numbers`: a line right above a bare company number is the name.
    `mends_headers`: brackets, stops and blanks in name and address are mended where their form proves it.
    `knows_branches`: a branch's name above an address that repeats it is no part of it; below, it is.
    `knows_item_heads`: the head of the columns of goods opens no table of taxes.
    `tells_payment`: how the receipt was paid is a field.
    `knows_buddhist_years`: a year of the Buddhist era is read as such.

    Since `chain-v3`:
    `knows_cjk_labels`: sums are named in Chinese, Japanese and Korean too.
    `knows_lakh_groups`: 1,23,456.00 is one amount, grouped as in India.
    `tells_receipts_apart`: receipts side by side in one picture are several.

    Since `chain-v4`:
    `mends_marks`: a letter in the place of the `$` that the receipt prints elsewhere is that mark.
    `mends_name_digits`: a digit that was read for a letter inside the name of the shop is that letter.
    """

    names_above_numbers: bool = False
    mends_headers: bool = False
    knows_branches: bool = False
    knows_item_heads: bool = False
    tells_payment: bool = False
    knows_buddhist_years: bool = False
    knows_cjk_labels: bool = False
    knows_lakh_groups: bool = False
    tells_receipts_apart: bool = False
    mends_marks: bool = False
    mends_name_digits: bool = False

    def as_document(self) -> dict[str, bool]:
        """Return the rules as plain JSON, for the chain revision; what came later is left out where off."""
        return {name: on for name, on in asdict(self).items() if on or name not in SINCE_V3 | SINCE_V4}


SINCE_V3 = frozenset({"knows_cjk_labels", "knows_lakh_groups", "tells_receipts_apart"})
SINCE_V4 = frozenset({"mends_marks", "mends_name_digits"})


def _all_but(later: frozenset[str]) -> ExtractRules:
    return ExtractRules(**{rule.name: True for rule in fields(ExtractRules) if rule.name not in later})


RULES_V1 = ExtractRules()
RULES_V2 = _all_but(SINCE_V3 | SINCE_V4)
RULES_V3 = _all_but(SINCE_V4)
RULES_V4 = _all_but(frozenset())
