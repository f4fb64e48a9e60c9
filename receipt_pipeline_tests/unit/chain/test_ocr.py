"""PageText: the order of lines, progress page by page, and what the settings name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from receipt_pipeline.chain.ocr.engine import (
    OcrSettings,
    RapidOcrEngine,
    in_reading_order,
    limit_at,
    page_scale,
    read_scan,
)
from receipt_pipeline.chain.ocr.letters import KNOWN_WORDS
from receipt_pipeline.chain.ocr.models import OCR_MODELS, OcrModelFiles
from receipt_pipeline.chain.values import DecodedScan, Page, TextLine
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import StageFailed


def a_line(text: str, left: int, top: int, page: int = 0) -> TextLine:
    """A line 100 pixels wide and 20 high."""
    return TextLine(text, (left, top, left + 100, top + 20), 0.99, page)


class NamingEngine:
    """Reads one line on every page but the blank ones."""

    def __init__(self, blank: tuple[int, ...] = ()) -> None:
        self.blank = blank

    def read_page(self, page: Page) -> tuple[TextLine, ...]:
        """Return one line that names the page."""
        return () if page.index in self.blank else (a_line(f"page {page.index}", 0, 0, page.index),)


def test_lines_of_one_row_go_left_to_right_and_rows_top_to_bottom() -> None:
    lines = [a_line("third", 0, 50), a_line("second", 200, 4), a_line("first", 0, 0)]
    assert [line.text for line in in_reading_order(lines)] == ["first", "second", "third"]


def test_all_pages_are_read_in_order_and_each_reports_progress() -> None:
    pages = tuple(Page(index, np.full((30, 40 + index, 3), 255, np.uint8)) for index in range(3))
    seen: list[int] = []
    reading = read_scan(
        DecodedScan("pdf", pages), NamingEngine(blank=(1,)), on_page=lambda: seen.append(len(seen))
    )
    assert seen == [0, 1, 2]
    assert [line.text for line in reading.lines] == ["page 0", "page 2"]
    assert reading.page_sizes == ((40, 30), (41, 30), (42, 30))
    assert reading.blank_pages == (1,)


def test_settings_name_models_versions_and_every_limit() -> None:
    document = OcrSettings().as_document()
    assert document["models"] == dict(OCR_MODELS)
    assert {"rapidocr", "onnxruntime", "numpy"} <= set(document["versions"])
    assert document["threads"] == 1
    assert OcrSettings(recognition_batch=6).as_document() != document


def test_a_model_that_is_no_model_gives_no_answer(tmp_path: Path) -> None:
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"not a model")
    engine = RapidOcrEngine(OcrModelFiles(det=broken, rec=broken, cls=broken))
    with pytest.raises(StageFailed) as caught:
        engine.warm_up()
    assert caught.value.reason.code == "ENGINE.OCR_UNAVAILABLE.v1"


@pytest.mark.parametrize(
    ("width_px", "height_px", "limit"),
    [
        (741, 1892, ("max", 1056)),
        (420, 260, ("min", 512)),
        (600, 6000, ("max", 3872)),
        (1, 5000, ("max", 4800)),
        (9000, 5000, ("max", 896)),
    ],
)
def test_pages_are_scaled_to_one_area_and_long_ones_to_more(
    width_px: int, height_px: int, limit: tuple[str, int]
) -> None:
    assert limit_at(page_scale(width_px, height_px, OcrSettings()), width_px, height_px) == limit


def test_the_known_words_enter_the_identity_by_their_digest() -> None:
    assert OcrSettings().as_document()["words"] == digest_of(sorted(KNOWN_WORDS))


def test_a_part_of_a_page_is_scaled_as_the_whole_page_is() -> None:
    settings = OcrSettings()
    scale = page_scale(900, 1800, settings)
    assert limit_at(scale, 900, 1800) == ("max", 960)
    kind, side_px = limit_at(scale, 900, 1000)
    assert kind == "max"
    assert abs(side_px / 1000 - scale) < 0.02
