"""Evaluation of risk on transcripts: text lines without a picture, so places and confidence say nothing."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.chain.bare_text import NO_PAGES, bare_reading
from receipt_pipeline.chain.revisions import CarriedChain
from receipt_pipeline.chain.risk import RiskModel, score


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


def score_transcripts(
    folder: Path, model: RiskModel, carried: CarriedChain
) -> tuple[dict[str, float], dict[str, bool]]:
    """Return risk (0..1) and truth of every transcript, by its id, as the chain extracts and judges."""
    risks: dict[str, float] = {}
    truth: dict[str, bool] = {}
    for transcript in read_transcripts(folder):
        reading = bare_reading(transcript.texts)
        features = carried.judging.features(NO_PAGES, reading, carried.reading.extract(reading))
        risks[transcript.name] = score(model, features).probability_ppm / 1_000_000
        truth[transcript.name] = transcript.forged
    return risks, truth
