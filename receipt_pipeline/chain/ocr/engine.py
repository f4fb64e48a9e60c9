"""The text lines of every page, in reading order; a page's margins are cut before detection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from receipt_pipeline.chain.ocr.letters import (
    KNOWN_WORDS,
    LETTER_SURE,
    OTHER_LETTER_MIN,
    letters_of,
    mean_probability,
    weighed_text,
)
from receipt_pipeline.chain.ocr.models import OCR_MODELS, OcrModelFiles
from receipt_pipeline.chain.values import DecodedScan, OcrEngine, Page, PageText, TextLine
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE

CONFIDENCE_DIGITS = 4
LIBRARIES = ("rapidocr", "onnxruntime", "opencv-python-headless", "numpy", "pillow", "pypdfium2", "pillow-heif")
DETECTOR_STEP_PX = 32
USUAL_LENGTH_RATIO = 3.0
# The height that the recognition model takes its lines in.
RECOGNITION_HEIGHT_PX = 48
TURN_PROBES_MAX = 8
# A sideways page shows itself by boxes that are tall; the share allows for a few vertical lines.
SIDEWAYS_SHARE = 0.6
TALL_BOX_RATIO = 1.5
# Less text than this says nothing about which way the page is turned.
TURN_LINES_MIN = 3


def _library_versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, version(name)) for name in LIBRARIES)


@dataclass(frozen=True, slots=True)
class OcrSettings:
    """What decides the reader's output apart from the models; enters the chain revision.

    `detector_pixels` is the area that a page is scaled to for text detection; lines below
    `score_min` (0..1) are dropped. `letter_sure` and `other_letter_min` (both 0..1) say below which
    probability a letter is doubtful, and from which another one may take its place. Always one thread:
    more change the timing only, and cost throughput.
    """

    detector_pixels: int = 450_000
    detector_side_px_max: int = 4800
    recognition_batch: int = 1
    recognition_width_px_min: int = 96
    score_min: float = 0.5
    threads: int = 1
    versions: tuple[tuple[str, str], ...] = field(default_factory=_library_versions)
    letter_sure: float = LETTER_SURE
    other_letter_min: float = OTHER_LETTER_MIN

    def as_document(self) -> dict[str, Any]:
        """Return settings, model digests and the digest of the known words as plain JSON."""
        return {
            **asdict(self),
            "versions": dict(self.versions),
            "models": dict(OCR_MODELS),
            "words": digest_of(sorted(KNOWN_WORDS)),
        }


@runtime_checkable
class TurnsPages(Protocol):
    """An engine that can also turn a page upright."""

    def upright(self, page: Page) -> Page:
        """Return the page turned so that its text is upright, or the page itself."""


class RapidOcrEngine:
    """PP-OCR detection and recognition on onnxruntime, one thread, models by verified path.

    Source: PP-OCR models by digest (`OCR_MODELS`), run by rapidocr's detector, classifier and recognizer.
    """

    def __init__(self, models: OcrModelFiles, settings: OcrSettings | None = None) -> None:
        self.settings = settings if settings is not None else OcrSettings()
        self._models = models
        self._loaded: list[Any] = []
        # The boxes of the page that was turned last, so that reading it does not detect them again.
        self._detected: tuple[Page, NDArray[np.float32]] | None = None

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
        self._recognize([crop])

    def upright(self, page: Page) -> Page:
        """Return the page turned so that its text is upright, or the page itself.

        Sideways pages are recognized by boxes that are tall, pages upside down by the turn classifier,
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
        texts, scores = self._weigh(crops)
        found = [
            TextLine(text.strip(), _whole_box(box, page), round(float(score), CONFIDENCE_DIGITS), page.index)
            for box, text, score in zip(boxes, texts, scores, strict=True)
            if text.strip() and score >= self.settings.score_min
        ]
        return in_reading_order(found)

    def _detect(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the quadrangles of text, (n, 4, 2) in page pixels."""
        height_px, width_px = pixels.shape[:2]
        left, top, right, bottom = printed_part(pixels)
        scale = page_scale(width_px, height_px, self.settings)
        limit_type, limit_px = limit_at(scale, right - left, bottom - top)

        def detect(reader: Any) -> Any:
            reader.text_det.limit_type, reader.text_det.limit_side_len = limit_type, limit_px
            return reader.text_det(_bgr(pixels[top:bottom, left:right])).boxes

        boxes = self._run(detect)
        if boxes is None:
            return np.zeros((0, 4, 2), np.float32)
        return np.asarray(boxes, dtype=np.float32) + np.array([left, top], dtype=np.float32)

    def _recognize(self, crops: list[NDArray[np.uint8]]) -> tuple[tuple[str, ...], tuple[float, ...]]:
        from rapidocr.ch_ppocr_rec import TextRecInput

        answer = self._run(lambda reader: reader.text_rec(TextRecInput(img=crops, return_word_box=False)))
        return tuple(answer.txts), tuple(answer.scores)

    def _weigh(self, crops: list[NDArray[np.uint8]]) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Recognize the crops one by one, doubtful letters decided by known words.

        The score of a line is the mean probability of the letters as they were read first.
        """
        sure, other_min = self.settings.letter_sure, self.settings.other_letter_min
        lines = self._run(
            lambda reader: [
                letters_of(*_probabilities(reader.text_rec, crop), sure=sure, other_min=other_min) for crop in crops
            ]
        )
        return tuple(weighed_text(letters) for letters in lines), tuple(mean_probability(letters) for letters in lines)

    def _turned_votes(self, crops: list[NDArray[np.uint8]]) -> int:
        """Return how many of the crops the classifier takes for upside down."""
        answer = self._run(lambda reader: reader.text_cls(crops))
        return sum(1 for label, _score in answer.cls_res if "180" in label)

    def _upside_down(self, pixels: NDArray[np.uint8], boxes: NDArray[np.float32]) -> bool:
        widest = sorted(range(len(boxes)), key=lambda i: -float(np.ptp(boxes[i][:, 0])))[:TURN_PROBES_MAX]
        crops = _crops(pixels, boxes[sorted(widest)])
        if self._turned_votes(crops) * 2 <= len(crops):
            return False
        as_is = sum(self._recognize(crops)[1])
        turned = sum(self._recognize([np.ascontiguousarray(np.rot90(crop, 2)) for crop in crops])[1])
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


def read_scan(scan: DecodedScan, engine: OcrEngine, *, on_page: Callable[[], None] = lambda: None) -> PageText:
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
    return PageText(tuple(lines), tuple(sizes))


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


def _probabilities(recognizer: Any, crop: NDArray[np.uint8]) -> tuple[NDArray[np.float32], list[str]]:
    """Return what the recognition model says of one crop, (columns, characters), and its characters."""
    _channels, height_px, width_px_min = recognizer.rec_image_shape
    ratio = max(width_px_min / height_px, crop.shape[1] / crop.shape[0])
    picture = recognizer.resize_norm_img(crop, ratio)[np.newaxis].astype(np.float32)
    return recognizer.session(picture)[0], recognizer.postprocess_op.character


def _sideways(boxes: NDArray[np.float32]) -> bool:
    spans = np.ptp(boxes, axis=1)
    tall = int(np.count_nonzero(spans[:, 1] > TALL_BOX_RATIO * spans[:, 0]))
    return tall > SIDEWAYS_SHARE * len(boxes)


def _whole_box(box: NDArray[np.float32], page: Page) -> tuple[int, int, int, int]:
    height, width = page.pixels.shape[:2]
    left, top = np.floor(box.min(axis=0))
    right, bottom = np.ceil(box.max(axis=0))
    return max(0, int(left)), max(0, int(top)), min(width, int(right)), min(height, int(bottom))


# Blocks along the long side of a page: one is about as large as a letter.
BLOCKS_ALONG = 120
BLOCK_PX_MIN = 4
# Every second pixel is enough to distinguish print from paper.
STEP = 2
# Difference of brightness within one block, 0..255; pale print on grayish paper has more.
CONTRAST_MIN = 40
# A row of blocks with fewer holds a speck, no print.
BLOCKS_MIN = 4
MARGIN_BLOCKS = 2


def printed_part(pixels: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) around all print of a page; the whole page where none differ.

    Args:
        pixels: (height_px, width_px, 3) RGB.
    """
    height_px, width_px = pixels.shape[:2]
    block_px = max(BLOCK_PX_MIN, STEP * round(max(height_px, width_px) / BLOCKS_ALONG / STEP))
    rows, columns = height_px // block_px, width_px // block_px
    whole = (0, 0, width_px, height_px)
    if rows < BLOCKS_MIN or columns < BLOCKS_MIN:
        return whole
    green = pixels[: rows * block_px : STEP, : columns * block_px : STEP, 1]
    blocks = green.reshape(rows, block_px // STEP, columns, block_px // STEP)
    contrast = blocks.max(axis=(1, 3)).astype(np.int16) - blocks.min(axis=(1, 3))
    printed = contrast >= CONTRAST_MIN
    down = np.flatnonzero(printed.sum(axis=1) >= BLOCKS_MIN)
    across = np.flatnonzero(printed.sum(axis=0) >= BLOCKS_MIN)
    if len(down) == 0 or len(across) == 0:
        return whole
    left, right = _around(across, block_px, width_px, columns)
    top, bottom = _around(down, block_px, height_px, rows)
    return left, top, right, bottom


def _around(blocks: NDArray[np.int64], block_px: int, side_px: int, blocks_all: int) -> tuple[int, int]:
    """Return where the blocks begin and end, with a margin; the strip after the last whole block is kept."""
    begin = max(0, (int(blocks[0]) - MARGIN_BLOCKS) * block_px)
    last = int(blocks[-1])
    end = side_px if last == blocks_all - 1 else min(side_px, (last + 1 + MARGIN_BLOCKS) * block_px)
    return begin, end
