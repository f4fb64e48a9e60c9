"""AUC, intervals and calibration bins."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pandas as pd

RELIABILITY_BINS = 5
DIGITS = 4


def reliability(risks: Sequence[tuple[float, bool]], *, bins: int = RELIABILITY_BINS) -> list[dict[str, Any]]:
    """Return bins of equally many scans by risk: mean predicted risk, and the share that was forged."""
    frame = pd.DataFrame(sorted(risks), columns=["risk", "forged"])
    edges = sorted({round(len(frame) * at / bins) for at in range(bins + 1)})
    if len(edges) < 2:
        return []
    grouped = frame.groupby(pd.Series(pd.cut(frame.index, edges, right=False)), observed=True)
    table = grouped.agg(
        **{"from": ("risk", "min"), "to": ("risk", "max"), "count": ("risk", "size")},
        risk_mean=("risk", "mean"),
        forged_share=("forged", "mean"),
    )
    return [
        {str(name): int(value) if name == "count" else round(float(value), DIGITS) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


RESAMPLES = 2000
SEED = 1


def roc_auc(forged: Sequence[float], genuine: Sequence[float]) -> float:
    """Return the share of (forged, genuine) pairs in which the forged one scores higher; ties count half."""
    ordered = sorted([*((score, 1) for score in forged), *((score, 0) for score in genuine)])
    won = 0.0
    below = 0
    at = 0
    while at < len(ordered):
        end = at
        while end < len(ordered) and ordered[end][0] == ordered[at][0]:
            end += 1
        forged_here = sum(label for _, label in ordered[at:end])
        genuine_here = end - at - forged_here
        won += forged_here * (below + genuine_here / 2)
        below += genuine_here
        at = end
    return won / (len(forged) * len(genuine))


def auc_interval(
    forged: Sequence[float], genuine: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED
) -> tuple[float, float]:
    """Return the 95 % bootstrap percentiles of the AUC, resampled within forged and within genuine."""
    rng = random.Random(seed)
    values = [
        roc_auc(rng.choices(forged, k=len(forged)), rng.choices(genuine, k=len(genuine))) for _ in range(resamples)
    ]
    low, high = pd.Series(values).quantile([0.025, 0.975])
    return float(low), float(high)


def share_upper95(wrong: int, of: int) -> float:
    """Return the upper end of the exact (Clopper-Pearson) two-sided 95 % interval of a share."""
    if of == 0 or wrong == of:
        return 1.0
    low, high = wrong / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(wrong, of, middle) > 0.025:
            low = middle
        else:
            high = middle
    return high


def _at_most(wrong: int, of: int, share: float) -> float:
    return math.fsum(math.comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(wrong + 1))
