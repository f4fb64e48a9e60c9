"""Evaluate one release into one document."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import receipt_pipeline
from receipt_pipeline.chain.release import (
    ShippedRelease,
    artifact_path,
    installed_image_digest,
    load_risk_model,
    shipped_releases,
)
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.evaluation.fields import FIELDS, OVERALL, FieldScore, evaluate_fields, normalized_value
from receipt_pipeline.evaluation.risk import auc_interval, reliability, roc_auc, share_upper95
from receipt_pipeline.evaluation.scans import (
    PROCESSES,
    EvaluatedScan,
    LabeledScan,
    classify_scans,
    read_labeled_scans,
    score_transcripts,
    stock_seconds,
)

RISK_DIGITS = 4


def field_figures(scans: Sequence[EvaluatedScan]) -> dict[str, Any]:
    """Return F1 of the key fields, strict and normalized, overall and by field."""
    predictions = {one.scan.scan_id: one.key_fields for one in scans}
    scores = evaluate_fields(predictions, {one.scan.scan_id: one.scan.truth for one in scans})
    return {
        "strict_micro_f1": round(scores.strict[OVERALL].f1, RISK_DIGITS),
        "normalised_micro_f1": round(scores.normalized[OVERALL].f1, RISK_DIGITS),
        "fields": {
            field: {"strict": _score(scores.strict[field]), "normalised": _score(scores.normalized[field])}
            for field in FIELDS
        },
    }


def _score(score: FieldScore) -> dict[str, float]:
    return {
        "precision": round(score.precision, RISK_DIGITS),
        "recall": round(score.recall, RISK_DIGITS),
        "f1": round(score.f1, RISK_DIGITS),
    }


def scan_frame(scans: Sequence[EvaluatedScan]) -> pd.DataFrame:
    """Return one row per scan: id, truth, decision, suspicion, and whether it is cleared, misread or wrong.

    A scan without a risk was rejected; no one would clear it, so its suspicion is 1, the highest.
    """
    rows = [
        {
            "scan_id": one.scan.scan_id,
            "forged": one.scan.forged,
            "decision": "rejected" if one.outcome.decision is None else str(one.outcome.decision),
            "suspicion": 1.0 if one.outcome.risk_ppm is None else one.outcome.risk_ppm / 1_000_000,
            "cleared": one.cleared,
            "misread": one.misread,
            "wrong": one.wrong,
            "reasons": list(one.outcome.reasons),
            "seconds": one.seconds,
        }
        for one in scans
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(truth=frame["forged"].map({True: "forged", False: "genuine"}))


def auc_figures(name: str, frame: pd.DataFrame) -> dict[str, Any]:
    """Return ROC AUC and 95 % interval under `name`; None where one of the classes is missing."""
    forged = frame.loc[frame["forged"], "suspicion"].tolist()
    genuine = frame.loc[~frame["forged"], "suspicion"].tolist()
    if not (forged and genuine):
        return {name: None, f"{name}_interval": None}
    low, high = auc_interval(forged, genuine)
    return {
        name: round(roc_auc(forged, genuine), RISK_DIGITS),
        f"{name}_interval": [round(low, RISK_DIGITS), round(high, RISK_DIGITS)],
    }


def decision_figures(frame: pd.DataFrame) -> dict[str, Any]:
    """Return how much is cleared, how much of that is misread, and how much of it is forged.

    `cleared_wrong` counts cleared scans, forged or not, whose total or day was misread (normalized);
    `cleared_forged` counts cleared forgeries, however well they were read. A scan may be in both.
    """
    genuine, cleared = frame[~frame["forged"]], frame[frame["cleared"]]
    return {
        "cleared": len(cleared),
        "cleared_share": round(int(genuine["cleared"].sum()) / max(1, len(genuine)), RISK_DIGITS),
        **_counted("cleared_wrong", int(cleared["misread"].sum()), len(cleared)),
        **_counted("cleared_forged", int(cleared["forged"].sum()), len(cleared)),
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


def release_evaluation(scans: Sequence[EvaluatedScan], release: ShippedRelease) -> dict[str, Any]:
    """Return figures, curves, calibration, confusion, and every scan's line.

    The document says nothing of time or machine: equal answers give equal documents.
    """
    frame = scan_frame(scans)
    return {
        "kind": DOCUMENT_KIND,
        "release": release.name,
        "release_id": release.release.release_id,
        "set_digest": set_digest([one.scan for one in scans]),
        "scans": len(scans),
        "forged": int(frame["forged"].sum()),
        "figures": {**field_figures(scans), **auc_figures("risk_auc_pictures", frame), **decision_figures(frame)},
        "risk_curve": risk_curve(frame),
        "reliability": reliability(list(zip(frame["suspicion"], frame["forged"], strict=True))),
        "confusion": confusion(frame),
        "reasons": reasons_by_truth(frame),
        "items": [item_line(one, line) for one, line in zip(scans, frame.to_dict("records"), strict=True)],
    }


def set_digest(scans: Sequence[LabeledScan]) -> str:
    """Return the digest of the labels, by which two evaluations are known to be of one set."""
    return digest_of(
        [[scan.scan_id, scan.forged, dict(scan.truth)] for scan in sorted(scans, key=lambda it: it.scan_id)]
    )


def item_line(one: EvaluatedScan, line: Mapping[Hashable, Any]) -> dict[str, Any]:
    """Return what the chain said of one scan next to what is true of it.

    Args:
        line: its row of `scan_frame`.
    """
    read = one.key_fields
    return {
        "scan_id": line["scan_id"],
        "forged": line["forged"],
        "decision": line["decision"],
        "suspicion": round(line["suspicion"], 6),
        "reasons": line["reasons"] or [one.outcome.reason_code or ""][: not line["cleared"]],
        "wrong": line["wrong"],
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
        "normalised": bool(read) and normalized_value(field, read or "") == normalized_value(field, truth),
    }


def risk_curve(frame: pd.DataFrame) -> list[dict[str, float]]:
    """Return, for each share of scans sent to review by risk, which share of either class that is."""
    by_risk = frame.groupby("suspicion").agg(scans=("forged", "size"), forged=("forged", "sum"))
    counts = by_risk.sort_index(ascending=False).cumsum()
    points = pd.DataFrame(
        {
            "reviewed": counts["scans"] / len(frame),
            "forged_caught": counts["forged"] / max(1, frame["forged"].sum()),
            "genuine_reviewed": (counts["scans"] - counts["forged"]) / max(1, (~frame["forged"]).sum()),
        }
    )
    start = {str(name): 0.0 for name in points}
    return [start, *({str(k): round(float(v), DIGITS) for k, v in row.items()} for row in points.to_dict("records"))]


def confusion(frame: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Return the number of scans by truth and decision; `misread` is genuine with a wrong total or day."""
    truth = frame["truth"].mask(frame["misread"] & ~frame["forged"], "misread")
    table = pd.crosstab(truth, frame["decision"]).reindex(["genuine", "misread", "forged"], fill_value=0)
    return {
        str(name): {str(decision): int(count) for decision, count in row.items() if count}
        for name, row in table.iterrows()
    }


def reasons_by_truth(frame: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Return how often each reason was given for genuine and for forged scans, most frequent first."""
    given = frame.explode("reasons").dropna(subset="reasons")
    table = pd.crosstab(given["reasons"], given["truth"]).reindex(columns=["genuine", "forged"], fill_value=0)
    counts = {str(code): {str(truth): int(n) for truth, n in row.items()} for code, row in table.iterrows()}
    return dict(sorted(counts.items(), key=lambda pair: (-sum(pair[1].values()), pair[0])))


PACKAGE_ROOT = Path(receipt_pipeline.__file__).parent
PROJECT_ROOT = PACKAGE_ROOT.parent
RECEIPTS_FOLDER = Path("data") / "receipts"
FOLDS_FOLDER = "folds"
# Stock reading takes several seconds a scan; the mean of a few scans is good enough for a ratio.
STOCK_SCANS = 6
EXIT_DONE, EXIT_NO_DATA = 0, 2


def evaluate(
    shared: Path, release: ShippedRelease, *, shipped: Path, limit: int | None, processes: int
) -> dict[str, Any]:
    """Return all figures of one release as the document of `evaluate.json`."""
    receipts = shared / RECEIPTS_FOLDER
    scans = read_labeled_scans(receipts)
    evaluated = classify_scans(scans[:limit], release.release.pins(), shipped=shipped, processes=processes)
    frame = scan_frame(evaluated)
    return {
        "release": release.name,
        "release_id": release.release.release_id,
        "scans": len(evaluated),
        **field_figures(evaluated),
        # Extraction is rules, learned from no scan; what is trained is the risk model.
        "folds": kept_folds(shipped, release.release.risk_model_digest),
        **_text_figures(receipts / "transcripts", release, shipped=shipped),
        **auc_figures("risk_auc_pictures", frame),
        **decision_figures(frame),
        "seconds_per_scan": round(float(frame["seconds"].mean()), RISK_DIGITS),
        "stock_seconds_per_scan": round(
            stock_seconds([scan.picture for scan in _spread(scans, STOCK_SCANS)]), RISK_DIGITS
        ),
        "stock_scans": min(STOCK_SCANS, len(scans)),
        "processes": processes,
    }


def kept_folds(shipped: Path, digest: str) -> list[dict[str, Any]]:
    """Return each fold's figures on shops that its fit had not seen, as the training of a model wrote them.

    Empty for a model whose training kept none.
    """
    path = artifact_path(shipped / FOLDS_FOLDER, digest)
    if not path.exists():
        return []
    folds: list[dict[str, Any]] = json.loads(path.read_bytes())
    return folds


def _text_figures(transcripts: Path, release: ShippedRelease, *, shipped: Path) -> dict[str, Any]:
    digest = release.release.risk_model_digest
    scored = score_transcripts(transcripts, load_risk_model(shipped, digest))
    return {"transcripts": len(scored), **auc_figures("risk_auc_text", scored)}


def _spread(scans: Sequence[Any], count: int) -> Sequence[Any]:
    """Return a number of scans, evenly over the whole set."""
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
        lines.append(f"{'f1 ' + field:24} strict {scores['strict']['f1']}, normalized {scores['normalised']['f1']}")
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
    parser.add_argument("--limit", type=int, default=None, help="number of scans; all by default")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--output", type=Path, default=PROJECT_ROOT / "evaluate.json")
    options = parser.parse_args(arguments)
    if not (options.shared / RECEIPTS_FOLDER).is_dir():
        sys.stdout.write(f"No development set: {options.shared} has no {RECEIPTS_FOLDER}.\n")
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
