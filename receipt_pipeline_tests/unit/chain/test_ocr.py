"""Reading a page: its margins, scale, order of lines, and models pinned by digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from receipt_pipeline.chain.ocr import models as ocr_models
from receipt_pipeline.chain.ocr.engine import (
    OcrSettings,
    RapidOcrEngine,
    in_reading_order,
    limit_at,
    page_scale,
    printed_part,
    read_scan,
)
from receipt_pipeline.chain.ocr.letters import KNOWN_WORDS
from receipt_pipeline.chain.ocr.models import OCR_MODELS, OcrModelFiles, place_models
from receipt_pipeline.chain.values import DecodedScan, Page, TextLine
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import IdentityMismatch, StageFailed


def a_line(text: str, left: int, top: int, page: int = 0) -> TextLine:
    return TextLine(text, (left, top, left + 100, top + 20), 0.99, page)


class NamingEngine:
    """Reads one line on every page but the blank ones."""

    def __init__(self, blank: tuple[int, ...] = ()) -> None:
        self.blank = blank

    def read_page(self, page: Page) -> tuple[TextLine, ...]:
        return () if page.index in self.blank else (a_line(f"page {page.index}", 0, 0, page.index),)


def test_lines_of_one_row_go_left_to_right_and_rows_top_to_bottom() -> None:
    lines = [a_line("third", 0, 50), a_line("second", 200, 4), a_line("first", 0, 0)]
    assert [line.text for line in in_reading_order(lines)] == ["first", "second", "third"]


def test_all_pages_are_read_in_order_and_each_reports_progress() -> None:
    pages = tuple(Page(index, np.full((30, 40 + index, 3), 255, np.uint8)) for index in range(3))
    seen: list[int] = []
    reading = read_scan(DecodedScan("pdf", pages), NamingEngine(blank=(1,)), on_page=lambda: seen.append(len(seen)))
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


def paper(width_px: int = 800, height_px: int = 1200, brightness: int = 245) -> NDArray[np.uint8]:
    return np.full((height_px, width_px, 3), brightness, np.uint8)


def printed(page: NDArray[np.uint8], left: int, top: int, right: int, bottom: int, darkness: int = 30) -> None:
    page[top:bottom:6, left:right] = darkness
    page[top + 1 : bottom : 6, left:right] = darkness


def test_the_empty_edges_of_a_page_are_left_out_with_a_margin() -> None:
    page = paper()
    printed(page, 200, 320, 600, 640)
    # Blocks of 10 pixels, and two of them as margin.
    assert printed_part(page) == (180, 300, 620, 660)


def test_pale_print_is_print_and_a_speck_is_none() -> None:
    page = paper()
    printed(page, 200, 320, 600, 640, darkness=200)
    page[40:44, 40:44] = 0
    assert printed_part(page) == (180, 300, 620, 660)


@pytest.mark.parametrize("brightness", [0, 128, 255])
def test_a_page_on_which_nothing_stands_out_stays_whole(brightness: int) -> None:
    assert printed_part(paper(brightness=brightness)) == (0, 0, 800, 1200)


@pytest.mark.parametrize(("width_px", "height_px"), [(1, 1), (20, 900), (900, 20), (37, 41)])
def test_tiny_and_odd_pages_are_within_bounds(width_px: int, height_px: int) -> None:
    page = paper(width_px, height_px)
    page[::3] = 0
    left, top, right, bottom = printed_part(page)
    assert 0 <= left < right <= width_px
    assert 0 <= top < bottom <= height_px


def test_a_short_word_below_the_rest_is_kept_on_a_small_picture() -> None:
    page = paper(348, 348)
    printed(page, 40, 40, 300, 200)
    printed(page, 260, 300, 296, 310)
    left, top, right, bottom = printed_part(page)
    assert (left, top) < (40, 40)
    assert bottom >= 310
    assert right >= 300


def test_print_at_the_very_edge_is_kept() -> None:
    page = paper(810, 1210)
    printed(page, 0, 0, 810, 1210)
    assert printed_part(page) == (0, 0, 810, 1210)


def test_models_lie_under_their_full_digest_and_hash_to_it(tmp_path: Path) -> None:
    files = place_models(tmp_path / "models")
    for role, path in (("det", files.det), ("rec", files.rec), ("cls", files.cls)):
        assert path.name == f"{OCR_MODELS[role]}.onnx"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == OCR_MODELS[role]
    assert len(list((tmp_path / "models").iterdir())) == 3


def test_placing_again_copies_nothing(tmp_path: Path) -> None:
    first = place_models(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert place_models(tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_an_altered_copy_is_refused_and_kept_as_evidence(tmp_path: Path) -> None:
    files = place_models(tmp_path)
    files.rec.write_bytes(b"something else")
    with pytest.raises(IdentityMismatch) as caught:
        place_models(tmp_path)
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert caught.value.facts["artefact"] == "ocr model rec"
    assert files.rec.read_bytes() == b"something else"


def test_an_installation_without_models_is_named_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr_models, "installed_models_directory", lambda: tmp_path / "nowhere")
    with pytest.raises(IdentityMismatch) as caught:
        place_models(tmp_path / "models")
    assert caught.value.reason.code == "IDENTITY.MISSING.v1"


def test_an_installation_with_other_models_is_refused_and_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed"
    installed.mkdir()
    for name in ocr_models.WHEEL_FILES.values():
        (installed / name).write_bytes(b"another release of the model")
    monkeypatch.setattr(ocr_models, "installed_models_directory", lambda: installed)
    with pytest.raises(IdentityMismatch) as caught:
        place_models(tmp_path / "models")
    assert caught.value.reason.code == "IDENTITY.MISMATCH.v1"
    assert list((tmp_path / "models").iterdir()) == []
