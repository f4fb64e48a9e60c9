"""Evaluation: one release on a labelled set, as a document that can be kept, shown and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from receipt_pipeline.chain.release import ShippedRelease
from receipt_pipeline.core.calibration import reliability
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.evaluation.figures import decision_figures, field_figures, picture_figures, suspicion
from receipt_pipeline.evaluation.risk_pictures import JudgedScan, LabelledScan
from receipt_pipeline.evaluation.score_fields import FIELDS, normalised_value

DOCUMENT_KIND = "receipt-evaluation/v2"
DIGITS = 4


def release_evaluation(judged: Sequence[JudgedScan], release: ShippedRelease) -> dict[str, Any]:
    """Return figures, curves, calibration, confusion, and every scan's own line.

    The document says nothing of time or machine: equal answers give equal documents.
    """
    return {
        "kind": DOCUMENT_KIND,
        "release": release.name,
        "release_id": release.release.release_id,
        "set_digest": set_digest([one.scan for one in judged]),
        "scans": len(judged),
        "forged": sum(one.scan.forged for one in judged),
        "figures": {**field_figures(judged), **picture_figures(judged), **decision_figures(judged)},
        "risk_curve": risk_curve(judged),
        "reliability": reliability([(suspicion(one), one.scan.forged) for one in judged]),
        "confusion": confusion(judged),
        "reasons": reasons_by_truth(judged),
        "items": [item_line(one) for one in judged],
    }


def set_digest(scans: Sequence[LabelledScan]) -> str:
    """Return the digest of the labels, by which two evaluations are known to be of one set."""
    return digest_of(
        [[scan.scan_id, scan.forged, dict(scan.truth)] for scan in sorted(scans, key=lambda it: it.scan_id)]
    )


def item_line(one: JudgedScan) -> dict[str, Any]:
    """Return what was said of one scan beside what is true of it."""
    read = one.key_fields
    return {
        "scan_id": one.scan.scan_id,
        "forged": one.scan.forged,
        "decision": "rejected" if one.outcome.decision is None else str(one.outcome.decision),
        "suspicion": round(suspicion(one), 6),
        "reasons": list(one.outcome.reasons) or [one.outcome.reason_code or ""][: not one.cleared],
        "wrong": one.wrong,
        "fields": {field: _compared(field, read[field], one.scan.truth[field]) for field in FIELDS},
        "contributions": list(one.outcome.evidence.get("contributions", []))[:3],
    }


def _compared(field: str, read: str | None, truth: str | None) -> dict[str, Any] | None:
    """Return both texts and whether they agree; None where the truth is not known."""
    if truth is None:
        return None
    return {
        "read": read,
        "truth": truth,
        "strict": read == truth,
        "normalised": bool(read) and normalised_value(field, read or "") == normalised_value(field, truth),
    }


def risk_curve(judged: Sequence[JudgedScan]) -> list[dict[str, float]]:
    """Return, for each share of scans sent to review by risk, which shares of either class that is."""
    ordered = sorted(judged, key=lambda one: (-suspicion(one), one.scan.scan_id))
    forged = max(1, sum(one.scan.forged for one in judged))
    genuine = max(1, len(judged) - sum(one.scan.forged for one in judged))
    points = [{"reviewed": 0.0, "forged_caught": 0.0, "genuine_reviewed": 0.0}]
    caught = seen = 0
    for at, one in enumerate(ordered, 1):
        caught, seen = caught + one.scan.forged, seen + (not one.scan.forged)
        tied = at < len(ordered) and suspicion(ordered[at]) == suspicion(one)
        if not tied:
            points.append(
                {
                    "reviewed": round(at / len(ordered), DIGITS),
                    "forged_caught": round(caught / forged, DIGITS),
                    "genuine_reviewed": round(seen / genuine, DIGITS),
                }
            )
    return points


def confusion(judged: Sequence[JudgedScan]) -> dict[str, dict[str, int]]:
    """Return the number of scans by truth and decision; `misread` is genuine with a wrong total or day."""
    table: dict[str, Counter[str]] = {"genuine": Counter(), "misread": Counter(), "forged": Counter()}
    for one in judged:
        truth = "forged" if one.scan.forged else "misread" if one.misread else "genuine"
        table[truth]["rejected" if one.outcome.decision is None else str(one.outcome.decision)] += 1
    return {truth: dict(sorted(counts.items())) for truth, counts in table.items()}


def reasons_by_truth(judged: Sequence[JudgedScan]) -> dict[str, dict[str, int]]:
    """Return how often each reason was given for genuine and for forged scans, most frequent first."""
    counts: dict[str, dict[str, int]] = {}
    for one in judged:
        for code in one.outcome.reasons:
            counts.setdefault(code, {"genuine": 0, "forged": 0})
            counts[code]["forged" if one.scan.forged else "genuine"] += 1
    return dict(sorted(counts.items(), key=lambda pair: (-sum(pair[1].values()), pair[0])))
