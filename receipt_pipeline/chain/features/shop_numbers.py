"""Numbers of a shop that check themselves or each other: register, postcode, telephone, article codes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Malaysian company register: seven digits, led by zeros, and the letter that their weighted sum gives.
# The eleventh letter, P, was seen once and with another sum than the one left for it, so it proves nothing.
REGISTERED = re.compile(r"\(? ?(?<!\d)(\d{5,7}) ?- ?([A-Z])\b(?!-)")
REGISTER_WEIGHTS = (8, 7, 6, 5, 4, 3, 2)
REGISTER_LETTERS = {1: "K", 2: "M", 3: "U", 4: "H", 5: "V", 6: "T", 7: "D", 8: "X", 9: "A", 10: "W"}
REGISTER_SUM_UNPROVEN = 0

POSTCODE = re.compile(r"(?<![\d.,/-])(\d{5})(?![\d.,/-]|-)(?=[ ,]*[A-Z])")
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
POSTCODES: dict[str, list[tuple[int, int]]] = {
    state: [(low, high) for low, high in stretches] for state, stretches in _TABLES["postcodes"].items()
}
STATE_NAMES: dict[str, str] = {**_TABLES["other_names"], **{name: name for name in POSTCODES}}
AREA_CODES = {state: frozenset(codes) for state, codes in _TABLES["area_codes"].items()}
GST_NUMBER = re.compile(r"\bGST\D{0,14}?(00\d{2} ?\d{4} ?\d{4})(?!\d)")
GST_NUMBER_STEP = 4096
TELEPHONE = re.compile(r"(?:TEL|PHONE|FAX|HP|H/P|CONTACT)\D{0,12}((?:\+?6)?0\d[\d -]{6,12}\d)(?!\d)")
BARCODE = re.compile(r"(?<!\d)(955\d{10}|[4-8]9\d{11})(?!\d)")


@dataclass(frozen=True, slots=True)
class ShopEvidence:
    """What the shop's numbers say; 0 or 1 each, 0 where the receipt prints none of the kind."""

    register_invalid: bool
    postcode_invalid: bool
    telephone_invalid: bool
    article_invalid: bool


def read_shop_numbers(texts: Sequence[str]) -> ShopEvidence:
    """Check the numbers of one receipt; texts in capitals, as printed."""
    states = {state for text in texts for name, state in STATE_NAMES.items() if re.search(rf"\b{name}\b", text)}
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
    """Report whether the receipt names states and its postcodes belong to none of them."""
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
