"""Evaluation: the figures of one release from what its chain said of labelled scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from receipt_pipeline.evaluation.risk_measures import auc_interval, roc_auc, share_upper95
from receipt_pipeline.evaluation.risk_pictures import JudgedScan
from receipt_pipeline.evaluation.score_fields import FIELDS, OVERALL, FieldScore, evaluate_fields

RISK_DIGITS = 4


def field_figures(judged: Sequence[JudgedScan]) -> dict[str, Any]:
    """Return F1 of the key fields, strict and normalised, overall and by field."""
    predictions = {one.scan.scan_id: one.key_fields for one in judged}
    scores = evaluate_fields(predictions, {one.scan.scan_id: one.scan.truth for one in judged})
    return {
        "strict_micro_f1": round(scores.strict[OVERALL].f1, RISK_DIGITS),
        "normalised_micro_f1": round(scores.normalised[OVERALL].f1, RISK_DIGITS),
        "fields": {
            field: {"strict": _score(scores.strict[field]), "normalised": _score(scores.normalised[field])}
            for field in FIELDS
        },
    }


def _score(score: FieldScore) -> dict[str, float]:
    return {
        "precision": round(score.precision, RISK_DIGITS),
        "recall": round(score.recall, RISK_DIGITS),
        "f1": round(score.f1, RISK_DIGITS),
    }


def picture_figures(judged: Sequence[JudgedScan]) -> dict[str, Any]:
    """Return the AUC of the risk on scans, with its interval."""
    truth = {one.scan.scan_id: one.scan.forged for one in judged}
    return auc_figures("risk_auc_pictures", {one.scan.scan_id: suspicion(one) for one in judged}, truth)


def suspicion(one: JudgedScan) -> float:
    """Return the risk of a scan, 0..1.

    A scan without a risk was rejected; nobody would clear it, so it counts as the most suspicious.
    """
    return 1.0 if one.outcome.risk_ppm is None else one.outcome.risk_ppm / 1_000_000


def auc_figures(name: str, risks: Mapping[str, float], truth: Mapping[str, bool]) -> dict[str, Any]:
    """Return ROC AUC and 95 % interval under `name`; None where one of the classes is missing."""
    forged = [risk for key, risk in risks.items() if truth[key]]
    genuine = [risk for key, risk in risks.items() if not truth[key]]
    if not (forged and genuine):
        return {name: None, f"{name}_interval": None}
    low, high = auc_interval(forged, genuine)
    return {
        name: round(roc_auc(forged, genuine), RISK_DIGITS),
        f"{name}_interval": [round(low, RISK_DIGITS), round(high, RISK_DIGITS)],
    }


def decision_figures(judged: Sequence[JudgedScan]) -> dict[str, Any]:
    """Return how much is cleared, how much of that is misread, and how much of it is forged.

    `cleared_wrong` counts cleared scans, forged or not, whose total or day was misread (normalised);
    `cleared_forged` counts cleared forgeries, however well they were read. A scan may be in both.
    """
    genuine = [one for one in judged if not one.scan.forged]
    cleared = [one for one in judged if one.cleared]
    return {
        "cleared": len(cleared),
        "cleared_share": round(sum(one.cleared for one in genuine) / max(1, len(genuine)), RISK_DIGITS),
        **_counted("cleared_wrong", sum(one.misread for one in cleared), len(cleared)),
        **_counted("cleared_forged", sum(one.scan.forged for one in cleared), len(cleared)),
    }


def _counted(name: str, count: int, of: int) -> dict[str, Any]:
    """Return a count, its share and the exact upper bound of the share."""
    return {
        name: count,
        f"{name}_share": round(count / max(1, of), RISK_DIGITS),
        f"{name}_upper95": round(share_upper95(count, of), RISK_DIGITS),
    }
