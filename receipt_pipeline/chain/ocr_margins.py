"""Stage ocr of `chain-v2`, margins part: the printed part of a page, so that detection skips the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Blocks along the long side of a page: one is about as large as a letter.
BLOCKS_ALONG = 120
BLOCK_PX_MIN = 4
# Every second pixel tells print from paper.
STEP = 2
# Difference of brightness within one block, 0..255; pale print on greyish paper has more.
CONTRAST_MIN = 40
# A row of blocks with fewer holds a speck, no print.
BLOCKS_MIN = 4
MARGIN_BLOCKS = 2


def printed_part(pixels: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return (left, top, right, bottom) around all print of a page; the whole page where none stands out.

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
    """Return where the blocks begin and end, with a margin; the strip behind the last whole block is kept."""
    begin = max(0, (int(blocks[0]) - MARGIN_BLOCKS) * block_px)
    last = int(blocks[-1])
    end = side_px if last == blocks_all - 1 else min(side_px, (last + 1 + MARGIN_BLOCKS) * block_px)
    return begin, end
