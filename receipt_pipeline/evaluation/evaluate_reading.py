"""Evaluation of reading: the chain's reading stages over a folder of scans with truth files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.chain.decode import decode_scan
from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.ocr.engine import read_scan
from receipt_pipeline.chain.values import OcrEngine
from receipt_pipeline.evaluation.fields import (
    FIELDS,
    OVERALL,
    ReadingScores,
    evaluate_fields,
    read_truths,
    strict_fields,
)


@dataclass(frozen=True, slots=True)
class ReadingEvaluation:
    """Scores over a folder, number of scans, and processor seconds spent reading them."""

    scans: int
    scores: ReadingScores
    cpu_s: float


def evaluate_reading(
    folder: Path, engine: OcrEngine, *, on_scan: Callable[[str], None] = lambda _scan: None
) -> ReadingEvaluation:
    """Read every scan that a truth file of the folder names, and score the four key fields.

    Source: truth files of the form of SROIE task 3, `id`, `image` and the key fields, as JSON.
    """
    truths = read_truths(folder)
    predictions: dict[str, dict[str, str | None]] = {}
    begun = time.process_time()
    for receipt_id in truths:
        truth = json.loads((folder / f"{receipt_id}.json").read_text(encoding="utf-8"))
        scan = decode_scan((folder / truth["image"]).read_bytes())
        predictions[receipt_id] = strict_fields(extract_fields(read_scan(scan, engine)))
        on_scan(receipt_id)
    spent = time.process_time() - begun
    return ReadingEvaluation(len(truths), evaluate_fields(predictions, truths), spent)


def scores_as_text(scores: ReadingScores) -> str:
    """Return both scores as a table for people: field, precision, recall, F1, counts."""
    lines = []
    for label, by_field in (("strict", scores.strict), ("normalised", scores.normalised)):
        lines.append(f"{label:11}  precision  recall      F1  right/predicted/wanted")
        for field in (*FIELDS, OVERALL):
            score = by_field[field]
            counts = f"{score.right}/{score.predicted}/{score.wanted}"
            lines.append(
                f"  {field:9}  {score.precision:9.4f}  {score.recall:6.4f}  {score.f1:6.4f}  {counts}"
            )
    return "\n".join(lines)
