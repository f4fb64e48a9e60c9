"""Evaluate one release into one document."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import receipt_pipeline
from receipt_pipeline.chain.release import (
    ShippedRelease,
    artifact_path,
    installed_image_digest,
    load_risk_model,
    shipped_releases,
)
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.evaluation.fields import FIELDS, OVERALL, FieldScore, evaluate_fields, normalised_value
from receipt_pipeline.evaluation.risk import auc_interval, reliability, roc_auc, share_upper95
from receipt_pipeline.evaluation.scans import (
    PROCESSES,
    JudgedScan,
    LabelledScan,
    judge_scans,
    read_labelled_scans,
    score_transcripts,
    stock_seconds,
)

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


PACKAGE_ROOT = Path(receipt_pipeline.__file__).parent
PROJECT_ROOT = PACKAGE_ROOT.parent
RECEIPTS_FOLDER = Path("data") / "receipts"
FOLDS_FOLDER = "folds"
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
        **field_figures(judged),
        # Extraction is rules, learned from no scan; what is trained is the risk model.
        "folds": kept_folds(shipped, release.release.risk_model_digest),
        **_text_figures(receipts / "transcripts", release, shipped=shipped),
        **picture_figures(judged),
        **decision_figures(judged),
        "seconds_per_scan": round(sum(one.seconds for one in judged) / len(judged), RISK_DIGITS),
        "stock_seconds_per_scan": round(
            stock_seconds([scan.picture for scan in _spread(scans, STOCK_SCANS)]), RISK_DIGITS
        ),
        "stock_scans": min(STOCK_SCANS, len(scans)),
        "processes": processes,
    }


def kept_folds(shipped: Path, digest: str) -> list[dict[str, Any]]:
    """Return what each fold's fit made of shops that it had not seen, as the training of a model wrote it.

    Empty for a model whose training kept none.
    """
    path = artifact_path(shipped / FOLDS_FOLDER, digest)
    if not path.exists():
        return []
    folds: list[dict[str, Any]] = json.loads(path.read_bytes())
    return folds


def _text_figures(transcripts: Path, release: ShippedRelease, *, shipped: Path) -> dict[str, Any]:
    digest = release.release.risk_model_digest
    risks, truth = score_transcripts(transcripts, load_risk_model(shipped, digest))
    return {"transcripts": len(risks), **auc_figures("risk_auc_text", risks, truth)}


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
        lines.append(f"{'f1 ' + field:24} strict {scores['strict']['f1']}, normalised {scores['normalised']['f1']}")
    for fold in figures["folds"]:
        held = f"{fold['shops']} shops, {fold['texts']} texts and {fold['drawn']} drawn receipts held out"
        name = f"risk model, fold {fold['fold']}"
        lines.append(f"{name:24} auc {fold['auc_texts']} and {fold['auc_drawn']} ({held})")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Evaluate, print the table, write the file; exit 2 where the development set is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=PROJECT_ROOT.parent / "shared")
    parser.add_argument("--shipped", type=Path, default=PACKAGE_ROOT / "artifacts")
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
        options.shared, chosen[0], shipped=options.shipped, limit=options.limit, processes=options.processes
    )
    options.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(figures_as_text(figures) + "\n")
    return EXIT_DONE


if __name__ == "__main__":
    raise SystemExit(main())
