"""Tampering with invented receipts: something is altered, the truth says so, and the rest stays."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from receipt_pipeline.chain.release import shipped_releases
from receipt_pipeline.chain.risk import load_risk_model
from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.training.content import Content, draw_content
from receipt_pipeline.training.draw_receipts import Wear, draw_receipt
from receipt_pipeline.training.tamper import ALTERATIONS, paste_digit, tamper
from receipt_pipeline.training.train_risk_model import NOT_LEARNED, Recipe, draw_example, learn, write_model
from receipt_pipeline.training.write_releases import write_releases


def content(seed: int) -> Content:
    """An invented receipt."""
    return draw_content(random.Random(seed))


@pytest.mark.parametrize("seed", range(30))
def test_tampering_alters_the_receipt_and_names_how(seed: int) -> None:
    genuine = content(seed)
    altered = tamper(genuine, random.Random(seed))
    assert altered.rows != genuine.rows
    assert altered.truth["tampered"] is True
    assert altered.truth["alteration"] in ALTERATIONS
    assert altered.truth["total_minor"] == genuine.truth["total_minor"]


def test_every_alteration_comes_up() -> None:
    kinds = {tamper(content(seed), random.Random(f"t{seed}")).truth["alteration"] for seed in range(1500)}
    assert kinds == set(ALTERATIONS)


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


def test_examples_depend_on_seed_and_number_alone() -> None:
    assert draw_example(7, 3) == draw_example(7, 3)
    assert draw_example(7, 3) != draw_example(7, 5)


def test_a_model_is_learned_the_same_twice_and_weighs_by_meaning(tmp_path: Path) -> None:
    recipe = Recipe("2026-10", seed=5, receipts=60, penalty_inverse=0.1, left_out=NOT_LEARNED)
    document = learn(recipe)
    assert canonical_json(learn(recipe)) == canonical_json(document)
    weights = dict(zip(document["features"], document["coef"], strict=True))
    assert weights["items_failed"] > 0
    assert not NOT_LEARNED & weights.keys()
    digest = write_model(document, tmp_path / "models")
    assert load_risk_model(tmp_path / "models" / f"{digest[7:]}.json", digest).features == tuple(weights)


def test_releases_are_written_for_the_models_that_were_learned(tmp_path: Path) -> None:
    recipe = Recipe("2026-10", seed=5, receipts=40, penalty_inverse=0.1, left_out=NOT_LEARNED)
    digests = [
        write_model({**learn(recipe), "name": name}, tmp_path / "models")
        for name in ("2026-10", "2026-11", "2026-12", "2027-01", "2027-02")
    ]
    write_releases(tmp_path)
    shipped = shipped_releases(tmp_path, image_digest="sha256:" + "c" * 64)
    assert [one.release.risk_model_digest for one in shipped] == digests
    assert "chain-v1" in (tmp_path / "releases" / "2026-11.json").read_text()
