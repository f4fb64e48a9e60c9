"""Evaluation of one release on the development scans: fields, risk, decisions and time.

Run as `python -m receipt_pipeline.evaluation.evaluate`; writes `evaluate.json` at the project's root.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import receipt_pipeline
from receipt_pipeline.chain.artefact import artefact_path
from receipt_pipeline.chain.image_digest import installed_image_digest
from receipt_pipeline.chain.release import MODELS_FOLDER, ShippedRelease, shipped_releases
from receipt_pipeline.chain.revisions import chain_of_revision
from receipt_pipeline.chain.risk import load_risk_model
from receipt_pipeline.evaluation.risk_measures import auc_interval, roc_auc, share_upper95
from receipt_pipeline.evaluation.risk_pictures import (
    PROCESSES,
    JudgedScan,
    judge_scans,
    read_labelled_scans,
    stock_seconds,
)
from receipt_pipeline.evaluation.risk_transcripts import score_transcripts
from receipt_pipeline.evaluation.score_fields import FIELDS, OVERALL, FieldScore, evaluate_fields

PACKAGE_ROOT = Path(receipt_pipeline.__file__).parent
PROJECT_ROOT = PACKAGE_ROOT.parent
RECEIPTS_FOLDER = Path("data") / "receipts"
RISK_DIGITS = 4
# Stock reading takes several seconds a scan; a few scans tell its mean well enough for a ratio.
STOCK_SCANS = 6
EXIT_DONE, EXIT_NO_DATA = 0, 2


def evaluate(
    shared: Path, release: ShippedRelease, *, shipped: Path, limit: int | None, processes: int
) -> dict[str, Any]:
    """Return all figures of one release as the document of `evaluate.json`."""
    receipts = shared / RECEIPTS_FOLDER
    scans = read_labelled_scans(receipts)
    judged = judge_scans(scans[:limit], release.release.pins(), shipped=shipped, processes=processes)
    return {
        "release": release.name,
        "release_id": release.release.release_id,
        "scans": len(judged),
        **_field_figures(judged),
        **_text_figures(receipts / "transcripts", release, shipped=shipped),
        **_picture_figures(judged),
        **_decision_figures(judged),
        "seconds_per_scan": round(sum(one.seconds for one in judged) / len(judged), RISK_DIGITS),
        "stock_seconds_per_scan": round(
            stock_seconds([scan.picture for scan in _spread(scans, STOCK_SCANS)]), RISK_DIGITS
        ),
        "stock_scans": min(STOCK_SCANS, len(scans)),
        "processes": processes,
    }


def _field_figures(judged: Sequence[JudgedScan]) -> dict[str, Any]:
    predictions = {one.scan.scan_id: one.key_fields for one in judged}
    scores = evaluate_fields(predictions, {one.scan.scan_id: one.scan.truth for one in judged})
    return {
        "strict_micro_f1": round(scores.strict[OVERALL].f1, RISK_DIGITS),
        "normalised_micro_f1": round(scores.normalised[OVERALL].f1, RISK_DIGITS),
        "fields": {
            field: {"strict": _score(scores.strict[field]), "normalised": _score(scores.normalised[field])}
            for field in FIELDS
        },
        # Extraction is rules, learned from no scan, so there is nothing to hold out.
        "folds": [],
    }


def _score(score: FieldScore) -> dict[str, float]:
    return {
        "precision": round(score.precision, RISK_DIGITS),
        "recall": round(score.recall, RISK_DIGITS),
        "f1": round(score.f1, RISK_DIGITS),
    }


def _text_figures(transcripts: Path, release: ShippedRelease, *, shipped: Path) -> dict[str, Any]:
    digest = release.release.risk_model_digest
    model = load_risk_model(artefact_path(shipped / MODELS_FOLDER, digest), digest)
    chain = chain_of_revision(release.release.chain_revision)
    risks, truth = score_transcripts(transcripts, model, chain.reading.extract)
    return {"transcripts": len(risks), **_auc_figures("risk_auc_text", risks, truth)}


def _picture_figures(judged: Sequence[JudgedScan]) -> dict[str, Any]:
    # A scan without a risk was rejected; nobody would clear it, so it counts as the most suspicious.
    risks = {
        one.scan.scan_id: 1.0 if one.outcome.risk_ppm is None else one.outcome.risk_ppm / 1_000_000
        for one in judged
    }
    return _auc_figures("risk_auc_pictures", risks, {one.scan.scan_id: one.scan.forged for one in judged})


def _auc_figures(name: str, risks: Mapping[str, float], truth: Mapping[str, bool]) -> dict[str, Any]:
    forged = [risk for key, risk in risks.items() if truth[key]]
    genuine = [risk for key, risk in risks.items() if not truth[key]]
    if not (forged and genuine):
        return {name: None, f"{name}_interval": None}
    low, high = auc_interval(forged, genuine)
    return {
        name: round(roc_auc(forged, genuine), RISK_DIGITS),
        f"{name}_interval": [round(low, RISK_DIGITS), round(high, RISK_DIGITS)],
    }


def _decision_figures(judged: Sequence[JudgedScan]) -> dict[str, Any]:
    genuine = [one for one in judged if not one.scan.forged]
    cleared = [one for one in judged if one.cleared]
    wrong = sum(one.wrong for one in cleared)
    return {
        "cleared": len(cleared),
        "cleared_share": round(sum(one.cleared for one in genuine) / max(1, len(genuine)), RISK_DIGITS),
        "cleared_wrong": wrong,
        "cleared_wrong_forged": sum(one.scan.forged for one in cleared),
        "cleared_wrong_share": round(wrong / max(1, len(cleared)), RISK_DIGITS),
        "cleared_wrong_upper95": round(share_upper95(wrong, len(cleared)), RISK_DIGITS),
    }


def _spread(scans: Sequence[Any], count: int) -> Sequence[Any]:
    """Return so many scans, evenly over the whole set."""
    step = max(1, len(scans) // count)
    return scans[::step][:count]


def figures_as_text(figures: Mapping[str, Any]) -> str:
    """Return the figures as a table for people."""
    lines = [f"{'release':24} {figures['release']}"]
    for name, value in figures.items():
        if isinstance(value, int | float):
            lines.append(f"{name:24} {value}")
        elif name.endswith("_interval") and value is not None:
            lines.append(f"{name:24} {value[0]} to {value[1]} (95 %)")
    for field, scores in figures["fields"].items():
        lines.append(
            f"{'f1 ' + field:24} strict {scores['strict']['f1']}, normalised {scores['normalised']['f1']}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Evaluate, print the table, write the file; exit 2 where the development set is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=PROJECT_ROOT.parent / "shared")
    parser.add_argument("--shipped", type=Path, default=PROJECT_ROOT / "data")
    parser.add_argument("--release", default="production", help="name or alias of a shipped release")
    parser.add_argument("--limit", type=int, default=None, help="only so many scans")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--output", type=Path, default=PROJECT_ROOT / "evaluate.json")
    options = parser.parse_args(arguments)
    if not (options.shared / RECEIPTS_FOLDER).is_dir():
        sys.stdout.write(f"no development set: {options.shared} holds no {RECEIPTS_FOLDER}\n")
        return EXIT_NO_DATA
    shipped = shipped_releases(options.shipped, image_digest=installed_image_digest(PACKAGE_ROOT))
    chosen = [one for one in shipped if options.release in (one.name, one.alias)]
    if not chosen:
        parser.error(f"no shipped release is named {options.release}")
    figures = evaluate(
        options.shared,
        chosen[0],
        shipped=options.shipped,
        limit=options.limit,
        processes=options.processes,
    )
    options.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(figures_as_text(figures) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    raise SystemExit(main())
