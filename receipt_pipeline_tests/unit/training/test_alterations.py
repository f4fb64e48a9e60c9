"""Alterations of receipts: something is altered, the truth says so, and the rest stays."""

from __future__ import annotations

import random

import numpy as np
import pytest

from training.alterations import ALTERATIONS, alter_carefully, alter_carelessly, with_other_digit
from training.content import Content, draw_content
from training.draw import Wear, draw_receipt, paste_digit
from training.genuine_texts import content_of_text

GOODS = (
    *("SHOP SDN BHD", "QTY", "PRICE", "AMOUNT", "TEA", "2 X", "1.30", "2.60", "COFFEE", "1 X", "4.60", "4.60"),
    *("TOTAL", "7.20", "CASH", "10.00", "CHANGE", "2.80"),
)
BY_NAME = {one.name: one for one in ALTERATIONS}


def content(seed: int) -> Content:
    return draw_content(random.Random(seed))


@pytest.mark.parametrize("alter", [alter_carelessly, alter_carefully])
def test_a_forger_alters_the_receipt_and_the_truth_names_how(alter: type[object]) -> None:
    for seed in range(30):
        genuine = content(seed)
        altered = alter(genuine, random.Random(seed))  # type: ignore[call-arg]
        assert isinstance(altered, Content)
        assert altered.rows != genuine.rows
        assert (altered.truth["tampered"], altered.truth["alteration"] in BY_NAME) == (True, True)
        assert altered.truth["total_minor"] == genuine.truth["total_minor"]


def test_every_careless_alteration_comes_up() -> None:
    drawn = (alter_carelessly(content(seed), random.Random(f"t{seed}")) for seed in range(1500))
    assert {one.truth["alteration"] for one in drawn} == {one.name for one in ALTERATIONS if one.careless}


@pytest.mark.parametrize("name", [one.name for one in ALTERATIONS if one.texts_only])
def test_an_alteration_of_single_places_changes_what_it_names_and_little_else(name: str) -> None:
    genuine = content_of_text(GOODS)
    altered = BY_NAME[name].alter(genuine, random.Random(3))
    assert altered is not None
    before, after = ([row.cells[0].text for row in one.rows] for one in (genuine, altered))
    assert len(after) - len(before) == {"good_gone": -1, "good_again": 1}.get(name, 0)
    changed = sum(one != other for one, other in zip(before, after, strict=False))
    assert changed > 0
    if name in ("one_digit", "other_amount", "other_quantity"):
        assert changed == 1
    if name == "whole_good_and_totals":
        assert after[before.index("TOTAL") + 1] != "7.20"


def test_another_digit_is_put_over_one_and_no_zero_in_front() -> None:
    for seed in range(20):
        altered = with_other_digit("12.40", random.Random(seed), "0123")
        assert sum(one != other for one, other in zip("12.40", altered, strict=True)) == 1
        assert altered[0] != "0"


def test_a_receipt_that_offers_nothing_comes_back_as_it_was() -> None:
    bare = content_of_text(("HELLO", "THANK YOU"))
    altered = alter_carefully(bare, random.Random(1))
    assert (altered.rows, altered.truth["tampered"]) == (bare.rows, False)


def test_a_pasted_digit_changes_one_amount_of_the_picture_only() -> None:
    clean = draw_receipt(35, wear=Wear())
    altered = paste_digit(clean, random.Random(35))
    change = altered.truth["change"]
    assert change["was"] != change["now"]
    target = next(cell for cell in clean.cells if cell.text == change["was"])
    different = np.argwhere(np.asarray(clean.image) != np.asarray(altered.image))
    rows, columns = different[:, 0], different[:, 1]
    assert len(different) > 0
    assert rows.min() >= min(box[1] for box in target.boxes)
    assert rows.max() <= max(box[3] for box in target.boxes)
    assert columns.min() >= target.boxes[0][0]
    assert columns.max() <= target.boxes[-1][2]


def test_a_page_without_such_an_amount_cannot_be_altered_there() -> None:
    with pytest.raises(ValueError, match="no amount"):
        paste_digit(draw_receipt(35, wear=Wear()), random.Random(1), kinds=("phone",))
