"""What a copied figure is worth as evidence, measured on drawn receipts into which figures were pasted."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from receipt_pipeline.chain.decode import decode_scan
from receipt_pipeline.chain.features.picture import FIGURE, Glyph, find_glyphs, has_copied_figures
from receipt_pipeline.chain.values import DecodedScan, Page, PageText, TextLine
from training.draw import DrawnReceipt, Wear, draw_receipt, encoded

SAVED_QUALITIES = (75, 85, 92)
PASTED_FIGURES = (1, 2, 3)
INK_MAX = 140.0
SIZE_SLACK_PX = 3
NOISE_OF_PAPER_LEVELS = (5.0, 9.0)


@dataclass(frozen=True, slots=True)
class PictureWeight:
    """Shares of genuine and of pasted scans with a copied figure, and the log-odds that follow."""

    genuine: int
    genuine_found: int
    pasted: int
    pasted_found: int

    @property
    def log_odds(self) -> float:
        """Return the log of the ratio of both shares, each with half a scan for what was not seen."""
        found = (self.pasted_found + 0.5) / (self.pasted + 1)
        mistaken = (self.genuine_found + 0.5) / (self.genuine + 1)
        return math.log(found / mistaken)


def weigh_drawn_copies(count: int, *, seed: int) -> PictureWeight:
    """Paste figures into drawn receipts and count where a copy is found: no scan of an evaluation is needed.

    Pages are as noisy as paper is, where two prints of a figure differ; what is left is whether a pasted
    figure is found after its second saving. The model learns no more of real paper than that.
    """
    found = [0, 0, 0]
    for number in range(count):
        rng = random.Random(f"{seed}/drawn copy {number}")
        wear = Wear(blur_px=rng.uniform(0.2, 0.7), noise_levels=rng.uniform(*NOISE_OF_PAPER_LEVELS))
        scan, lines = _page_of(draw_receipt(rng.randrange(10**6), wear=wear))
        altered = paste_figures(scan, lines, rng)
        found[0] += _copied(scan, lines)
        if altered is not None:
            found[1] += 1
            found[2] += _copied(altered, lines)
    return PictureWeight(genuine=count, genuine_found=found[0], pasted=found[1], pasted_found=found[2])


def _page_of(drawn: DrawnReceipt) -> tuple[DecodedScan, tuple[TextLine, ...]]:
    """Return the drawn page as a scan saved once, and its cells as lines."""
    pixels = decode_scan(encoded(drawn.image, "JPEG")).pages[0].pixels
    lines = tuple(
        TextLine(cell.text, (cell.boxes[0][0], cell.boxes[0][1], cell.boxes[-1][2], cell.boxes[-1][3]), 1.0, 0)
        for cell in drawn.cells
        if cell.boxes
    )
    return DecodedScan("jpeg", (Page(0, pixels),)), lines


def _copied(scan: DecodedScan, lines: tuple[TextLine, ...]) -> bool:
    height, width = scan.pages[0].pixels.shape[:2]
    return has_copied_figures(scan, PageText(lines, ((width, height),)))


def paste_figures(scan: DecodedScan, lines: Sequence[TextLine], rng: random.Random) -> DecodedScan | None:
    """Copy figures of some lines over figures of others and save the page again; None where none fit."""
    pixels = scan.pages[0].pixels.copy()
    gray = np.asarray(Image.fromarray(pixels).convert("L"))
    figures = [line for line in lines if FIGURE.search(line.text)]
    glyphs = find_glyphs(gray, figures, ink_max=INK_MAX)
    done = 0
    for source in rng.sample(glyphs, k=len(glyphs)):
        fitting = [target for target in glyphs if _fits(source, target)]
        if fitting and done < rng.choice(PASTED_FIGURES):
            target = rng.choice(fitting)
            # A forger takes a rim of ground along with the figure.
            _paste(pixels, source, target, rim=rng.randrange(1, 4))
            done += 1
    if not done:
        return None
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=rng.choice(SAVED_QUALITIES))
    return DecodedScan(scan.kind, (Page(0, decode_scan(buffer.getvalue()).pages[0].pixels),))


def _fits(source: Glyph, target: Glyph) -> bool:
    return (
        source.line != target.line
        and source.width <= 1.3 * source.height
        and abs(source.width - target.width) <= SIZE_SLACK_PX
        and abs(source.height - target.height) <= SIZE_SLACK_PX
    )


def _paste(pixels: Any, source: Glyph, target: Glyph, *, rim: int) -> None:
    top, left = max(0, source.top - rim), max(0, source.left - rim)
    patch = pixels[top : source.top + source.height + rim, left : source.left + source.width + rim].copy()
    to_top, to_left = max(0, target.top - rim), max(0, target.left - rim)
    area = pixels[to_top : to_top + patch.shape[0], to_left : to_left + patch.shape[1]]
    area[:] = patch[: area.shape[0], : area.shape[1]]
