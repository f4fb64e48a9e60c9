"""Perfect readings of receipts written as plain text, for tests of what follows reading."""

from __future__ import annotations

import re

from receipt_pipeline.chain.values import PageText, TextLine

LETTER_PX, ROW_PX, TEXT_PX, PAGE_WIDTH_PX = 10, 24, 20, 480


def reading_of(*pages: str) -> PageText:
    """A reading of pages as printed: two or more spaces part the cells of a row."""
    lines: list[TextLine] = []
    sizes: list[tuple[int, int]] = []
    for index, page in enumerate(pages):
        rows = page.strip("\n").split("\n")
        for row, text in enumerate(rows):
            top = 10 + row * ROW_PX
            for cell in re.finditer(r"\S+(?: \S+)*", text):
                box = (10 + cell.start() * LETTER_PX, top, 10 + cell.end() * LETTER_PX, top + TEXT_PX)
                lines.append(TextLine(cell.group(), box, 0.99, index))
        sizes.append((PAGE_WIDTH_PX, 20 + len(rows) * ROW_PX))
    return PageText(tuple(lines), tuple(sizes))
