"""Training: forgers who keep some of the sums, which is what makes their work hard to see."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from receipt_pipeline.training.content import Content, Row
from receipt_pipeline.training.tamper import ALTERATIONS, AMOUNT

TOTALS = ("total", "total_before", "subtotal")
PAID = ("cash", "change")
MONEY_SHARE, CLOCK_SHARE = 0.55, 0.33
# Smaller amounts in a table of taxes are mostly the tax, larger ones its base.
TAXED_MINOR_MIN = 1000
STEPS_MINOR = (100, 200, 500, 1000, 1000, 2000, 3000, 5000, 10000, 10000, 30000, 50000)
Forge = Callable[[Content, random.Random], Content | None]


def forge(content: Content, rng: random.Random, *, money: Mapping[str, Forge] | None = None) -> Content:
    """Alter a receipt as people do: mostly its money, often its clock, at times something else.

    Money is altered in the ways of `money`, those of this module by default.

    Receipts that offer nothing of the chosen kind are altered in another way; one that offers nothing
    at all comes back as it was, with a truth that says so.
    """
    ways_of_money = MONEY if money is None else money
    share = rng.random()
    first = ways_of_money if share < MONEY_SHARE else CLOCK if share < MONEY_SHARE + CLOCK_SHARE else REST
    for ways in (first, ways_of_money, CLOCK, REST):
        for name in rng.sample(sorted(ways), k=len(ways)):
            altered = _tried(ways[name], content, rng)
            if altered is not None and altered.rows != content.rows:
                return replace(altered, truth={**content.truth, "tampered": True, "alteration": name})
    return replace(content, truth={**content.truth, "tampered": False})


def _tried(way: Forge, content: Content, rng: random.Random) -> Content | None:
    try:
        return way(content, rng)
    except (IndexError, ValueError):  # The receipt has no row of the kind that this way begins with.
        return None


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
        else moved.with_rows(
            [Row(row.kind, one.cells) if one.kind == "chosen" else one for one in moved.rows]
        )
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


def _of_tamper(*names: str) -> dict[str, Forge]:
    return {name: ALTERATIONS[name][1] for name in names}


MONEY: dict[str, Forge] = {
    **_of_tamper(
        "total_once", "total_everywhere", "item", "item_and_total", "sum", "quantity", "cut", "currency"
    ),
    "totals_only": _totals_only,
    "totals_and_paid": _totals_and_paid,
    "totals_and_change": _totals_and_change,
    "good_and_totals": _good_and_totals,
    "good_totals_and_paid": _good_totals_and_paid,
    "all_but_tax": _all_but_tax,
    "paid": _paid,
}
CLOCK: dict[str, Forge] = {
    **_of_tamper("date_once", "date_everywhere", "time"),
    "half_of_day": _half_of_day,
}
REST: dict[str, Forge] = _of_tamper("number")
