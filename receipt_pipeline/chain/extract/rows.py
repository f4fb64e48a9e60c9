"""The text lines of a page grouped into the rows on the paper."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from receipt_pipeline.chain.values import PageText, TextLine

# Slopes tried for a page that is slightly askew, in thousandths: vertical drift per horizontal pixel.
SLOPES_PER_MILLE = tuple(sorted(range(-60, 61, 5), key=lambda slope: (abs(slope), slope)))
SAME_ROW_SHARE = 0.5
OVERLAP_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Row:
    """Cells of one printed row, left to right."""

    cells: tuple[TextLine, ...]

    @property
    def text(self) -> str:
        """Return the cells' texts joined by one space."""
        return " ".join(cell.text for cell in self.cells)

    @property
    def page(self) -> int:
        """Return the index of the page of the row."""
        return self.cells[0].page

    @property
    def top(self) -> int:
        """Return the upper edge in pixels."""
        return min(cell.box[1] for cell in self.cells)

    @property
    def bottom(self) -> int:
        """Return the lower edge in pixels."""
        return max(cell.box[3] for cell in self.cells)

    @property
    def height(self) -> float:
        """Return the median height of the row's cells in pixels."""
        return float(median(cell.box[3] - cell.box[1] for cell in self.cells))


def build_rows(page_text: PageText) -> tuple[Row, ...]:
    """Group the lines into rows, page by page, top to bottom; a slight skew of a page is undone first."""
    rows: list[Row] = []
    for page in range(len(page_text.page_sizes)):
        lines = [line for line in page_text.lines if line.page == page]
        if lines:
            # The slope that needs the fewest rows is the page's own; the first of equals is the smallest.
            groupings = [_grouped(lines, slope) for slope in SLOPES_PER_MILLE]
            fewest = min(groupings, key=len)
            rows.extend(fewest)
    return tuple(rows)


def _grouped(lines: list[TextLine], slope_per_mille: int) -> list[Row]:
    def middle(line: TextLine) -> float:
        left, top, right, bottom = line.box
        return (top + bottom) / 2 - slope_per_mille * (left + right) / 2000

    rows: list[list[TextLine]] = []
    for line in sorted(lines, key=lambda line: (middle(line), line.box[0])):
        if rows and _belongs(line, rows[-1], middle(line), [middle(cell) for cell in rows[-1]]):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [Row(tuple(sorted(row, key=lambda line: line.box[0]))) for row in rows]


def _belongs(line: TextLine, row: list[TextLine], middle: float, middles: list[float]) -> bool:
    height = min(line.box[3] - line.box[1], *(cell.box[3] - cell.box[1] for cell in row))
    if abs(middle - sum(middles) / len(middles)) > SAME_ROW_SHARE * height:
        return False
    # Two lines over the same stretch of paper are two rows, however near they are.
    return all(_shared_width(line, cell) <= OVERLAP_SHARE for cell in row)


def _shared_width(one: TextLine, other: TextLine) -> float:
    shared = min(one.box[2], other.box[2]) - max(one.box[0], other.box[0])
    narrower = min(one.box[2] - one.box[0], other.box[2] - other.box[0])
    return shared / max(1, narrower)
