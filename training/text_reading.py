"""What a text reader would give of an invented receipt, without drawing it."""

from __future__ import annotations

import random

from receipt_pipeline.chain.values import PageText, TextLine
from training.content import Cell, Content

PAGE_WIDTH_PX = 640
CHARACTER_PX = 12
LINE_PX = 22
ROW_STEP_PX = 32
CONFUSED = {"0": "O", "O": "0", "1": "I", "5": "S", "8": "B", ".": ",", ",": ".", ":": ".", "6": "8", "I": "1"}
# A transcript by column takes the block of sums as one: all labels, then all amounts.
COLUMN_KINDS = frozenset(
    {"subtotal", "discount", "service", "tax", "total_before", "rounding", "total", "cash", "change"}
)


def read_without_picture(content: Content, rng: random.Random, *, with_boxes: bool = True) -> PageText:
    """Return a simulated reading: jittered boxes, confused characters, lost and merged lines.

    Args:
        with_boxes: false gives each cell a row of its own in reading order, like a transcript;
            some of those are read column by column.
    """
    noise = rng.choice([0.0, 0.0, 0.002, 0.006])
    lines: list[TextLine] = []
    top = 40
    for cells in _rows_of_cells(content, rng, with_boxes=with_boxes):
        for cell in cells:
            if rng.random() >= noise:
                lines.append(_line(cell, top, rng, noise) if with_boxes else _bare_line(cell, top))
        top += ROW_STEP_PX
    return PageText(lines=tuple(lines), page_sizes=((PAGE_WIDTH_PX, top + 40),))


def _rows_of_cells(content: Content, rng: random.Random, *, with_boxes: bool) -> list[tuple[Cell, ...]]:
    rows = [row.cells for row in content.rows]
    if with_boxes:
        return rows
    by_column = rng.random() < 0.3
    flat: list[tuple[Cell, ...]] = []
    block: list[tuple[Cell, ...]] = []
    for row in content.rows:
        if by_column and row.kind in COLUMN_KINDS and len(row.cells) == 2:
            block.append(row.cells)
            continue
        flat += _by_column(block)
        block = []
        flat.extend((cell,) for cell in row.cells)
    return [*flat, *_by_column(block)]


def _by_column(block: list[tuple[Cell, ...]]) -> list[tuple[Cell, ...]]:
    """Return all labels of the block and then all its amounts."""
    columns: list[tuple[Cell, ...]] = [(cells[0],) for cells in block]
    columns.extend((cells[1],) for cells in block)
    return columns


def _bare_line(cell: Cell, top: int) -> TextLine:
    """Return a line of a transcript: sure of its text, and at no place of its own."""
    box = (0, top, max(1, len(cell.text)) * CHARACTER_PX, top + LINE_PX)
    return TextLine(text=cell.text, box=box, confidence=1.0, page=0)


def _line(cell: Cell, top: int, rng: random.Random, noise: float) -> TextLine:
    text = "".join(CONFUSED.get(character, character) if rng.random() < noise else character for character in cell.text)
    width = max(1, len(text)) * CHARACTER_PX
    left = round(cell.at * (PAGE_WIDTH_PX - 40)) + 20 - (width if cell.right else 0)
    left = max(0, left + rng.randrange(-2, 3))
    top += rng.randrange(-2, 3)
    bottom = top + LINE_PX + rng.randrange(-2, 3)
    confidence = min(1.0, max(0.5, rng.gauss(0.985, 0.012) - (0.08 if text != cell.text else 0.0)))
    return TextLine(text=text, box=(left, top, left + width, bottom), confidence=round(confidence, 4), page=0)
