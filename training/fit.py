"""Learns the calibrated risk models from drawn receipts and altered genuine texts: `python -m training.fit`.

No forged receipt enters, and no text that `--kept` names; what a copied figure is worth is measured on
drawn receipts into which figures were pasted, so that no evaluated scan enters either.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features.table import FEATURE_CONTRACT, compute_features, refused_features
from receipt_pipeline.chain.risk import MODEL_KIND
from receipt_pipeline.chain.values import NO_PAGES, PageText, page_text_of
from receipt_pipeline.core.canonical import canonical_json, digest_of_bytes
from receipt_pipeline.evaluation.risk import reliability
from receipt_pipeline.settings import SHIPPED_ARTIFACTS
from training.alterations import alter_carefully, alter_carelessly
from training.content import draw_content
from training.fold_scores import FOLDS, fold_of, fold_scores, write_fold_scores
from training.genuine_texts import GenuineText, content_of_text, read_genuine_texts
from training.picture_weight import PictureWeight, weigh_drawn_copies
from training.text_reading import read_without_picture
from training.write_releases import PLANS, write_releases

# A genuine text says more of real receipts than a drawn one, and there are fewer of them.
TEXT_WEIGHT, DRAWN_WEIGHT = 1.5, 0.5
ALTERED_PER_TEXT = 14
DRAWN = 4000
COPIES_DRAWN = 100
WITH_BOXES_SHARE = 0.5
PENALTY_INVERSE = 0.02
MODEL_DIGITS = 6
SCALE_FLOOR = 0.05
# How well and how much was read says nothing of alterations, and no drawn receipt has a picture.
NOT_LEARNED = frozenset({"confidence_decided", "total_size", "figures_copied"})
SPEAKS_FOR_GENUINE = frozenset({"sums_held", "dates_agreeing", "total_support", "numbers_agreeing"})
# The shops of drawn receipts are invented, and so are their numbers: no check on them means anything there.
OF_SHOPS = frozenset({"register_odd", "telephone_odd", "article_odd", "shop_odd"})

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Example:
    """One receipt as the model learns it; `group` keeps what belongs together in one fold."""

    group: str
    values: dict[str, float]
    tampered: bool
    weight: float
    real: bool


def features_of(page_text: PageText) -> dict[str, float] | None:
    """Return the features of a text without pages, None where the chain does not admit them."""
    features = compute_features(NO_PAGES, page_text, extract_fields(page_text))
    return None if refused_features(features) else dict(features.values)


def draw_example(number: int, *, seed: int) -> Example | None:
    """Draw one receipt, read without a picture; every other is altered, by either kind of forger."""
    rng = random.Random(f"{seed}/{number}")
    content = draw_content(rng)
    if number % 2:
        content = (alter_carefully if number % 4 == 1 else alter_carelessly)(content, rng)
    page_text = read_without_picture(content, rng, with_boxes=rng.random() < WITH_BOXES_SHARE)
    values = features_of(page_text)
    if values is None:
        return None
    values.update(dict.fromkeys(OF_SHOPS, 0.0))
    return Example(f"drawn {number}", values, bool(content.truth.get("tampered")), DRAWN_WEIGHT, real=False)


def text_examples(text: GenuineText, *, seed: int) -> list[Example]:
    """Return the genuine text and altered ones of it, weighted so that both classes weigh the same."""
    content = content_of_text(text.texts)
    forged = [
        alter_carefully(content, random.Random(f"{seed}/{text.key}/{number}"), genuine_text=True)
        for number in range(ALTERED_PER_TEXT)
    ]
    altered = [one for one in forged if one.truth["tampered"]]
    weights = [TEXT_WEIGHT * max(1, len(altered)), *[TEXT_WEIGHT] * len(altered)]
    examples = []
    for one, weight in zip([content, *altered], weights, strict=True):
        values = features_of(page_text_of(tuple(row.cells[0].text for row in one.rows)))
        if values is not None:
            examples.append(Example(text.shop, values, bool(one.truth["tampered"]), weight, real=True))
    return examples


def gather(texts: Sequence[GenuineText], *, seed: int, drawn: int, processes: int) -> list[Example]:
    """Return all examples in a fixed order, however many processes compute them."""
    of_text, of_number = partial(text_examples, seed=seed), partial(draw_example, seed=seed)
    if processes == 1:
        from_texts, from_drawing = list(map(of_text, texts)), list(map(of_number, range(drawn)))
    else:
        with Pool(processes) as pool:
            from_texts = pool.map(of_text, texts, chunksize=2)
            from_drawing = pool.map(of_number, range(drawn), chunksize=50)
    examples = [example for several in from_texts for example in several]
    return examples + [example for example in from_drawing if example is not None]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted regression over standardised features."""

    names: tuple[str, ...]
    mean: Floats
    scale: Floats
    coef: Floats
    intercept: float

    def log_odds(self, examples: Sequence[Example]) -> Floats:
        """Return the uncalibrated log-odds of the examples."""
        return np.asarray((_table(examples, self.names) - self.mean) / self.scale @ self.coef + self.intercept)


def _table(examples: Sequence[Example], names: Sequence[str]) -> Floats:
    return np.array([[example.values[name] for name in names] for example in examples])


def fit(examples: Sequence[Example]) -> Fitted:
    """Fit the regression; where a weight contradicts its feature's meaning, fit again without it."""
    from sklearn.linear_model import LogisticRegression

    tampered = np.array([example.tampered for example in examples])
    weights = np.array([example.weight for example in examples])
    names = tuple(name for name in examples[0].values if name not in NOT_LEARNED)
    while True:
        table = _table(examples, names)
        mean, scale = table.mean(axis=0), np.maximum(table.std(axis=0), SCALE_FLOOR)
        regression = LogisticRegression(C=PENALTY_INVERSE, max_iter=3000)
        regression.fit((table - mean) / scale, tampered, sample_weight=weights)
        coef = regression.coef_[0]
        kept = tuple(
            name
            for name, weight in zip(names, coef, strict=True)
            if (weight < 0 if name in SPEAKS_FOR_GENUINE else weight > 0)
        )
        if kept == names:
            return Fitted(names, mean, scale, coef, float(regression.intercept_[0]))
        names = kept


def out_of_fold(examples: Sequence[Example]) -> Floats:
    """Return each example's log-odds from a fit that saw nothing of its shop or receipt."""
    fold = np.array([fold_of(example.group) for example in examples])
    log_odds = np.zeros(len(examples))
    for number in range(FOLDS):
        fitted = fit([one for one, at in zip(examples, fold, strict=True) if at != number])
        held_out = np.flatnonzero(fold == number)
        log_odds[held_out] = fitted.log_odds([examples[int(at)] for at in held_out])
    return log_odds


def learn_calibrated(
    examples: Sequence[Example], held_out: Floats, copies: PictureWeight, *, name: str, seed: int
) -> dict[str, Any]:
    """Return the model document: the regression over all examples, calibrated on what it did not see.

    A copied figure enters with the log-odds that were measured on pictures, next to the regression.

    Args:
        held_out: the log-odds of `out_of_fold`.
    """
    from sklearn.linear_model import LogisticRegression

    tampered = np.array([example.tampered for example in examples])
    weights = np.array([example.weight for example in examples])
    platt = LogisticRegression(C=1e6).fit(held_out[:, None], tampered, sample_weight=weights)
    slope, offset = float(platt.coef_[0][0]), float(platt.intercept_[0])
    risks = 1 / (1 + np.exp(-(slope * held_out + offset)))
    real = np.array([example.real for example in examples])
    fitted = fit(examples)
    from_texts = "; genuine SROIE texts (CC BY 4.0), altered by program" if real.any() else ""
    return {
        "kind": MODEL_KIND,
        "contract": FEATURE_CONTRACT,
        "name": name,
        "features": [*fitted.names, "figures_copied"],
        "mean": [*_rounded(fitted.mean), 0.0],
        "scale": [*_rounded(fitted.scale), 1.0],
        "coef": [*_rounded(fitted.coef), round(copies.log_odds / slope, MODEL_DIGITS)],
        "intercept": round(fitted.intercept, MODEL_DIGITS),
        "calibration": {
            "slope": round(slope, MODEL_DIGITS),
            "offset": round(offset, MODEL_DIGITS),
            "reliability": reliability(list(zip(risks.tolist(), tampered.tolist(), strict=True)), bins=10),
            "genuine_texts": _quantiles(risks[real & ~tampered]),
            "genuine_drawn": _quantiles(risks[~real & ~tampered]),
        },
        "trained_on": {
            "texts": len({example.group for example in examples if example.real}),
            "text_examples": int(real.sum()),
            "drawn": int((~real).sum()),
            "tampered": int(tampered.sum()),
            "seed": seed,
            "pictures": asdict(copies),
            "penalty_inverse": PENALTY_INVERSE,
            "source": f"drawn receipts{from_texts}",
        },
    }


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), MODEL_DIGITS) for value in values]


def _quantiles(risks: Floats) -> dict[str, float]:
    """Return the risk that so many per cent of genuine receipts stay below."""
    if not len(risks):
        return {}
    return {str(share): round(float(np.quantile(risks, share / 100)), 4) for share in (50, 70, 80, 85, 90, 95)}


def kept_for_evaluation(labels: Path) -> set[str]:
    """Return the keys of all receipts that the labels of an evaluation name."""
    with labels.open(newline="", encoding="utf-8") as file:
        return {row["sroie_key"] for row in csv.DictReader(file)}


def write_model(document: dict[str, Any], directory: Path) -> str:
    """Write the model under its digest and return the digest."""
    data = canonical_json(document)
    digest = digest_of_bytes(data)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{digest.removeprefix('sha256:')}.json").write_bytes(data)
    return digest


def train(examples: Sequence[Example], artifacts: Path, *, name: str, seed: int) -> str:
    """Learn one model, write it and the scores of its folds below `artifacts`, and return its digest."""
    held_out = out_of_fold(examples)
    copies = weigh_drawn_copies(COPIES_DRAWN, seed=seed)
    document = learn_calibrated(examples, held_out, copies, name=name, seed=seed)
    digest = write_model(document, artifacts / "models")
    scores = fold_scores(
        [one.group for one in examples],
        [one.tampered for one in examples],
        [one.real for one in examples],
        held_out.tolist(),
    )
    write_fold_scores(scores, artifacts / "folds", digest)
    return digest


def main(arguments: list[str] | None = None) -> int:
    """Learn the model of every shipped release and write all that ships; print the digests as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, help="folder of genuine receipts in the form of SROIE")
    parser.add_argument("--kept", type=Path, help="labels.csv of an evaluation, none of which is learned")
    parser.add_argument("--drawn", type=int, default=DRAWN, help="number of drawn receipts")
    parser.add_argument("--artifacts", type=Path, default=SHIPPED_ARTIFACTS)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.texts and not options.kept:
        sys.stderr.write("without --kept every genuine text is learned, those of an evaluation too\n")
    kept = kept_for_evaluation(options.kept) if options.kept else set()
    texts = read_genuine_texts(options.texts, without=kept) if options.texts else []
    digests = {}
    for plan in PLANS:
        examples = gather(texts, seed=plan.seed, drawn=options.drawn, processes=options.processes)
        digests[plan.name] = train(examples, options.artifacts, name=plan.name, seed=plan.seed)
    write_releases(options.artifacts, digests)
    sys.stdout.write(json.dumps(digests, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
