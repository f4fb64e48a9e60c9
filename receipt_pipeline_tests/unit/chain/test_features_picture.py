"""Copied figures: seen where they were pasted, and no evidence on a page that was never on paper."""

from __future__ import annotations

import random
import re

import numpy as np

from receipt_pipeline.chain.features.picture import find_glyphs, has_copied_figures
from receipt_pipeline.chain.values import DecodedScan, Page, PageText, TextLine
from training.draw import DrawnReceipt, Wear, draw_receipt
from training.picture_weight import paste_figures


def scan_of(drawn: DrawnReceipt) -> tuple[DecodedScan, tuple[TextLine, ...]]:
    noise = np.random.default_rng(1).normal(0, 6, (drawn.image.height, drawn.image.width, 1))
    gray = np.asarray(drawn.image.convert("RGB")).astype(float)
    pixels = np.clip(gray + noise, 0, 255).astype(np.uint8)
    lines = tuple(
        TextLine(cell.text, (cell.boxes[0][0], cell.boxes[0][1], cell.boxes[-1][2], cell.boxes[-1][3]), 1.0, 0)
        for cell in drawn.cells
        if cell.text
    )
    return DecodedScan("png", (Page(0, pixels),)), lines


def copied(scan: DecodedScan, lines: tuple[TextLine, ...]) -> bool:
    return has_copied_figures(scan, PageText(lines, ((1, 1),)))


def test_a_figure_pasted_over_another_is_seen_as_its_copy() -> None:
    scan, lines = scan_of(draw_receipt(35, wear=Wear()))
    assert not copied(scan, lines)
    amounts = [line for line in lines if re.fullmatch(r"\d+\.\d\d", line.text)]
    source, target = next(
        (one, other) for one in amounts for other in amounts if len(one.text) == len(other.text) and one != other
    )
    pixels = scan.pages[0].pixels.copy()
    left, top, right, bottom = source.box
    to_right, to_top = target.box[2], target.box[1]
    pixels[to_top : to_top + bottom - top, to_right - (right - left) : to_right] = pixels[top:bottom, left:right]
    assert copied(DecodedScan("png", (Page(0, pixels),)), lines)


def test_a_forger_of_pictures_alters_figures_and_saves_the_page_again() -> None:
    scan, lines = scan_of(draw_receipt(35, wear=Wear()))
    altered = paste_figures(scan, lines, random.Random(3))
    assert altered is not None
    assert altered.pages[0].pixels.shape == scan.pages[0].pixels.shape
    assert not np.array_equal(altered.pages[0].pixels, scan.pages[0].pixels)
    assert paste_figures(scan, lines[:1], random.Random(3)) is None


def test_a_page_that_was_never_on_paper_repeats_its_figures_and_proves_nothing() -> None:
    drawn = draw_receipt(35, wear=Wear())
    _, lines = scan_of(drawn)
    clean = DecodedScan("png", (Page(0, np.asarray(drawn.image.convert("RGB"))),))
    assert not copied(clean, lines)


def test_ink_is_found_where_it_was_drawn() -> None:
    drawn = draw_receipt(35, wear=Wear())
    _, lines = scan_of(drawn)
    line = next(line for line in lines if re.fullmatch(r"\d+\.\d\d", line.text))
    glyphs = find_glyphs(np.asarray(drawn.image.convert("L")), [line], ink_max=140)
    assert len(glyphs) == len(line.text) - 1
    assert all(line.box[0] <= glyph.left < line.box[2] for glyph in glyphs)
