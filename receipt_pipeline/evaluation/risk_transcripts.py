"""Evaluation of risk on transcripts: text lines without a picture, so places and confidence say nothing."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.chain.features import compute_features
from receipt_pipeline.chain.risk import RiskModel, score
from receipt_pipeline.chain.values import Reading, ReceiptFields, TextLine

LINE_HEIGHT_PX = 22
ROW_STEP_PX = 32
CHARACTER_PX = 12


@dataclass(frozen=True, slots=True)
class Transcript:
    """One transcribed receipt and whether it was forged."""

    name: str
    texts: tuple[str, ...]
    forged: bool


def read_transcripts(folder: Path) -> Iterator[Transcript]:
    """Yield the transcripts that `labels.csv` of the folder names, in its order."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            text = (folder / f"{row['id']}.txt").read_text(encoding="utf-8")
            texts = tuple(line for line in text.splitlines() if line.strip())
            yield Transcript(name=row["id"], texts=texts, forged=row["forged"] == "1")


def transcript_reading(texts: tuple[str, ...]) -> Reading:
    """Return a reading of bare text lines: full confidence, one row a line, all starting at the left."""
    lines = tuple(
        TextLine(
            text=text,
            box=(0, ROW_STEP_PX * at, CHARACTER_PX * len(text), ROW_STEP_PX * at + LINE_HEIGHT_PX),
            confidence=1.0,
            page=0,
        )
        for at, text in enumerate(texts)
    )
    width = max((line.box[2] for line in lines), default=1)
    return Reading(lines=lines, page_sizes=((width, ROW_STEP_PX * max(1, len(texts))),))


def score_transcripts(
    folder: Path, model: RiskModel, extract: Callable[[Reading], ReceiptFields]
) -> tuple[dict[str, float], dict[str, bool]]:
    """Return risk (0..1) and truth of every transcript, by its id, its fields found by this chain."""
    risks: dict[str, float] = {}
    truth: dict[str, bool] = {}
    for transcript in read_transcripts(folder):
        reading = transcript_reading(transcript.texts)
        features = compute_features(reading, extract(reading))
        risks[transcript.name] = score(model, features).probability_ppm / 1_000_000
        truth[transcript.name] = transcript.forged
    return risks, truth
