"""Folds of a training: kept apart by shop, and scored each on what its fit had not seen."""

from __future__ import annotations

import json

from receipt_pipeline.settings import SHIPPED_ARTIFACTS
from training.fold_scores import FOLDS, fold_of, fold_scores

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


def test_the_folds_of_both_shipped_models_ship() -> None:
    templates = [json.loads(path.read_bytes()) for path in (SHIPPED_ARTIFACTS / "releases").iterdir()]
    digests = {template["risk_model"].removeprefix("sha256:") for template in templates}
    paths = list((SHIPPED_ARTIFACTS / "folds").iterdir())
    assert {path.stem for path in paths} == digests
    for path in paths:
        scores = json.loads(path.read_bytes())
        assert [score["fold"] for score in scores] == list(range(FOLDS))
        assert all(score["auc_texts"] > 0.5 for score in scores)
