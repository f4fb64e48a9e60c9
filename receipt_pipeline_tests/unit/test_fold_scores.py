"""Folds of a training: kept apart by shop, and scored each on what its fit had not seen."""

from __future__ import annotations

import json
from pathlib import Path

from receipt_pipeline.training.fold_scores import FOLDS, fold_of, fold_scores

SHIPPED_FOLDS = Path(__file__).parents[2] / "data/folds"
GROUPS = [f"shop {number}" for number in range(30)]


def test_every_example_is_held_out_once_and_a_shop_only_in_its_fold() -> None:
    groups = [group for group in GROUPS for _ in range(4)]
    tampered = [False, True, False, True] * len(GROUPS)
    real = [True, True, False, False] * len(GROUPS)
    # Altered ones rank above the others among the texts, and the other way round among the drawn ones.
    log_odds = [0.0, 1.0, 1.0, 0.0] * len(GROUPS)
    scores = fold_scores(groups, tampered, real, log_odds)
    assert [score["fold"] for score in scores] == list(range(FOLDS))
    assert sum(score["shops"] for score in scores) == len(GROUPS)
    assert {(score["auc_texts"], score["auc_drawn"]) for score in scores} == {(1.0, 0.0)}
    for score in scores:
        assert score["texts"] == score["drawn"] == score["altered"] == 2 * score["shops"]


def test_a_fold_without_one_of_the_classes_has_no_area() -> None:
    (score,) = fold_scores(["shop"] * 3, [False, False, True], [True, True, False], [0.1, 0.2, 0.3])
    assert (score["fold"], score["auc_texts"], score["auc_drawn"]) == (fold_of("shop"), None, None)


def test_the_folds_that_ship_are_of_the_production_model() -> None:
    (path,) = SHIPPED_FOLDS.iterdir()
    release = json.loads((SHIPPED_FOLDS.parent / "releases/2027-02.json").read_text())
    assert path.stem == release["risk_model"].removeprefix("sha256:")
    scores = json.loads(path.read_text())
    assert [score["fold"] for score in scores] == list(range(FOLDS))
    assert all(score["auc_texts"] > 0.5 for score in scores)
