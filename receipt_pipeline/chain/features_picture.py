"""Picture evidence: figures that are copies, grounds unlike the others, amounts off their row."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np

from receipt_pipeline.chain.extract_rows import build_rows
from receipt_pipeline.chain.features_book import MoneyBook
from receipt_pipeline.chain.values import DecodedScan, Grey, Reading, TextLine

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
OUTLIERS_NEED_LINES = 6
NOISE_LEVELS_FLOOR = 0.3
GROUND_PX_MIN = 40


@dataclass(frozen=True, slots=True)
class PictureEvidence:
    """What the pixels around figures say; zero where no page is given.

    `figures_copied`: some figure is the very picture of another, in another line. `noise_outlier`: how
    far the ground of the oddest line with figures stands out, in robust deviations. `baseline_outlier`:
    how far an amount's lower edge lies off those beside it, in its own heights.
    """

    figures_copied: bool = False
    noise_outlier: float = 0.0
    baseline_outlier: float = 0.0


@dataclass(frozen=True, slots=True)
class Glyph:
    """One connected piece of ink: its line's number, and its place and size in pixels."""

    line: int
    left: int
    top: int
    width: int
    height: int

    def overlaps(self, other: Glyph) -> bool:
        """Tell whether both are mostly the same pixels, as where boxes of lines overlap."""
        return abs(self.left - other.left) < self.width and abs(self.top - other.top) < self.height


def read_picture(scan: DecodedScan, reading: Reading, book: MoneyBook) -> PictureEvidence:
    """Look at the pixels of the lines that hold figures, page by page."""
    copies, noise = 0, 0.0
    for page in scan.pages:
        lines = [
            line
            for line in reading.lines
            if line.page == page.index
            and FIGURE.search(line.text)
            and line.box[3] - line.box[1] >= LINE_HEIGHT_PX_MIN
        ]
        if lines:
            import cv2

            grey = cv2.cvtColor(page.pixels, cv2.COLOR_RGB2GRAY).astype(np.uint8)
            limit, _ = cv2.threshold(grey, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
            copies += count_copies(grey, find_glyphs(grey, lines, ink_max=limit))
            noise = max(noise, _noise_outlier(grey, lines, ink_max=limit))
    return PictureEvidence(copies > 0, noise, _baseline_outlier(reading, book) if scan.pages else 0.0)


def find_glyphs(grey: Grey, lines: Sequence[TextLine], *, ink_max: float) -> list[Glyph]:
    """Return the pieces of ink of the size of letters; one limit for the page, so that copies look alike."""
    import cv2

    glyphs = []
    for number, line in enumerate(lines):
        left, top, crop = _crop(grey, line)
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


def count_copies(grey: Grey, glyphs: Sequence[Glyph]) -> int:
    """Return how many pairs of glyphs in different lines are one picture; none on a page of no paper.

    Within one line nothing is compared: numbers that software types into a scan repeat themselves.
    """
    sizes: dict[tuple[int, int], list[Glyph]] = defaultdict(list)
    for glyph in glyphs:
        sizes[glyph.width, glyph.height].append(glyph)
    pairs = [pair for alike in sizes.values() for pair in _copies_of_size(grey, alike[:GLYPHS_OF_SIZE_MAX])]
    copied = {glyph for pair in pairs for glyph in pair}
    of_paper = len(pairs) <= COPIES_OF_PAPER_MAX and len(copied) <= COPIED_GLYPHS_SHARE_MAX * len(glyphs)
    return len(pairs) if of_paper else 0


def _copies_of_size(grey: Grey, glyphs: Sequence[Glyph]) -> list[tuple[Glyph, Glyph]]:
    if len(glyphs) < 2:
        return []
    patches = np.array(
        [grey[g.top : g.top + g.height, g.left : g.left + g.width].astype(np.int16).ravel() for g in glyphs]
    )
    close = np.array([np.abs(patches - patch).mean(axis=1) <= COPY_LEVELS_MAX for patch in patches])
    return [
        (glyphs[one], glyphs[other])
        for one, other in combinations(range(len(glyphs)), 2)
        if close[one, other]
        and glyphs[one].line != glyphs[other].line
        and not glyphs[one].overlaps(glyphs[other])
    ]


def _crop(grey: Grey, line: TextLine) -> tuple[int, int, Grey]:
    left, top = max(0, line.box[0]), max(0, line.box[1])
    return left, top, grey[top : line.box[3], left : line.box[2]]


def _noise_outlier(grey: Grey, lines: Sequence[TextLine], *, ink_max: float) -> float:
    """Return how far the noise of the oddest line's ground lies from the median line's."""
    levels = list(_ground_noise(grey, lines, ink_max=ink_max))
    if len(levels) < OUTLIERS_NEED_LINES:
        return 0.0
    middle = median(levels)
    spread = max(NOISE_LEVELS_FLOOR, 1.4826 * median(abs(level - middle) for level in levels))
    return float(max(abs(level - middle) for level in levels) / spread)


def _ground_noise(grey: Grey, lines: Sequence[TextLine], *, ink_max: float) -> Iterator[float]:
    import cv2

    for line in lines:
        _, _, crop = _crop(grey, line)
        if crop.size == 0:
            continue
        rough = crop.astype(np.float32) - cv2.blur(crop, (3, 3)).astype(np.float32)
        # The rim of a letter is rough by itself, so ground begins two pixels away from ink.
        ground = cv2.erode((crop > ink_max).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
        if int(ground.sum()) >= GROUND_PX_MIN:
            yield float(rough[ground].std())


def _baseline_outlier(reading: Reading, book: MoneyBook) -> float:
    """Return the largest distance of an amount's lower edge from those of its row, in its heights."""
    amounts = {entry.line for entry in book.entries}
    farthest = 0.0
    for row in build_rows(reading):
        others = [cell.box[3] for cell in row.cells if cell not in amounts]
        for cell in row.cells:
            if cell in amounts and others:
                height = max(1, cell.box[3] - cell.box[1])
                farthest = max(farthest, min(abs(cell.box[3] - edge) for edge in others) / height)
    return farthest
