"""AUC, intervals and calibration bins."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

RELIABILITY_BINS = 5
DIGITS = 4


def reliability(risks: Sequence[tuple[float, bool]], *, bins: int = RELIABILITY_BINS) -> list[dict[str, Any]]:
    """Return bins of equally many by risk: mean risk said, and share that was forged."""
    ordered = sorted(risks)
    edges = [round(len(ordered) * at / bins) for at in range(bins + 1)]
    table = []
    for low, high in pairwise(edges):
        part = ordered[low:high]
        if part:
            table.append(
                {
                    "from": round(part[0][0], DIGITS),
                    "to": round(part[-1][0], DIGITS),
                    "count": len(part),
                    "risk_mean": round(sum(risk for risk, _ in part) / len(part), DIGITS),
                    "forged_share": round(sum(forged for _, forged in part) / len(part), DIGITS),
                }
            )
    return table


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
    values = sorted(
        roc_auc(rng.choices(forged, k=len(forged)), rng.choices(genuine, k=len(genuine))) for _ in range(resamples)
    )
    return _quantile(values, 0.025), _quantile(values, 0.975)


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


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
