"""Training: learns the calibrated risk model from drawn receipts and altered genuine texts.

Run as `python -m receipt_pipeline.training.train_calibrated --texts FOLDER`; needs the extra `train`.
No forged receipt enters, and no text that `--kept` names; what a copied figure is worth is measured on
drawn receipts into which figures were pasted, so that no evaluated scan enters either.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from receipt_pipeline.chain.revisions import chain_named
from receipt_pipeline.chain.risk import CALIBRATED_KIND
from receipt_pipeline.chain.values import NO_PAGES, Reading, bare_reading
from receipt_pipeline.evaluation.risk import reliability
from receipt_pipeline.training.content import Content, draw_content
from receipt_pipeline.training.fold_scores import FOLDS, fold_of, fold_scores, write_fold_scores
from receipt_pipeline.training.forge import MONEY, Forge, forge
from receipt_pipeline.training.forge_places import MONEY_ANYWHERE
from receipt_pipeline.training.genuine_texts import GenuineText, content_of_text, read_genuine_texts
from receipt_pipeline.training.picture_weight import PictureWeight, weigh_copies, weigh_drawn_copies
from receipt_pipeline.training.tamper import tamper
from receipt_pipeline.training.text_reading import read_without_picture
from receipt_pipeline.training.train_risk_model import (
    MODEL_DIGITS,
    NOT_LEARNED,
    SCALE_FLOOR,
    SPEAKS_FOR_GENUINE,
    WITH_BOXES_SHARE,
    points_as_meant,
    write_model,
)

CHAIN = "chain-v4"
SEED = 1212
# A genuine text says more of real receipts than a drawn one, and there are fewer of them.
TEXT_WEIGHT, DRAWN_WEIGHT = 1.5, 0.5
COPIES_DRAWN = 100
SPEAKS_FOR_GENUINE_V2 = SPEAKS_FOR_GENUINE | {"numbers_agreeing"}
# The picture features are not learned from receipts that were never drawn as pictures.
OF_PICTURES = frozenset({"figures_copied", "noise_outlier", "baseline_outlier"})
# The shops of drawn receipts are invented, and so are their numbers: no check on them means anything there.
OF_SHOPS = frozenset({"register_odd", "postcode_odd", "telephone_odd", "article_odd", "shop_odd"})

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Learning:
    """How the model of a chain is learned: in which ways money is altered, how often, and the penalty."""

    money: Mapping[str, Forge]
    altered_per_text: int
    penalty_inverse: float


LEARNING = Learning(money=MONEY, altered_per_text=10, penalty_inverse=0.1)
LEARNING_OF_CHAIN: Mapping[str, Learning] = {
    "chain-v4": Learning(money=MONEY_ANYWHERE, altered_per_text=14, penalty_inverse=0.02),
}


def learning_of(chain: str) -> Learning:
    """Return how the model of a chain is learned; of the chains before `chain-v4` all alike."""
    return LEARNING_OF_CHAIN.get(chain, LEARNING)


@dataclass(frozen=True, slots=True)
class Example:
    """One receipt as the model learns it; `group` keeps what belongs together in one fold."""

    group: str
    values: dict[str, float]
    tampered: bool
    weight: float
    real: bool


def features_of(reading: Reading, *, chain: str = CHAIN) -> dict[str, float] | None:
    """Return the features of a reading without pages, None where the chain does not admit them."""
    carried = chain_named(chain)
    features = carried.judging.features(NO_PAGES, reading, carried.reading.extract(reading))
    return None if carried.judging.admit(features) else dict(features.values)


def draw_example(number: int, *, chain: str = CHAIN) -> Example | None:
    """Draw one receipt, read without a picture; every other is altered, by either kind of forger."""
    rng = random.Random(f"{SEED}/{number}")
    content = draw_content(rng)
    if number % 2:
        content = (forge if number % 4 == 1 else tamper)(content, rng)
    reading = read_without_picture(content, rng, with_boxes=rng.random() < WITH_BOXES_SHARE)
    values = features_of(reading, chain=chain)
    if values is None:
        return None
    values.update(dict.fromkeys(OF_SHOPS & values.keys(), 0.0))
    return Example(f"drawn {number}", values, bool(content.truth.get("tampered")), DRAWN_WEIGHT, real=False)


def text_examples(text: GenuineText, *, chain: str = CHAIN) -> list[Example]:
    """Return the genuine text, and so many altered ones of it that both classes weigh the same."""
    content = content_of_text(text.texts, chain_named(chain).reading.extract)
    learning = learning_of(chain)
    altered: list[Content] = []
    for number in range(learning.altered_per_text):
        forged = forge(content, random.Random(f"{SEED}/{text.key}/{number}"), money=learning.money)
        if forged.truth["tampered"]:
            altered.append(forged)
    weights = [TEXT_WEIGHT * max(1, len(altered)), *[TEXT_WEIGHT] * len(altered)]
    examples = []
    for one, weight in zip([content, *altered], weights, strict=True):
        values = features_of(bare_reading(tuple(row.cells[0].text for row in one.rows)), chain=chain)
        if values is not None:
            examples.append(Example(text.shop, values, bool(one.truth["tampered"]), weight, real=True))
    return examples


def gather(texts: Sequence[GenuineText], *, drawn: int, processes: int, chain: str = CHAIN) -> list[Example]:
    """Return all examples in a fixed order, however many processes compute them."""
    of_text, of_number = partial(text_examples, chain=chain), partial(draw_example, chain=chain)
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
        return np.asarray(
            (_table(examples, self.names) - self.mean) / self.scale @ self.coef + self.intercept
        )


def _table(examples: Sequence[Example], names: Sequence[str]) -> Floats:
    return np.array([[example.values[name] for name in names] for example in examples])


def fit(examples: Sequence[Example], *, chain: str = CHAIN) -> Fitted:
    """Fit the regression; where a weight contradicts its feature's meaning, fit again without it."""
    from sklearn.linear_model import LogisticRegression

    tampered = np.array([example.tampered for example in examples])
    weights = np.array([example.weight for example in examples])
    learning = learning_of(chain)
    names = tuple(name for name in examples[0].values if name not in NOT_LEARNED | OF_PICTURES)
    while True:
        table = _table(examples, names)
        mean, scale = table.mean(axis=0), np.maximum(table.std(axis=0), SCALE_FLOOR)
        regression = LogisticRegression(C=learning.penalty_inverse, max_iter=3000)
        regression.fit((table - mean) / scale, tampered, sample_weight=weights)
        coef = regression.coef_[0]
        kept = tuple(
            name
            for name, weight in zip(names, coef, strict=True)
            if points_as_meant(weight, speaks_for_genuine=name in SPEAKS_FOR_GENUINE_V2)
        )
        if kept == names:
            return Fitted(names, mean, scale, coef, float(regression.intercept_[0]))
        names = kept


def out_of_fold(examples: Sequence[Example], *, chain: str = CHAIN) -> Floats:
    """Return each example's log-odds from a fit that saw nothing of its shop or receipt."""
    fold = np.array([fold_of(example.group) for example in examples])
    log_odds = np.zeros(len(examples))
    for number in range(FOLDS):
        fitted = fit([one for one, at in zip(examples, fold, strict=True) if at != number], chain=chain)
        held_out = np.flatnonzero(fold == number)
        log_odds[held_out] = fitted.log_odds([examples[int(at)] for at in held_out])
    return log_odds


def learn_calibrated(
    examples: Sequence[Example],
    *,
    name: str,
    source: str,
    copies: PictureWeight | None = None,
    chain: str = CHAIN,
    held_out: Floats | None = None,
) -> dict[str, Any]:
    """Return the model document: the regression over all examples, calibrated on what it did not see.

    A copied figure enters with the log-odds that were measured on pictures, beside the regression.
    `held_out` are the log-odds of `out_of_fold`, where the caller has them.
    """
    from sklearn.linear_model import LogisticRegression

    held_out = out_of_fold(examples, chain=chain) if held_out is None else held_out
    tampered = np.array([example.tampered for example in examples])
    weights = np.array([example.weight for example in examples])
    platt = LogisticRegression(C=1e6).fit(held_out[:, None], tampered, sample_weight=weights)
    slope, offset = float(platt.coef_[0][0]), float(platt.intercept_[0])
    risks = 1 / (1 + np.exp(-(slope * held_out + offset)))
    real = np.array([example.real for example in examples])
    fitted = fit(examples, chain=chain)
    pictures = [] if copies is None else [round(copies.log_odds / slope, MODEL_DIGITS)]
    return {
        "kind": CALIBRATED_KIND,
        "contract": chain_named(chain).judging.contract,
        "name": name,
        "features": [*fitted.names, *["figures_copied"] * len(pictures)],
        "mean": [*_rounded(fitted.mean), *[0.0] * len(pictures)],
        "scale": [*_rounded(fitted.scale), *[1.0] * len(pictures)],
        "coef": [*_rounded(fitted.coef), *pictures],
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
            "seed": SEED,
            **({} if copies is None else {"pictures": asdict(copies)}),
            "penalty_inverse": learning_of(chain).penalty_inverse,
            "source": source,
        },
    }


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), MODEL_DIGITS) for value in values]


def _quantiles(risks: Floats) -> dict[str, float]:
    """Return the risk that so many per cent of genuine receipts stay below."""
    if not len(risks):
        return {}
    return {
        str(share): round(float(np.quantile(risks, share / 100)), 4) for share in (50, 70, 80, 85, 90, 95)
    }


def kept_for_evaluation(labels: Path) -> set[str]:
    """Return the keys of all receipts that the labels of an evaluation name."""
    with labels.open(newline="", encoding="utf-8") as file:
        return {row["sroie_key"] for row in csv.DictReader(file)}


def main(arguments: list[str] | None = None) -> int:
    """Learn the model, write it under its digest, and print what was learned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, help="folder of genuine receipts in the form of SROIE")
    parser.add_argument("--kept", type=Path, help="labels.csv of an evaluation, none of which is learned")
    parser.add_argument(
        "--copies",
        choices=("drawn", "scans"),
        default="drawn",
        help="where the weight of a copied figure is measured: drawn receipts, or the scans of --texts",
    )
    parser.add_argument("--drawn", type=int, default=4000)
    parser.add_argument("--name", default="2027-02")
    parser.add_argument("--chain", default=CHAIN, help="whose fields and features are learned from")
    parser.add_argument("--models", type=Path, default=Path("data/models"))
    parser.add_argument("--folds", type=Path, default=Path("data/folds"))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.texts and not options.kept:
        sys.stderr.write("without --kept every genuine text is learned, those of an evaluation too\n")
    kept = kept_for_evaluation(options.kept) if options.kept else set()
    texts = read_genuine_texts(options.texts, without=kept) if options.texts else []
    examples = gather(texts, drawn=options.drawn, processes=options.processes, chain=options.chain)
    from_texts = "; genuine SROIE texts (CC BY 4.0), altered by program" if texts else ""
    copies: PictureWeight | None = None
    if options.copies == "drawn":
        copies = weigh_drawn_copies(COPIES_DRAWN, seed=SEED)
    elif options.texts:
        copies = weigh_copies(options.texts, seed=SEED)
    held_out = out_of_fold(examples, chain=options.chain)
    document = learn_calibrated(
        examples,
        name=options.name,
        source=f"drawn receipts{from_texts}",
        copies=copies,
        chain=options.chain,
        held_out=held_out,
    )
    digest = write_model(document, options.models)
    scores = fold_scores(
        [one.group for one in examples],
        [one.tampered for one in examples],
        [one.real for one in examples],
        held_out.tolist(),
    )
    write_fold_scores(scores, options.folds, digest)
    sys.stdout.write(json.dumps({"model": options.name, "digest": digest, **document}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
