"""Ways in which people alter receipts, in one table: careless ones, and those that keep some of the sums."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from training.content import Cell, Content, Row

AMOUNT = re.compile(r"(?P<whole>\d[\d.,]*)(?P<point>[.,])(?P<cents>\d{2})(?!\d)")
DATE_KINDS = ("date", "print_date")
TOTAL_KINDS = ("total", "total_before")
SUM_KINDS = ("total", "total_before", "subtotal", "cash", "change", "tax", "tax_table")
TOTALS = ("total", "total_before", "subtotal")
PAID = ("cash", "change")
MONEY_SHARE, CLOCK_SHARE = 0.55, 0.33
# Smaller amounts in a table of taxes are mostly the tax, larger ones its base.
TAXED_MINOR_MIN = 1000
STEPS_MINOR = (100, 200, 500, 1000, 1000, 2000, 3000, 5000, 10000, 10000, 30000, 50000)
Alter = Callable[[Content, random.Random], Content | None]
AMOUNT_KINDS = (
    *("item", "total", "total_before", "subtotal", "cash", "change", "tax", "tax_table"),
    *("amount", "discount", "rounding", "service"),
)
QUANTITY_KINDS = ("item", "text", "number", "count")
QUANTITY = re.compile(r"\s*(?P<pieces>\d{1,2})(?: ?X\b.*| ?[X@*].*|\s*)$")
# Price and amount of one good stand within so many rows.
GOOD_ROWS = 4


def _alter_rows(content: Content, chosen: Sequence[int], change: Callable[[str], str]) -> Content | None:
    """Change the texts of the chosen rows; None when nothing changed."""
    rows = list(content.rows)
    for at in chosen:
        rows[at] = Row(rows[at].kind, tuple(replace(cell, text=change(cell.text)) for cell in rows[at].cells))
    return content.with_rows(rows) if tuple(rows) != content.rows else None


def _of_kind(content: Content, kinds: Sequence[str]) -> list[int]:
    return [at for at, row in enumerate(content.rows) if row.kind in kinds]


def _alter_amounts(content: Content, rng: random.Random, kinds: Sequence[str], *, everywhere: bool) -> Content | None:
    """Change one amount in a row of these kinds, at one place or wherever the same amount is printed."""
    places = _of_kind(content, kinds)
    if not places:
        return None
    at = rng.choice(places)
    found = [match.group(0) for cell in content.rows[at].cells for match in AMOUNT.finditer(cell.text)]
    if not found:
        return None
    before = found[-1]
    after = _other_amount(before, rng)
    if not everywhere:
        return _alter_rows(content, [at], lambda text: text.replace(before, after))
    pattern = re.compile(rf"(?<![\d.,]){re.escape(before)}(?!\d)")
    return _alter_rows(content, range(len(content.rows)), lambda text: pattern.sub(after, text))


def _other_amount(printed: str, rng: random.Random) -> str:
    """Return the amount with a digit replaced, put in front, or the whole retyped."""
    digits = [at for at, character in enumerate(printed) if character.isdigit()]
    style = rng.random()
    if style < 0.25:
        return f"{rng.randrange(1, 10)}{printed}"
    at = digits[0] if style < 0.75 else rng.choice(digits)
    return printed[:at] + rng.choice([d for d in "123456789" if d != printed[at]]) + printed[at + 1 :]


def _alter_date(content: Content, rng: random.Random, *, everywhere: bool) -> Content | None:
    """Change day, month or year of the printed date; a careless forger may leave no such day."""
    places = _of_kind(content, DATE_KINDS)
    printed = content.rows[_of_kind(content, ("date",))[0]]
    text = " ".join(cell.text for cell in printed.cells)
    match = re.search(r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}|\d{1,2} [A-Z]{3} \d{4}", text, re.IGNORECASE)
    if match is None:
        return None
    before = match.group(0)
    after = _other_date(before, rng)
    chosen = range(len(content.rows)) if everywhere else [rng.choice(places)]
    return _alter_rows(content, chosen, lambda cell: cell.replace(before, after))


def _other_date(before: str, rng: random.Random) -> str:
    parts = list(re.finditer(r"\d+", before))
    year = max(parts, key=lambda part: (len(part.group(0)), part.start()))
    # A changed year serves an old receipt again; day and month move it into a period.
    part = year if rng.random() < 0.4 else rng.choice([part for part in parts if part is not year] or parts)
    old = part.group(0)
    if part is year:
        new = str(int(old) + rng.choice([-3, -2, -1, 1, 1, 2, 2, 3, 4]))
    elif rng.random() < 0.15:
        new = str(rng.randrange(13, 40))
    else:
        new = str(rng.randrange(1, 13 if rng.random() < 0.5 else 29))
    new = new.zfill(len(old))[-max(len(old), 2) :]
    return before[: part.start()] + new + before[part.end() :]


def _alter_time(content: Content, rng: random.Random) -> Content | None:
    places = _of_kind(content, ("date",))
    swap = {"AM": "PM", "PM": "AM"}

    def change(text: str) -> str:
        if rng.random() < 0.5:
            return re.sub(r"\b(AM|PM)\b", lambda half: swap[half.group(0)], text)
        return re.sub(r"(\d)(:\d{2})", lambda m: f"{(int(m.group(1)) + 3) % 10}{m.group(2)}", text, count=1)

    return _alter_rows(content, places, change)


def _alter_number(content: Content, rng: random.Random) -> Content | None:
    """Change a digit where no sum tells of it: telephone, tax number, address, points, conditions."""
    places = _of_kind(content, ("phone", "tax_number", "registration", "address", "points", "condition", "number"))
    if not places:
        return None
    # The last digits: a number that begins otherwise than all others would be noticed.
    return _alter_rows(
        content, [rng.choice(places)], lambda text: re.sub(r"\d(?=\d?\b)", lambda _: str(rng.randrange(10)), text)
    )


def _alter_quantity(content: Content, rng: random.Random) -> Content | None:
    places = _of_kind(content, ("item", "count"))
    at = rng.choice(places)
    cells = list(content.rows[at].cells)
    for index, cell in enumerate(cells):
        match = re.match(r"(\d{1,2})(?= ?[Xx@]|$)", cell.text)
        if match:
            cells[index] = Cell(f"{rng.randrange(2, 30)}{cell.text[match.end() :]}", cell.at, cell.right)
            rows = list(content.rows)
            rows[at] = Row(rows[at].kind, tuple(cells))
            return content.with_rows(rows)
    return None


def _cut_row(content: Content, rng: random.Random) -> Content | None:
    """Remove one item or one line of the sums."""
    places = _of_kind(content, ("item", "item", "cash", "change", "subtotal"))
    if len(places) < 2:
        return None
    at = rng.choice(places)
    return content.with_rows([row for index, row in enumerate(content.rows) if index != at])


def _alter_several(content: Content, rng: random.Random) -> Content | None:
    """Change an item and the total, but not all that hangs on them."""
    first = _alter_amounts(content, rng, ("item",), everywhere=False)
    return None if first is None else _alter_amounts(first, rng, TOTAL_KINDS, everywhere=True)


def _alter_currency(content: Content, rng: random.Random) -> Content | None:
    """Pass the amounts off as those of a dearer currency."""
    mark = rng.choice(["EUR ", "€"])
    return _alter_rows(content, range(len(content.rows)), lambda text: re.sub(r"RM ?(?=\d)", mark, text))


def shifted(
    content: Content, rng: random.Random, kinds: Sequence[str], shift_minor: int, *, floor_minor: int = 0
) -> Content | None:
    """Move every amount of at least the floor in rows of these kinds by the same sum.

    None where nothing moves. Raises ValueError where an amount would vanish.
    """
    rows, moved = [], 0
    for row in content.rows:
        if row.kind not in kinds:
            rows.append(row)
            continue
        cells = tuple(
            replace(cell, text=AMOUNT.sub(lambda m: _moved(m, shift_minor, floor_minor), cell.text))
            for cell in row.cells
        )
        moved += cells != row.cells
        rows.append(Row(row.kind, cells))
    return content.with_rows(rows) if moved else None


def _moved(match: re.Match[str], shift_minor: int, floor_minor: int) -> str:
    whole = re.sub(r"\D", "", match["whole"])
    minor = int(whole) * 100 + int(match["cents"])
    if minor < floor_minor:
        return match.group(0)
    minor += shift_minor
    if minor <= 0:
        raise ValueError("the amount would vanish")
    return f"{minor // 100}{match['point']}{minor % 100:02d}"


def step_minor(rng: random.Random) -> int:
    """Return by how much a forger moves an amount, in minor units: mostly up, mostly round."""
    return rng.choice(STEPS_MINOR) * rng.choice([1, 1, 1, -1])


def _totals_only(content: Content, rng: random.Random) -> Content | None:
    return shifted(content, rng, TOTALS, step_minor(rng))


def _totals_and_paid(content: Content, rng: random.Random) -> Content | None:
    """Move the totals and what was given, so that the change still fits."""
    return shifted(content, rng, (*TOTALS, "cash"), step_minor(rng))


def _totals_and_change(content: Content, rng: random.Random) -> Content | None:
    """Move the totals up and the change down."""
    step = step_minor(rng)
    first = shifted(content, rng, TOTALS, step)
    return None if first is None else shifted(first, rng, ("change",), -step) or first


def _one_good(content: Content, rng: random.Random, step: int) -> Content | None:
    at = rng.choice([at for at, row in enumerate(content.rows) if row.kind == "item"])
    row = content.rows[at]
    marked = content.with_rows([*content.rows[:at], Row("chosen", row.cells), *content.rows[at + 1 :]])
    moved = shifted(marked, rng, ("chosen",), step)
    return (
        None
        if moved is None
        else moved.with_rows([Row(row.kind, one.cells) if one.kind == "chosen" else one for one in moved.rows])
    )


def _good_and_totals(content: Content, rng: random.Random) -> Content | None:
    """Move one of the goods and the totals with it; the tax and the table of taxes stay."""
    step = step_minor(rng)
    first = _one_good(content, rng, step)
    return None if first is None else shifted(first, rng, TOTALS, step) or first


def _good_totals_and_paid(content: Content, rng: random.Random) -> Content | None:
    step = step_minor(rng)
    first = _one_good(content, rng, step)
    second = None if first is None else shifted(first, rng, (*TOTALS, "cash"), step)
    return second or first


def _all_but_tax(content: Content, rng: random.Random) -> Content | None:
    """Move goods, totals and the taxed base together; only the tax itself stays."""
    step = step_minor(rng)
    first = _one_good(content, rng, step)
    second = None if first is None else shifted(first, rng, (*TOTALS, "cash"), step)
    if second is None:
        return first
    return shifted(second, rng, ("tax_table",), step, floor_minor=TAXED_MINOR_MIN) or second


def _paid(content: Content, rng: random.Random) -> Content | None:
    return shifted(content, rng, (rng.choice(PAID),), step_minor(rng))


def _half_of_day(content: Content, rng: random.Random) -> Content | None:
    swap = {"AM": "PM", "PM": "AM"}
    rows = [
        Row(
            row.kind,
            tuple(
                replace(cell, text=re.sub(r"(?<=\d)( ?)(AM|PM)\b", lambda m: m[1] + swap[m[2]], cell.text))
                for cell in row.cells
            ),
        )
        for row in content.rows
    ]
    return content.with_rows(rows)


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


def _one_digit(content: Content, rng: random.Random) -> Content | None:
    """Put a digit of the page over one digit of one amount, in one place."""
    pool = [character for text in _texts(content) for character in text if character.isdigit()]
    place = rng.choice(_places(content, AMOUNT_KINDS))
    return _over(content, place, with_other_digit(place.match.group(0), rng, pool))


def _two_digits(content: Content, rng: random.Random) -> Content | None:
    first = _one_digit(content, rng)
    return first and _one_digit(first, rng)


def _amount_over_another(content: Content, rng: random.Random) -> Content | None:
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
    return moved and _one_digit(moved, rng)


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


@dataclass(frozen=True, slots=True)
class Alteration:
    """One way of altering a receipt; None where the receipt offers nothing of its kind.

    Attributes:
        subject: `money`, `clock` or `number`: what a careful forger picks first.
        careless: with which probability a careless forger who thinks of it carries it out, 0 for never.
        texts_only: made for genuine texts, because drawn receipts print too few of its places.
    """

    name: str
    subject: str
    alter: Alter
    careless: float = 0.0
    texts_only: bool = False


# The order decides what equal seeds draw.
ALTERATIONS = (
    Alteration("total_once", "money", lambda c, r: _alter_amounts(c, r, TOTAL_KINDS, everywhere=False), 0.5),
    Alteration("total_everywhere", "money", lambda c, r: _alter_amounts(c, r, TOTAL_KINDS, everywhere=True), 0.6),
    Alteration("item", "money", lambda c, r: _alter_amounts(c, r, ("item",), everywhere=False), 0.6),
    Alteration("item_and_total", "money", _alter_several, 0.6),
    Alteration("sum", "money", lambda c, r: _alter_amounts(c, r, SUM_KINDS, everywhere=False), 0.4),
    Alteration("date_once", "clock", lambda c, r: _alter_date(c, r, everywhere=False), 0.6),
    Alteration("date_everywhere", "clock", lambda c, r: _alter_date(c, r, everywhere=True), 0.8),
    Alteration("time", "clock", _alter_time, 0.4),
    Alteration("number", "number", _alter_number, 0.5),
    Alteration("quantity", "money", _alter_quantity, 0.4),
    Alteration("cut", "money", _cut_row, 0.4),
    Alteration("currency", "money", _alter_currency, 0.15),
    Alteration("totals_only", "money", _totals_only),
    Alteration("totals_and_paid", "money", _totals_and_paid),
    Alteration("totals_and_change", "money", _totals_and_change),
    Alteration("good_and_totals", "money", _good_and_totals),
    Alteration("good_totals_and_paid", "money", _good_totals_and_paid),
    Alteration("all_but_tax", "money", _all_but_tax),
    Alteration("paid", "money", _paid),
    Alteration("half_of_day", "clock", _half_of_day),
    Alteration("one_digit", "money", _one_digit, texts_only=True),
    Alteration("two_digits", "money", _two_digits, texts_only=True),
    Alteration("other_amount", "money", _amount_over_another, texts_only=True),
    Alteration("whole_good", "money", _whole_good, texts_only=True),
    Alteration("whole_good_and_totals", "money", _whole_good_and_totals, texts_only=True),
    Alteration("totals_and_one_digit", "money", _totals_and_one_digit, texts_only=True),
    Alteration("other_quantity", "money", _other_quantity, texts_only=True),
    Alteration("good_gone", "money", _good_gone, texts_only=True),
    Alteration("good_again", "money", _good_again, texts_only=True),
)


def alter_carelessly(content: Content, rng: random.Random) -> Content:
    """Alter one receipt in one or a few values and leave the rest as it was.

    The truth names the alteration; truth values stay those of the genuine receipt.
    """
    ways = [way for way in ALTERATIONS if way.careless]
    for way in rng.sample(ways, k=len(ways)):
        if rng.random() > way.careless:
            continue
        altered = way.alter(content, rng)
        if altered is not None:
            return _as_altered(altered, content, way.name)
    fallback = _alter_amounts(content, rng, TOTAL_KINDS, everywhere=False) or content
    return _as_altered(fallback, content, "total_once")


def alter_carefully(content: Content, rng: random.Random, *, genuine_text: bool = False) -> Content:
    """Alter a receipt as people do: mostly its money, often its clock, at times something else.

    A receipt that offers nothing of the chosen kind is altered in another way; one that offers nothing
    at all comes back as it was, with a truth that says so.
    """
    share = rng.random()
    first = "money" if share < MONEY_SHARE else "clock" if share < MONEY_SHARE + CLOCK_SHARE else "number"
    for subject in (first, "money", "clock", "number"):
        ways = [one for one in ALTERATIONS if one.subject == subject and (genuine_text or not one.texts_only)]
        for way in rng.sample(sorted(ways, key=lambda one: one.name), k=len(ways)):
            altered = _attempt(way.alter, content, rng)
            if altered is not None and altered.rows != content.rows:
                return _as_altered(altered, content, way.name)
    return replace(content, truth={**content.truth, "tampered": False})


def _as_altered(altered: Content, content: Content, name: str) -> Content:
    return replace(altered, truth={**content.truth, "tampered": True, "alteration": name})


def _attempt(alter: Alter, content: Content, rng: random.Random) -> Content | None:
    try:
        return alter(content, rng)
    except (IndexError, ValueError):  # The receipt has no row of the kind that this way begins with.
        return None
