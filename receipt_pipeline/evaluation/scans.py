"""Labeled scans and transcripts."""

from __future__ import annotations

import csv
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from receipt_pipeline.chain.decode import decode_scan
from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features.table import compute_features
from receipt_pipeline.chain.ocr.engine import RapidOcrEngine
from receipt_pipeline.chain.ocr.models import place_models
from receipt_pipeline.chain.pipeline import Chain
from receipt_pipeline.chain.release import load_chain
from receipt_pipeline.chain.risk import RiskModel, score
from receipt_pipeline.chain.values import NO_PAGES, ReadAmount, ReadDate, ReceiptFields, page_text_of
from receipt_pipeline.core.items import Decision, ItemOutcome
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.evaluation.fields import normalized_value, strict_fields

PROCESSES = 2
DECIDING_FIELDS = ("date", "total")


@dataclass(frozen=True, slots=True)
class LabeledScan:
    """One scan of the development set: its picture, whether it was forged, and the true fields."""

    scan_id: str
    picture: Path
    forged: bool
    truth: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class EvaluatedScan:
    """The chain's outcome of one scan, and the processor seconds that it took."""

    scan: LabeledScan
    outcome: ItemOutcome
    seconds: float

    @property
    def cleared(self) -> bool:
        """Check whether the chain would clear the scan without a review."""
        return self.outcome.decision is Decision.CLEAR

    @property
    def key_fields(self) -> dict[str, str | None]:
        """Return company, date, address and total in the scorer's form."""
        return strict_fields(fields_of(self.outcome.fields))

    @property
    def misread(self) -> bool:
        """Check whether its total or day, normalized, differs from the picture; forged or not."""
        return any(not self._right(field, self.scan.truth[field]) for field in DECIDING_FIELDS)

    @property
    def wrong(self) -> bool:
        """Check whether clearing it would be a mistake: it is forged, or its day or total is misread."""
        return self.scan.forged or self.misread

    def _right(self, field: str, truth: str | None) -> bool:
        if truth is None:
            return True
        read = self.key_fields[field]
        return read is not None and normalized_value(field, read) == normalized_value(field, truth)


def read_labeled_scans(folder: Path) -> list[LabeledScan]:
    """Return the scans that the folder's truth files name, by id.

    Source: truth files with `id`, `image`, `forged` and the four key fields.
    """
    scans = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and isinstance(document.get("forged"), bool):
            truth = {field: document[field] for field in ("company", "date", "address", "total")}
            scans.append(LabeledScan(document["id"], folder / document["image"], document["forged"], truth))
    return scans


def classify_scans(
    scans: Sequence[LabeledScan], pins: Pins, *, shipped: Path, processes: int = PROCESSES
) -> list[EvaluatedScan]:
    """Classify all scans under the pins, in their order; one text reader a process, one thread each."""
    with tempfile.TemporaryDirectory() as models:
        place_models(Path(models))
        settings = (pins.as_document(), str(shipped), models)
        if processes == 1:
            _open_chain(*settings)
            return [_classify(scan) for scan in scans]
        context = get_context("spawn")
        with context.Pool(processes, initializer=_open_chain, initargs=settings) as pool:
            return pool.map(_classify, scans, chunksize=1)


def fields_of(document: Mapping[str, Any]) -> ReceiptFields:
    """Return what the scorer needs of an outcome's fields document."""
    date, total = document.get("date"), document.get("total")
    return ReceiptFields(
        merchant=document.get("merchant"),
        address=document.get("address"),
        date=None if date is None else ReadDate(date["printed"], date["iso"], date["ambiguous"]),
        total=None if total is None else ReadAmount(total["printed"], total["minor"], total["currency"], False, 1.0),
    )


def stock_seconds(pictures: Sequence[Path]) -> float:
    """Return the mean processor seconds that stock RapidOCR, one thread, needs for one of these pictures."""
    from rapidocr import RapidOCR

    with tempfile.TemporaryDirectory() as models:
        files = place_models(Path(models))
        reader: Any = RapidOCR(
            params={
                "Global.log_level": "error",
                "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                "Det.model_path": str(files.det),
                "Rec.model_path": str(files.rec),
                "Cls.model_path": str(files.cls),
            }
        )
        decoded = [decode_scan(picture.read_bytes()).pages[0].pixels[:, :, ::-1] for picture in pictures]
        # Models are loaded at the first call, which is no part of the time of a scan.
        reader(decoded[0])
        begun = time.process_time()
        for pixels in decoded:
            reader(pixels)
        return (time.process_time() - begun) / len(decoded)


# One chain a process: the text reader takes seconds to load.
_CHAIN: list[Chain] = []


def _open_chain(pins: Mapping[str, str], shipped: str, models: str) -> None:
    frozen = Pins.from_document(pins)
    engine = RapidOcrEngine(place_models(Path(models)))
    engine.warm_up()
    _CHAIN[:] = [load_chain(frozen, shipped=Path(shipped), image_digest=frozen.image_digest, engine=engine)]


def _classify(scan: LabeledScan) -> EvaluatedScan:
    data = scan.picture.read_bytes()
    begun = time.process_time()
    outcome = _CHAIN[0].classify(data, duplicate_bytes=False, on_page=lambda: None)
    return EvaluatedScan(scan, outcome, time.process_time() - begun)


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


def score_transcripts(folder: Path, model: RiskModel) -> pd.DataFrame:
    """Return id, suspicion (0..1) and truth of every transcript, as the chain reads and scores it."""
    rows = []
    for transcript in read_transcripts(folder):
        page_text = page_text_of(transcript.texts)
        features = compute_features(NO_PAGES, page_text, extract_fields(page_text))
        suspicion = score(model, features).probability_ppm / 1_000_000
        rows.append((transcript.name, suspicion, transcript.forged))
    return pd.DataFrame(rows, columns=["scan_id", "suspicion", "forged"])
