"""Calibration: whether of the things that were called p likely, a share of p came true."""

from __future__ import annotations

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
