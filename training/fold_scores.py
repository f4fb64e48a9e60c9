"""How well each fold's fit ranks what it did not see, kept beside the model for its evaluation."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from receipt_pipeline.core.canonical import canonical_json

FOLDS = 5
AUC_DIGITS = 3


def fold_of(group: str) -> int:
    """Return the fold of a shop or of a drawn receipt: always the same one, whatever else is learned."""
    return random.Random(group).randrange(FOLDS)


def fold_scores(
    groups: Sequence[str], tampered: Sequence[bool], real: Sequence[bool], log_odds: Sequence[float]
) -> list[dict[str, Any]]:
    """Return per fold how many examples it held out, of how many shops, and how they were ranked.

    Args:
        groups: the shop of each example, or the drawn receipt that it is.
        real: whether it is a genuine text, unaltered or altered, and no drawn receipt.
        log_odds: each example's, from a fit that saw nothing of its group.
    Returns:
        `auc_texts` and `auc_drawn` are None where one class is missing.
    """
    folds = [fold_of(group) for group in groups]
    return [
        {
            "fold": number,
            "shops": len({groups[at] for at in held if real[at]}),
            "texts": sum(real[at] for at in held),
            "drawn": sum(not real[at] for at in held),
            "altered": sum(tampered[at] for at in held),
            "auc_texts": _auc([at for at in held if real[at]], tampered, log_odds),
            "auc_drawn": _auc([at for at in held if not real[at]], tampered, log_odds),
        }
        for number in range(FOLDS)
        if (held := [at for at, fold in enumerate(folds) if fold == number])
    ]


def write_fold_scores(scores: Sequence[Mapping[str, Any]], directory: Path, digest: str) -> Path:
    """Write the scores under the digest of the model that they speak of."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{digest.removeprefix('sha256:')}.json"
    path.write_bytes(canonical_json(list(scores)))
    return path


def _auc(held: Sequence[int], tampered: Sequence[bool], log_odds: Sequence[float]) -> float | None:
    from sklearn.metrics import roc_auc_score

    classes = [bool(tampered[at]) for at in held]
    if len(set(classes)) < 2:
        return None
    return round(float(roc_auc_score(classes, [log_odds[at] for at in held])), AUC_DIGITS)
