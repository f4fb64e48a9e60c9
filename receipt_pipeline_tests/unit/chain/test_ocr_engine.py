"""The real reader on drawn pages: without a network, alike every time, and on pages that lie wrong."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from receipt_pipeline.chain.ocr.engine import RapidOcrEngine, read_scan
from receipt_pipeline.chain.ocr.models import place_models
from receipt_pipeline.chain.values import DecodedScan, Page

pytestmark = pytest.mark.slow

PRINTED = ("CORNER SHOP", "Bread 3.88", "Milk 0.90", "TOTAL EUR 4.78", "Thank you")


def a_drawn_page(index: int = 0) -> Page:
    paper = Image.new("RGB", (420, 260), "white")
    pen = ImageDraw.Draw(paper)
    for row, text in enumerate(PRINTED):
        pen.text((20, 15 + 45 * row), text, fill="black", font=ImageFont.load_default(22))
    return Page(index, np.array(paper))


def turned(page: Page, quarters: int) -> Page:
    return Page(page.index, np.ascontiguousarray(np.rot90(page.pixels, quarters)))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> RapidOcrEngine:
    return RapidOcrEngine(place_models(tmp_path_factory.mktemp("models")))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise OSError("the network is refused in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_the_engine_reads_a_printed_page_without_a_network(engine: RapidOcrEngine) -> None:
    engine.warm_up()
    page = a_drawn_page()
    lines = engine.read_page(page)
    assert [line.text.replace(" ", "") for line in lines] == [text.replace(" ", "") for text in PRINTED]
    for line in lines:
        left, top, right, bottom = line.box
        assert 0 <= left < right <= 420
        assert 0 <= top < bottom <= 260
        assert all(isinstance(edge, int) for edge in line.box)
        assert line.confidence == round(line.confidence, 4)
        assert 0.5 <= line.confidence <= 1.0


def test_the_same_page_is_read_alike_every_time(engine: RapidOcrEngine) -> None:
    assert engine.read_page(a_drawn_page()) == engine.read_page(a_drawn_page())


def test_a_blank_page_has_no_lines(engine: RapidOcrEngine) -> None:
    assert engine.read_page(Page(0, np.full((300, 200, 3), 255, np.uint8))) == ()


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_a_page_that_lies_wrong_is_turned_before_it_is_read(engine: RapidOcrEngine, quarters: int) -> None:
    upright = read_scan(DecodedScan("png", (a_drawn_page(),)), engine)
    lying = read_scan(DecodedScan("png", (turned(a_drawn_page(), quarters),)), engine)
    assert [line.text for line in lying.lines] == [line.text for line in upright.lines]
    assert lying.page_sizes == upright.page_sizes


def test_the_small_print_of_a_long_paper_is_read(engine: RapidOcrEngine) -> None:
    paper = Image.new("RGB", (600, 5000), "white")
    pen = ImageDraw.Draw(paper)
    for row in range(40):
        pen.text((40, 40 + 120 * row), f"Article {row:02}   {row}.50", fill="black", font=ImageFont.load_default(24))
    lines = engine.read_page(Page(0, np.array(paper)))
    text = " ".join(line.text.replace(" ", "") for line in lines)
    assert all(f"Article{row:02}" in text for row in range(40))


def test_an_upright_page_is_not_turned(engine: RapidOcrEngine) -> None:
    page = a_drawn_page()
    assert engine.upright(page) is page


def test_a_page_with_wide_margins_is_read_in_its_own_places(engine: RapidOcrEngine) -> None:
    page = a_drawn_page()
    wide = Page(0, np.full((900, 1100, 3), 255, dtype=np.uint8))
    wide.pixels[300:560, 400:820] = page.pixels
    lines = engine.read_page(wide)
    assert [line.text.replace(" ", "") for line in lines] == [text.replace(" ", "") for text in PRINTED]
    assert all(line.box[0] >= 400 and line.box[1] >= 300 and line.box[2] <= 820 for line in lines)
    assert engine.read_page(wide) == lines
