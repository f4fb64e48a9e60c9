"""Numbers of a shop that check themselves or each other: register, postcode, telephone, article codes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Malaysian company register: seven digits, led by zeros, and the letter that their weighted sum gives.
# The eleventh letter, P, was seen once and with another sum than the one left for it, so it proves nothing.
REGISTERED = re.compile(r"\(? ?(?<!\d)(\d{5,7}) ?- ?([A-Z])\b(?!-)")
REGISTER_WEIGHTS = (8, 7, 6, 5, 4, 3, 2)
REGISTER_LETTERS = {1: "K", 2: "M", 3: "U", 4: "H", 5: "V", 6: "T", 7: "D", 8: "X", 9: "A", 10: "W"}
REGISTER_SUM_UNPROVEN = 0

POSTCODE = re.compile(r"(?<![\d.,/-])(\d{5})(?![\d.,/-]|-)(?=[ ,]*[A-Z])")
# First and last postcodes of each state (Pos Malaysia), several stretches where a state has them.
POSTCODES: dict[str, tuple[tuple[int, int], ...]] = {
    "PERLIS": ((1000, 2999),),
    "KEDAH": ((5000, 9999), (14290, 14390), (34950, 34950)),
    "PENANG": ((10000, 14999),),
    "KELANTAN": ((15000, 18999),),
    "TERENGGANU": ((20000, 24999),),
    "PAHANG": ((25000, 28999), (39000, 39200), (49000, 49000), (69000, 69000)),
    "PERAK": ((30000, 36999),),
    "SELANGOR": ((40000, 48999), (63000, 64999), (68000, 68199)),
    "KUALA LUMPUR": ((50000, 60999),),
    "PUTRAJAYA": ((62000, 62999),),
    "NEGERI SEMBILAN": ((70000, 73999),),
    "MELAKA": ((75000, 78999),),
    "JOHOR": ((79000, 86999),),
    "SABAH": ((88000, 91999),),
    "SARAWAK": ((93000, 98999),),
}
STATE_NAMES = {
    "PULAU PINANG": "PENANG",
    "JOHORE": "JOHOR",
    "MALACCA": "MELAKA",
    "N. SEMBILAN": "NEGERI SEMBILAN",
    "N.SEMBILAN": "NEGERI SEMBILAN",
    "WILAYAH PERSEKUTUAN": "KUALA LUMPUR",
    **{name: name for name in POSTCODES},
}
# Area codes of the fixed network by state; mobile and toll-free numbers say nothing of a place.
AREA_CODES: dict[str, frozenset[str]] = {
    "PERLIS": frozenset({"04"}),
    "KEDAH": frozenset({"04"}),
    "PENANG": frozenset({"04"}),
    "KELANTAN": frozenset({"09"}),
    "TERENGGANU": frozenset({"09"}),
    "PAHANG": frozenset({"09", "03", "05"}),
    "PERAK": frozenset({"05"}),
    "SELANGOR": frozenset({"03"}),
    "KUALA LUMPUR": frozenset({"03"}),
    "PUTRAJAYA": frozenset({"03"}),
    "NEGERI SEMBILAN": frozenset({"06"}),
    "MELAKA": frozenset({"06"}),
    "JOHOR": frozenset({"07", "06"}),
}
GST_NUMBER = re.compile(r"\bGST\D{0,14}?(00\d{2} ?\d{4} ?\d{4})(?!\d)")
GST_NUMBER_STEP = 4096
TELEPHONE = re.compile(r"(?:TEL|PHONE|FAX|HP|H/P|CONTACT)\D{0,12}((?:\+?6)?0\d[\d -]{6,12}\d)(?!\d)")
BARCODE = re.compile(r"(?<!\d)(955\d{10}|[4-8]9\d{11})(?!\d)")
BARCODE_DIGITS = 13


@dataclass(frozen=True, slots=True)
class ShopEvidence:
    """What the shop's numbers say; 0 or 1 each, 0 where the receipt prints none of the kind."""

    register_invalid: bool
    postcode_invalid: bool
    telephone_invalid: bool
    article_invalid: bool


def read_shop_numbers(texts: Sequence[str]) -> ShopEvidence:
    """Check the numbers of one receipt; texts in capitals, as printed."""
    states = {
        state for text in texts for name, state in STATE_NAMES.items() if re.search(rf"\b{name}\b", text)
    }
    return ShopEvidence(
        register_invalid=any(_is_register_invalid(text) for text in texts),
        postcode_invalid=_is_postcode_invalid(texts, states),
        telephone_invalid=any(_is_telephone_invalid(number, states) for number in _telephones(texts)),
        article_invalid=any(_is_article_invalid(code) for text in texts for code in BARCODE.findall(text)),
    )


def _is_register_invalid(text: str) -> bool:
    for digits, letter in REGISTERED.findall(text):
        weighted = sum(w * int(d) for w, d in zip(REGISTER_WEIGHTS, digits.zfill(7), strict=True)) % 11
        if letter in REGISTER_LETTERS.values() and weighted != REGISTER_SUM_UNPROVEN:
            return bool(letter != REGISTER_LETTERS[weighted])
    return False


def _is_postcode_invalid(texts: Sequence[str], states: set[str]) -> bool:
    """Report whether the receipt names states and its postcodes lie in none of them."""
    codes = {int(code) for text in texts for code in POSTCODE.findall(text)}
    if not (states and codes):
        return False
    stretches = [stretch for state in states for stretch in POSTCODES[state]]
    # Selangor and the capital within it are named for one another.
    if states & {"SELANGOR", "KUALA LUMPUR", "PUTRAJAYA"}:
        stretches += [*POSTCODES["SELANGOR"], *POSTCODES["KUALA LUMPUR"], *POSTCODES["PUTRAJAYA"]]
    return not any(low <= code <= high for code in codes for low, high in stretches)


def _telephones(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        for printed in TELEPHONE.findall(text):
            digits = re.sub(r"\D", "", printed)
            yield digits.removeprefix("6")


def _is_telephone_invalid(number: str, states: set[str]) -> bool:
    """Report whether a fixed number has too few or too many digits, or the area code of another state."""
    area = number[:2]
    if area in ("01", "00") or not states:
        return False
    wanted = 10 if area == "03" else 9
    codes = frozenset().union(*(AREA_CODES.get(state, frozenset({area})) for state in states))
    return len(number) != wanted or area not in codes


def _is_article_invalid(code: str) -> bool:
    """Report whether the last of thirteen digits is not the one that the others give (GS1)."""
    weighted = sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(code[:-1]))
    return (10 - weighted % 10) % 10 != int(code[-1])


def is_tax_number_invalid(rows: Sequence[str]) -> bool:
    """Report whether a Malaysian GST number of twelve digits is none that can have been given out.

    All that were seen on genuine receipts are multiples of 4096, which a number with altered digits
    hardly ever is.
    """
    numbers = {int(number.replace(" ", "")) for row in rows for number in GST_NUMBER.findall(row)}
    return any(number % GST_NUMBER_STEP for number in numbers)
