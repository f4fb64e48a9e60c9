"""The printed part of a page: all print is inside, empty edges are outside, doubt keeps the whole page."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from receipt_pipeline.chain.ocr.engine import printed_part


def paper(width_px: int = 800, height_px: int = 1200, brightness: int = 245) -> NDArray[np.uint8]:
    """Empty paper."""
    return np.full((height_px, width_px, 3), brightness, np.uint8)


def printed(
    page: NDArray[np.uint8], left: int, top: int, right: int, bottom: int, darkness: int = 30
) -> None:
    """Put stripes like print on the page."""
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
