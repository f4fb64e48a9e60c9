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
from receipt_pipeline.evaluation.figures import (
    RISK_DIGITS,
    auc_figures,
    decision_figures,
    field_figures,
    picture_figures,
)
from receipt_pipeline.evaluation.risk_pictures import (
    PROCESSES,
    judge_scans,
    read_labelled_scans,
    stock_seconds,
)
from receipt_pipeline.evaluation.risk_transcripts import score_transcripts

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
    path = artefact_path(shipped / FOLDS_FOLDER, digest)
    if not path.exists():
        return []
    folds: list[dict[str, Any]] = json.loads(path.read_bytes())
    return folds


def _text_figures(transcripts: Path, release: ShippedRelease, *, shipped: Path) -> dict[str, Any]:
    digest = release.release.risk_model_digest
    model = load_risk_model(artefact_path(shipped / MODELS_FOLDER, digest), digest)
    risks, truth = score_transcripts(transcripts, model, chain_of_revision(release.release.chain_revision))
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
        lines.append(
            f"{'f1 ' + field:24} strict {scores['strict']['f1']}, normalised {scores['normalised']['f1']}"
        )
    for fold in figures["folds"]:
        held = f"{fold['shops']} shops, {fold['texts']} texts and {fold['drawn']} drawn receipts held out"
        name = f"risk model, fold {fold['fold']}"
        lines.append(f"{name:24} auc {fold['auc_texts']} and {fold['auc_drawn']} ({held})")
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
