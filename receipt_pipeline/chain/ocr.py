"""Stage ocr: the text lines of every page, in reading order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from receipt_pipeline.chain.ocr_letters import (
    ALTERNATIVE_MIN,
    SURE,
    letters_of,
    mean_probability,
    weighed_text,
)
from receipt_pipeline.chain.ocr_margins import printed_part
from receipt_pipeline.chain.ocr_models import OCR_MODELS, OcrModelFiles
from receipt_pipeline.chain.values import DecodedScan, OcrEngine, Page, Reading, TextLine
from receipt_pipeline.chain.words import KNOWN_WORDS
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE

CONFIDENCE_DIGITS = 4
LIBRARIES = (
    "rapidocr",
    "onnxruntime",
    "opencv-python-headless",
    "numpy",
    "pillow",
    "pypdfium2",
    "pillow-heif",
)
DETECTOR_STEP_PX = 32
USUAL_LENGTH_RATIO = 3.0
# The height that the recognition model takes its lines in.
RECOGNITION_HEIGHT_PX = 48
TURN_PROBES_MAX = 8
# A sideways page shows itself by boxes that stand tall; the share leaves room for a few vertical lines.
SIDEWAYS_SHARE = 0.6
TALL_BOX_RATIO = 1.5
# Settings that came after `chain-v1`.
SINCE_V2 = frozenset({"trims_margins", "weighs_words", "letter_sure", "other_letter_min"})
# Less text than this says nothing about how the page lies.
TURN_LINES_MIN = 3


def _library_versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, version(name)) for name in LIBRARIES)


@dataclass(frozen=True, slots=True)
class OcrSettings:
    """What decides the reader's output beside the models; enters the chain revision.

    `detector_pixels` is the area that a page is scaled to for text detection; lines below
    `score_min` (0..1) are dropped. `trims_margins` leaves the page's empty edges out of detection,
    `weighs_words` decides doubtful letters by known words; `letter_sure` and `other_letter_min` (both
    0..1) say below which probability a letter is doubtful, and from which another one may take its
    place. One thread always: more change the timing only, and cost throughput.
    """

    detector_pixels: int = 450_000
    detector_side_px_max: int = 4800
    recognition_batch: int = 1
    recognition_width_px_min: int = 96
    score_min: float = 0.5
    threads: int = 1
    versions: tuple[tuple[str, str], ...] = field(default_factory=_library_versions)
    trims_margins: bool = False
    weighs_words: bool = False
    letter_sure: float = SURE
    other_letter_min: float = ALTERNATIVE_MIN

    def as_document(self) -> dict[str, Any]:
        """Return the settings and model digests as plain JSON, for the chain revision.

        What came later is left out where it is as before, so that older chains keep their revisions.
        """
        document = {**asdict(self), "versions": dict(self.versions), "models": dict(OCR_MODELS)}
        for later in fields(self):
            if later.name in SINCE_V2 and document[later.name] == later.default:
                del document[later.name]
        if self.weighs_words:
            document["words"] = digest_of(sorted(KNOWN_WORDS))
        return document


@runtime_checkable
class TurnsPages(Protocol):
    """An engine that can also tell how a page lies."""

    def upright(self, page: Page) -> Page:
        """Return the page turned so that its text stands upright, or the page itself."""


class RapidOcrEngine:
    """PP-OCR detection and recognition on onnxruntime, one thread, models by verified path.

    Source: PP-OCR models by digest (`OCR_MODELS`), run by rapidocr's detector, classifier and recogniser.
    """

    def __init__(self, models: OcrModelFiles, settings: OcrSettings | None = None) -> None:
        self.settings = settings if settings is not None else OcrSettings()
        self._models = models
        self._loaded: list[Any] = []
        # The boxes of the page that was turned last, so that reading it does not detect them again.
        self._detected: tuple[Page, NDArray[np.float32]] | None = None

    def under(self, settings: OcrSettings) -> RapidOcrEngine:
        """Return a reader of these settings over the same loaded models.

        What shapes the loaded models stays as it is here; the caller compares the settings of the answer.
        """
        kept = replace(
            settings,
            recognition_batch=self.settings.recognition_batch,
            recognition_width_px_min=self.settings.recognition_width_px_min,
            threads=self.settings.threads,
            versions=self.settings.versions,
        )
        other = RapidOcrEngine(self._models, kept)
        other._loaded = self._loaded
        return other

    def warm_up(self) -> None:
        """Load all three models and run each once. Raises StageFailed when one cannot be used."""
        bars = np.full((96, 320, 3), 255, dtype=np.uint8)
        bars[40:56, 40:280] = 0
        crop = bars[32:64]

        def detect(reader: Any) -> Any:
            # As small as it is: the detector's own default would first enlarge it to a large picture.
            reader.text_det.limit_type, reader.text_det.limit_side_len = "max", bars.shape[1]
            return reader.text_det(bars)

        self._run(detect)
        self._turned_votes([crop])
        self._recognise([crop])

    def upright(self, page: Page) -> Page:
        """Return the page turned so that its text stands upright, or the page itself.

        Sideways pages are told by boxes that stand tall, pages upside down by the turn classifier,
        and its word is believed only where the turned lines also read better.
        """
        boxes = self._detect(page.pixels)
        if len(boxes) >= TURN_LINES_MIN and _sideways(boxes):
            page = Page(page.index, np.ascontiguousarray(np.rot90(page.pixels)))
            boxes = self._detect(page.pixels)
        if len(boxes) >= TURN_LINES_MIN and self._upside_down(page.pixels, boxes):
            page = Page(page.index, np.ascontiguousarray(np.rot90(page.pixels, 2)))
            boxes = self._detect(page.pixels)
        self._detected = (page, boxes)
        return page

    def read_page(self, page: Page) -> tuple[TextLine, ...]:
        """Return lines in reading order, boxes in pixels of the page as given.

        Raises StageFailed with ENGINE.OCR_UNAVAILABLE when the engine gives no answer.
        """
        detected, self._detected = self._detected, None
        boxes = detected[1] if detected is not None and detected[0] is page else self._detect(page.pixels)
        if len(boxes) == 0:
            return ()
        crops = _crops(page.pixels, boxes)
        texts, scores = self._weigh(crops) if self.settings.weighs_words else self._recognise(crops)
        found = [
            TextLine(text.strip(), _whole_box(box, page), round(float(score), CONFIDENCE_DIGITS), page.index)
            for box, text, score in zip(boxes, texts, scores, strict=True)
            if text.strip() and score >= self.settings.score_min
        ]
        return in_reading_order(found)

    def _detect(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the quadrangles of text, (n, 4, 2) in page pixels."""
        height_px, width_px = pixels.shape[:2]
        whole = (0, 0, width_px, height_px)
        left, top, right, bottom = printed_part(pixels) if self.settings.trims_margins else whole
        scale = page_scale(width_px, height_px, self.settings)
        limit_type, limit_px = limit_at(scale, right - left, bottom - top)

        def detect(reader: Any) -> Any:
            reader.text_det.limit_type, reader.text_det.limit_side_len = limit_type, limit_px
            return reader.text_det(_bgr(pixels[top:bottom, left:right])).boxes

        boxes = self._run(detect)
        if boxes is None:
            return np.zeros((0, 4, 2), np.float32)
        return np.asarray(boxes, dtype=np.float32) + np.array([left, top], dtype=np.float32)

    def _recognise(self, crops: list[NDArray[np.uint8]]) -> tuple[tuple[str, ...], tuple[float, ...]]:
        from rapidocr.ch_ppocr_rec import TextRecInput

        answer = self._run(lambda reader: reader.text_rec(TextRecInput(img=crops, return_word_box=False)))
        return tuple(answer.txts), tuple(answer.scores)

    def _weigh(self, crops: list[NDArray[np.uint8]]) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Recognise the crops one by one, doubtful letters decided by known words.

        The score of a line is the mean probability of the letters as they were read first.
        """
        sure, other_min = self.settings.letter_sure, self.settings.other_letter_min
        lines = self._run(
            lambda reader: [
                letters_of(*_probabilities(reader.text_rec, crop), sure=sure, other_min=other_min)
                for crop in crops
            ]
        )
        return tuple(weighed_text(letters) for letters in lines), tuple(
            mean_probability(letters) for letters in lines
        )

    def _turned_votes(self, crops: list[NDArray[np.uint8]]) -> int:
        """Return how many of the crops the classifier takes for upside down."""
        answer = self._run(lambda reader: reader.text_cls(crops))
        return sum(1 for label, _score in answer.cls_res if "180" in label)

    def _upside_down(self, pixels: NDArray[np.uint8], boxes: NDArray[np.float32]) -> bool:
        widest = sorted(range(len(boxes)), key=lambda i: -float(np.ptp(boxes[i][:, 0])))[:TURN_PROBES_MAX]
        crops = _crops(pixels, boxes[sorted(widest)])
        if self._turned_votes(crops) * 2 <= len(crops):
            return False
        as_is = sum(self._recognise(crops)[1])
        turned = sum(self._recognise([np.ascontiguousarray(np.rot90(crop, 2)) for crop in crops])[1])
        return turned > as_is

    def _run(self, call: Callable[[Any], Any]) -> Any:
        try:
            if not self._loaded:
                self._loaded.append(_load_reader(self._models, self.settings))
            return call(self._loaded[0])
        except MemoryError:
            raise
        except Exception as error:
            # The library raises its own, onnxruntime's and OpenCV's errors; to the chain they mean one thing.
            raise StageFailed(ENGINE_OCR_UNAVAILABLE, error=type(error).__name__) from error


def read_scan(scan: DecodedScan, engine: OcrEngine, *, on_page: Callable[[], None] = lambda: None) -> Reading:
    """Read all pages in order; `on_page` is called after each, as the sign of progress.

    The reading's page sizes and boxes are those of the pages as read, upright.
    """
    lines: list[TextLine] = []
    sizes: list[tuple[int, int]] = []
    for stored in scan.pages:
        page = engine.upright(stored) if isinstance(engine, TurnsPages) else stored
        lines.extend(engine.read_page(page))
        sizes.append((page.pixels.shape[1], page.pixels.shape[0]))
        on_page()
    return Reading(tuple(lines), tuple(sizes))


def page_scale(width_px: int, height_px: int, settings: OcrSettings) -> float:
    """Return by how much a page is scaled for detection.

    The page is scaled to the area of the settings; a page longer than usual gets more of it, because
    its print is as small as that of a short one.
    """
    long_px, short_px = max(width_px, height_px), min(width_px, height_px)
    area = settings.detector_pixels * max(1.0, long_px / short_px / USUAL_LENGTH_RATIO)
    return min(math.sqrt(area / (long_px * short_px)), settings.detector_side_px_max / long_px)


def limit_at(scale: float, width_px: int, height_px: int) -> tuple[str, int]:
    """Return the detector's limit on a side: `max` shrinks the long one, `min` enlarges the short one."""
    side = max(width_px, height_px) if scale <= 1 else min(width_px, height_px)
    stepped = max(DETECTOR_STEP_PX, round(side * scale / DETECTOR_STEP_PX) * DETECTOR_STEP_PX)
    return ("max" if scale <= 1 else "min"), stepped


def in_reading_order(lines: list[TextLine]) -> tuple[TextLine, ...]:
    """Order lines top to bottom; lines whose middles share a row go left to right."""
    rows: list[list[TextLine]] = []
    for line in sorted(lines, key=lambda line: (line.box[1] + line.box[3], line.box[0])):
        middle = (line.box[1] + line.box[3]) / 2
        if rows and rows[-1][0].box[1] <= middle <= rows[-1][0].box[3]:
            rows[-1].append(line)
        else:
            rows.append([line])
    return tuple(line for row in rows for line in sorted(row, key=lambda line: line.box[0]))


def _load_reader(models: OcrModelFiles, settings: OcrSettings) -> Any:
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(settings.threads)
    # All three paths are named: with one left out the library would ask the network for it.
    reader: Any = RapidOCR(
        params={
            "Global.log_level": "error",
            "EngineConfig.onnxruntime.intra_op_num_threads": settings.threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": settings.threads,
            "Det.model_path": str(models.det),
            "Rec.model_path": str(models.rec),
            "Cls.model_path": str(models.cls),
            "Rec.rec_batch_num": settings.recognition_batch,
            "Rec.rec_img_shape": [3, RECOGNITION_HEIGHT_PX, settings.recognition_width_px_min],
        }
    )
    reader._load_det_model()
    reader._load_cls_model()
    reader._load_rec_model()
    return reader


def _bgr(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(pixels[:, :, ::-1])


def _crops(pixels: NDArray[np.uint8], boxes: NDArray[np.float32]) -> list[NDArray[np.uint8]]:
    from rapidocr.utils.process_img import get_rotate_crop_image

    bgr = _bgr(pixels)
    return [get_rotate_crop_image(bgr, box.copy()) for box in boxes]


def _probabilities(recogniser: Any, crop: NDArray[np.uint8]) -> tuple[NDArray[np.float32], list[str]]:
    """Return what the recognition model says of one crop, (columns, characters), and its characters."""
    _channels, height_px, width_px_min = recogniser.rec_image_shape
    ratio = max(width_px_min / height_px, crop.shape[1] / crop.shape[0])
    picture = recogniser.resize_norm_img(crop, ratio)[np.newaxis].astype(np.float32)
    return recogniser.session(picture)[0], recogniser.postprocess_op.character


def _sideways(boxes: NDArray[np.float32]) -> bool:
    spans = np.ptp(boxes, axis=1)
    tall = int(np.count_nonzero(spans[:, 1] > TALL_BOX_RATIO * spans[:, 0]))
    return tall > SIDEWAYS_SHARE * len(boxes)


def _whole_box(box: NDArray[np.float32], page: Page) -> tuple[int, int, int, int]:
    height, width = page.pixels.shape[:2]
    left, top = np.floor(box.min(axis=0))
    right, bottom = np.ceil(box.max(axis=0))
    return max(0, int(left)), max(0, int(top)), min(width, int(right)), min(height, int(bottom))
