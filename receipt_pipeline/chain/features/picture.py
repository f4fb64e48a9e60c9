"""Figures that are copies of another: what a pasted digit leaves in the pixels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from receipt_pipeline.chain.values import DecodedScan, Gray, Page, PageText, TextLine

FIGURE = re.compile(r"\d")
LINE_HEIGHT_PX_MIN = 8
GLYPH_HEIGHT_SHARE_MIN = 0.35
GLYPH_HEIGHT_PX_MIN = 8
GLYPH_WIDTH_PX_MIN = 3
GLYPH_WIDTH_HEIGHTS_MAX = 4
GLYPH_INK_PX_MIN = 10
# Two prints of one figure differ by paper, light and sensor; a pasted copy by its second saving alone.
COPY_LEVELS_MAX = 3.0
# A page that was never on paper repeats every figure: there, copies are no evidence.
COPIES_OF_PAPER_MAX = 12
COPIED_GLYPHS_SHARE_MAX = 0.2
GLYPHS_OF_SIZE_MAX = 200


@dataclass(frozen=True, slots=True)
class Glyph:
    """One connected piece of ink: its line's number, and its place and size in pixels."""

    line: int
    left: int
    top: int
    width: int
    height: int

    def overlaps(self, other: Glyph) -> bool:
        """Report whether both are mostly the same pixels, as where boxes of lines overlap."""
        return abs(self.left - other.left) < self.width and abs(self.top - other.top) < self.height


def has_copied_figures(scan: DecodedScan, page_text: PageText) -> bool:
    """Report whether some figure is the very picture of another, in another line of its page."""
    return any(_copies_on(page, page_text) for page in scan.pages)


def _copies_on(page: Page, page_text: PageText) -> int:
    import cv2

    lines = [
        line
        for line in page_text.lines
        if line.page == page.index and FIGURE.search(line.text) and line.box[3] - line.box[1] >= LINE_HEIGHT_PX_MIN
    ]
    if not lines:
        return 0
    gray = cv2.cvtColor(page.pixels, cv2.COLOR_RGB2GRAY).astype(np.uint8)
    limit, _ = cv2.threshold(gray, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    return count_copies(gray, find_glyphs(gray, lines, ink_max=limit))


def find_glyphs(gray: Gray, lines: Sequence[TextLine], *, ink_max: float) -> list[Glyph]:
    """Return the pieces of ink of the size of letters; one limit for the page, so that copies look alike."""
    import cv2

    glyphs = []
    for number, line in enumerate(lines):
        left, top, crop = _crop(gray, line)
        if crop.size == 0:
            continue
        ink = (crop <= ink_max).astype(np.uint8)
        _, _, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
        for x, y, width, height, area in stats[1:].tolist():
            tall = height >= max(GLYPH_HEIGHT_PX_MIN, GLYPH_HEIGHT_SHARE_MIN * crop.shape[0])
            wide = GLYPH_WIDTH_PX_MIN <= width <= GLYPH_WIDTH_HEIGHTS_MAX * height
            if tall and wide and area >= GLYPH_INK_PX_MIN:
                glyphs.append(Glyph(number, left + x, top + y, width, height))
    return glyphs


def count_copies(gray: Gray, glyphs: Sequence[Glyph]) -> int:
    """Return how many pairs of glyphs in different lines are one picture; none on a page of no paper.

    Within one line nothing is compared: numbers that software types into a scan repeat themselves.
    """
    sizes: dict[tuple[int, int], list[Glyph]] = defaultdict(list)
    for glyph in glyphs:
        sizes[glyph.width, glyph.height].append(glyph)
    pairs = [pair for alike in sizes.values() for pair in _copies_of_size(gray, alike[:GLYPHS_OF_SIZE_MAX])]
    copied = {glyph for pair in pairs for glyph in pair}
    of_paper = len(pairs) <= COPIES_OF_PAPER_MAX and len(copied) <= COPIED_GLYPHS_SHARE_MAX * len(glyphs)
    return len(pairs) if of_paper else 0


def _copies_of_size(gray: Gray, glyphs: Sequence[Glyph]) -> list[tuple[Glyph, Glyph]]:
    if len(glyphs) < 2:
        return []
    patches = np.array(
        [gray[g.top : g.top + g.height, g.left : g.left + g.width].astype(np.int16).ravel() for g in glyphs]
    )
    close = np.array([np.abs(patches - patch).mean(axis=1) <= COPY_LEVELS_MAX for patch in patches])
    return [
        (glyphs[one], glyphs[other])
        for one, other in combinations(range(len(glyphs)), 2)
        if close[one, other] and glyphs[one].line != glyphs[other].line and not glyphs[one].overlaps(glyphs[other])
    ]


def _crop(gray: Gray, line: TextLine) -> tuple[int, int, Gray]:
    left, top = max(0, line.box[0]), max(0, line.box[1])
    return left, top, gray[top : line.box[3], left : line.box[2]]
