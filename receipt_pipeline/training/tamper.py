"""Training: tampering with invented receipts, in their content and in their drawn picture."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from receipt_pipeline.training.content import Cell, Content, Row
from receipt_pipeline.training.draw_receipts import DrawnReceipt

AMOUNT = re.compile(r"(?P<whole>\d[\d.,]*)(?P<point>[.,])(?P<cents>\d{2})(?!\d)")
DATE_KINDS = ("date", "print_date")
TOTAL_KINDS = ("total", "total_before")
SUM_KINDS = ("total", "total_before", "subtotal", "cash", "change", "tax", "tax_table")

Change = Callable[[str], str]


def tamper(content: Content, rng: random.Random) -> Content:
    """Alter one invented receipt as people do: one or a few values, the rest left as it was.

    The truth names the kind of alteration; truth values stay those of the genuine receipt.
    """
    kinds = list(ALTERATIONS)
    for kind in rng.sample(kinds, k=len(kinds)):
        if rng.random() > ALTERATIONS[kind][0]:
            continue
        altered = ALTERATIONS[kind][1](content, rng)
        if altered is not None:
            return replace(altered, truth={**content.truth, "tampered": True, "alteration": kind})
    return replace(
        _alter_amounts(content, rng, TOTAL_KINDS, everywhere=False) or content,
        truth={**content.truth, "tampered": True, "alteration": "total_once"},
    )


def paste_digit(
    drawn: DrawnReceipt, rng: random.Random, *, kinds: Sequence[str] = TOTAL_KINDS
) -> DrawnReceipt:
    """Copy a digit of the page over the first digit of one amount, as forgers do in the picture.

    Everything else stays as it was, so that the sums no longer fit. The page should not be worn yet.

    Raises:
        ValueError: when the page shows no amount of these kinds, or no other digit to copy.
    """
    targets = [cell for cell in drawn.cells if cell.kind in kinds and AMOUNT.search(cell.text)]
    if not targets:
        raise ValueError("the page shows no amount of these kinds")
    target = rng.choice(targets)
    at = next(at for at, character in enumerate(target.text) if character.isdigit())
    sources = [
        (character, box)
        for cell in drawn.cells
        for character, box in zip(cell.text, cell.boxes, strict=True)
        if character in "23456789" and character != target.text[at]
    ]
    if not sources:
        raise ValueError("the page shows no other digit")
    digit, (left, top, right, bottom) = rng.choice(sources)
    image = drawn.image.copy()
    image.paste(drawn.image.crop((left, top, right, bottom)), target.boxes[at][:2])
    now = target.text[:at] + digit + target.text[at + 1 :]
    change = {"was": target.text, "now": now}
    truth = {**drawn.truth, "tampered": True, "alteration": "pasted_digit", "change": change}
    return replace(drawn, image=image, truth=truth)


def _alter_rows(content: Content, chosen: Sequence[int], change: Change) -> Content | None:
    """Change the texts of the chosen rows; None when nothing changed."""
    rows = list(content.rows)
    for at in chosen:
        rows[at] = Row(rows[at].kind, tuple(replace(cell, text=change(cell.text)) for cell in rows[at].cells))
    return content.with_rows(rows) if tuple(rows) != content.rows else None


def _of_kind(content: Content, kinds: Sequence[str]) -> list[int]:
    return [at for at, row in enumerate(content.rows) if row.kind in kinds]


def _alter_amounts(
    content: Content, rng: random.Random, kinds: Sequence[str], *, everywhere: bool
) -> Content | None:
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
    places = _of_kind(
        content, ("phone", "tax_number", "registration", "address", "points", "condition", "number")
    )
    if not places:
        return None
    # The last digits: a number that begins otherwise than all others would be noticed.
    return _alter_rows(
        content,
        [rng.choice(places)],
        lambda text: re.sub(r"\d(?=\d?\b)", lambda _: str(rng.randrange(10)), text),
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


# Alterations with the probability that a forger who thinks of one carries it out.
ALTERATIONS: dict[str, tuple[float, Callable[[Content, random.Random], Content | None]]] = {
    "total_once": (0.5, lambda c, r: _alter_amounts(c, r, TOTAL_KINDS, everywhere=False)),
    "total_everywhere": (0.6, lambda c, r: _alter_amounts(c, r, TOTAL_KINDS, everywhere=True)),
    "item": (0.6, lambda c, r: _alter_amounts(c, r, ("item",), everywhere=False)),
    "item_and_total": (0.6, _alter_several),
    "sum": (0.4, lambda c, r: _alter_amounts(c, r, SUM_KINDS, everywhere=False)),
    "date_once": (0.6, lambda c, r: _alter_date(c, r, everywhere=False)),
    "date_everywhere": (0.8, lambda c, r: _alter_date(c, r, everywhere=True)),
    "time": (0.4, _alter_time),
    "number": (0.5, _alter_number),
    "quantity": (0.4, _alter_quantity),
    "cut": (0.4, _cut_row),
    "currency": (0.15, _alter_currency),
}
