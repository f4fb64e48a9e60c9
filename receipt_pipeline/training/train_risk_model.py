"""Training: draws invented receipts, reads them, and learns the shipped risk models by logistic regression.

Run as `python -m receipt_pipeline.training.train_risk_model`; needs the extra `train`. No scan or
transcript of a real shop enters: real forgeries are for evaluation alone.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features import CONTRACT, FEATURE_CONTRACT, admit, compute_features
from receipt_pipeline.chain.risk import MODEL_KIND
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.training.content import draw_content
from receipt_pipeline.training.tamper import tamper
from receipt_pipeline.training.text_reading import read_without_picture

MODEL_DIGITS = 6
SCALE_FLOOR = 0.05
WITH_BOXES_SHARE = 0.5

# What says how a scan was made, not whether it was altered: the generator's noise is not that of real scans.
NOT_LEARNED = frozenset(
    {
        "date_found",
        "date_ambiguous",
        "confidence_decided",
        "confidence_dip",
        "total_size",
        "height_outlier",
        "right_edge_outlier",
        "products_held",
    }
)
DATES_AND_SUMS_2026_10 = frozenset(
    {"count_failed", "payable_failed", "currencies_mixed", "tax_period_mismatch"}
)
SPEAKS_FOR_GENUINE = frozenset(
    {"sums_held", "change_held", "dates_agreeing", "total_support", "products_held"}
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one shipped model is learned: its name, seed, size, strength of the penalty, and features."""

    name: str
    seed: int
    receipts: int
    penalty_inverse: float
    left_out: frozenset[str]


RECIPES = (
    Recipe(
        "2026-10",
        seed=1010,
        receipts=2000,
        penalty_inverse=0.05,
        left_out=NOT_LEARNED | DATES_AND_SUMS_2026_10,
    ),
    Recipe("2026-11", seed=1111, receipts=6000, penalty_inverse=0.2, left_out=NOT_LEARNED),
)


def draw_example(seed: int, number: int) -> tuple[dict[str, float], bool] | None:
    """Return (features, tampered) of one invented receipt read without a picture; every other is tampered.

    None where its features are not admitted.
    """
    rng = random.Random(f"{seed}/{number}")
    content = draw_content(rng)
    tampered = number % 2 == 1
    if tampered:
        content = tamper(content, rng)
    reading = read_without_picture(content, rng, with_boxes=rng.random() < WITH_BOXES_SHARE)
    features = compute_features(reading, extract_fields(reading))
    return None if admit(features) else (dict(features.values), tampered)


def draw_examples(recipe: Recipe, *, processes: int) -> list[tuple[dict[str, float], bool]]:
    """Return the admitted examples of a recipe in the order of their numbers, however many processes draw."""
    numbers = range(recipe.receipts)
    if processes == 1:
        drawn = [draw_example(recipe.seed, number) for number in numbers]
    else:
        with Pool(processes) as pool:
            drawn = pool.map(partial(draw_example, recipe.seed), numbers, chunksize=100)
    return [example for example in drawn if example is not None]


def learn(recipe: Recipe, *, processes: int = 1) -> dict[str, Any]:
    """Return the model document of one recipe.

    A feature whose weight contradicts its meaning is left out and the rest learned again.
    """
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    examples = draw_examples(recipe, processes=processes)
    tampered = np.array([label for _, label in examples])
    names = [bound.name for bound in CONTRACT if bound.name not in recipe.left_out]
    while True:
        values = np.array([[features[name] for name in names] for features, _ in examples])
        mean, scale = values.mean(axis=0), np.maximum(values.std(axis=0), SCALE_FLOOR)
        regression = LogisticRegression(C=recipe.penalty_inverse, max_iter=2000)
        regression.fit((values - mean) / scale, tampered)
        kept = [
            name
            for name, coef in zip(names, regression.coef_[0], strict=True)
            if points_as_meant(coef, speaks_for_genuine=name in SPEAKS_FOR_GENUINE)
        ]
        if kept == names:
            break
        names = kept
    return {
        "kind": MODEL_KIND,
        "contract": FEATURE_CONTRACT,
        "name": recipe.name,
        "features": names,
        "mean": [round(float(value), MODEL_DIGITS) for value in mean],
        "scale": [round(float(value), MODEL_DIGITS) for value in scale],
        "coef": [round(float(value), MODEL_DIGITS) for value in regression.coef_[0]],
        "intercept": round(float(regression.intercept_[0]), MODEL_DIGITS),
        "trained_on": {
            "receipts": len(examples),
            "tampered": int(tampered.sum()),
            "seed": recipe.seed,
            "penalty_inverse": recipe.penalty_inverse,
            "source": "invented receipts, read without a picture",
        },
    }


def points_as_meant(coef: float, *, speaks_for_genuine: bool) -> bool:
    """Tell whether a weight points where the feature's meaning does; chance in the drawing may turn it."""
    return coef < 0 if speaks_for_genuine else coef > 0


def write_model(document: dict[str, Any], directory: Path) -> str:
    """Write the model under its digest and return the digest."""
    data = canonical_json(document)
    digest = digest_of_bytes(data)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{digest.removeprefix('sha256:')}.json").write_bytes(data)
    return digest


def main(arguments: list[str] | None = None) -> int:
    """Learn all recipes; print name and digest of each as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("data/models"))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    for recipe in RECIPES:
        digest = write_model(learn(recipe, processes=options.processes), options.models)
        sys.stdout.write(json.dumps({"model": recipe.name, "digest": digest}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
