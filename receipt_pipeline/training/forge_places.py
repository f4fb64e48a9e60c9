"""Training: forgers who change single places of a receipt's money, wherever they stand, and little else.

With those of `forge` they are the forgers of `chain-v4`: goods are altered as often as sums.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from receipt_pipeline.training.content import Content, Row
from receipt_pipeline.training.forge import MONEY, TOTALS, Forge, shifted, step_minor
from receipt_pipeline.training.tamper import AMOUNT

AMOUNT_KINDS = (
    *("item", "total", "total_before", "subtotal", "cash", "change", "tax", "tax_table"),
    *("amount", "discount", "rounding", "service"),
)
QUANTITY_KINDS = ("item", "text", "number", "count")
QUANTITY = re.compile(r"\s*(?P<pieces>\d{1,2})(?: ?X\b.*| ?[X@*].*|\s*)$")
# Price and amount of one good stand within so many rows.
GOOD_ROWS = 4


@dataclass(frozen=True, slots=True)
class _Place:
    """One printed amount: its row, its cell, and where in the cell's text it stands."""

    row: int
    cell: int
    match: re.Match[str]


def _places(content: Content, kinds: Sequence[str]) -> list[_Place]:
    return [
        _Place(at, index, match)
        for at, row in enumerate(content.rows)
        if row.kind in kinds
        for index, cell in enumerate(row.cells)
        for match in AMOUNT.finditer(cell.text)
    ]


def _put(content: Content, row: int, cell: int, text: str) -> Content:
    """Return the content with another text in one cell."""
    rows, cells = list(content.rows), list(content.rows[row].cells)
    cells[cell] = replace(cells[cell], text=text)
    rows[row] = Row(rows[row].kind, tuple(cells))
    return content.with_rows(rows)


def _over(content: Content, place: _Place, printed: str) -> Content:
    text, match = content.rows[place.row].cells[place.cell].text, place.match
    return _put(content, place.row, place.cell, text[: match.start()] + printed + text[match.end() :])


def _texts(content: Content) -> Iterator[str]:
    return (cell.text for row in content.rows for cell in row.cells)


def with_other_digit(printed: str, rng: random.Random, pool: Sequence[str]) -> str:
    """Return an amount with one digit from the pool put over another, but the last; no zero in front."""
    digits = [at for at, character in enumerate(printed) if character.isdigit()]
    at = rng.choice(digits[:-1] or digits)
    fitting = [one for one in pool if one != printed[at] and not (at == digits[0] and one == "0")]
    return printed[:at] + rng.choice(fitting) + printed[at + 1 :]


def one_digit(content: Content, rng: random.Random) -> Content | None:
    """Put a digit of the page over one digit of one amount, in one place."""
    pool = [character for text in _texts(content) for character in text if character.isdigit()]
    place = rng.choice(_places(content, AMOUNT_KINDS))
    return _over(content, place, with_other_digit(place.match.group(0), rng, pool))


def _two_digits(content: Content, rng: random.Random) -> Content | None:
    first = one_digit(content, rng)
    return first and one_digit(first, rng)


def _other_amount(content: Content, rng: random.Random) -> Content | None:
    """Put an amount of the page over another."""
    places = _places(content, AMOUNT_KINDS)
    place = rng.choice(places)
    others = [one.match.group(0) for one in places if one.match.group(0) != place.match.group(0)]
    return _over(content, place, rng.choice(others))


def _whole_good(content: Content, rng: random.Random) -> Content | None:
    """Change an amount of one good wherever it stands near, as price and as amount."""
    place = rng.choice(_places(content, ("item",)))
    before = place.match.group(0)
    after = with_other_digit(before, rng, "123456789")
    pattern = re.compile(rf"(?<![\d.,]){re.escape(before)}(?!\d)")
    near = range(place.row - GOOD_ROWS, place.row + GOOD_ROWS + 1)
    rows = [
        Row(row.kind, tuple(replace(cell, text=pattern.sub(after, cell.text)) for cell in row.cells))
        if at in near
        else row
        for at, row in enumerate(content.rows)
    ]
    return content.with_rows(rows)


def _whole_good_and_totals(content: Content, rng: random.Random) -> Content | None:
    """Change one good and move the totals, at times what was given too, by as much."""
    altered = _whole_good(content, rng)
    if altered is None:
        return None
    moved = {
        _sum_minor(after) - _sum_minor(before)
        for before, after in zip(content.rows, altered.rows, strict=True)
        if before != after
    }
    kinds = TOTALS if rng.random() < 0.5 else (*TOTALS, "cash")
    return shifted(altered, rng, kinds, max(moved, key=abs)) or altered


def _sum_minor(row: Row) -> int:
    found = (match for cell in row.cells for match in AMOUNT.finditer(cell.text))
    return sum(int(re.sub(r"\D", "", match["whole"])) * 100 + int(match["cents"]) for match in found)


def _totals_and_one_digit(content: Content, rng: random.Random) -> Content | None:
    moved = shifted(content, rng, TOTALS, step_minor(rng))
    return moved and one_digit(moved, rng)


def _other_quantity(content: Content, rng: random.Random) -> Content | None:
    """Change how many pieces of a good were sold, and nothing that follows from it."""
    found = [
        (at, index, match)
        for at, row in enumerate(content.rows)
        if row.kind in QUANTITY_KINDS
        for index, cell in enumerate(row.cells)
        if (match := QUANTITY.match(cell.text))
    ]
    row, cell, match = rng.choice(found)
    text = content.rows[row].cells[cell].text
    pieces = rng.choice([one for one in range(1, 10) if one != int(match["pieces"])])
    return _put(content, row, cell, f"{text[: match.start('pieces')]}{pieces}{text[match.end('pieces') :]}")


def _row_of_goods(content: Content, rng: random.Random) -> int:
    return rng.choice([at for at, row in enumerate(content.rows) if row.kind == "item"])


def _good_gone(content: Content, rng: random.Random) -> Content | None:
    gone = _row_of_goods(content, rng)
    return content.with_rows([row for at, row in enumerate(content.rows) if at != gone])


def _good_again(content: Content, rng: random.Random) -> Content | None:
    again = _row_of_goods(content, rng)
    return content.with_rows([*content.rows[: again + 1], *content.rows[again:]])


MONEY_ANYWHERE: dict[str, Forge] = {
    **MONEY,
    "one_digit": one_digit,
    "two_digits": _two_digits,
    "other_amount": _other_amount,
    "whole_good": _whole_good,
    "whole_good_and_totals": _whole_good_and_totals,
    "totals_and_one_digit": _totals_and_one_digit,
    "other_quantity": _other_quantity,
    "good_gone": _good_gone,
    "good_again": _good_again,
}
