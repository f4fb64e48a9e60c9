"""Layout of amounts: a pasted or retyped amount may sit off its row, at another height or be read worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from receipt_pipeline.chain.features_book import MoneyBook
from receipt_pipeline.chain.values import Reading, ReceiptFields, TextLine

OUTLIERS_NEED_LINES = 6
SPREAD_FLOOR_PX = 1.0


@dataclass(frozen=True, slots=True)
class LayoutEvidence:
    """How far the oddest amount stands out; heights and edges in robust deviations, confidences 0..1."""

    confidence_decided: float
    confidence_dip: float
    height_outlier: float
    right_edge_outlier: float


def read_layout(reading: Reading, book: MoneyBook, fields: ReceiptFields) -> LayoutEvidence:
    """Measure how far amounts stand out from the other amounts of the same reading."""
    amounts = list(dict.fromkeys(entry.line for entry in book.entries))
    mean = _mean([line.confidence for line in reading.lines])
    lowest = min((line.confidence for line in amounts), default=mean)
    return LayoutEvidence(
        confidence_decided=_mean([line.confidence for line in _decided(reading, fields)]),
        confidence_dip=max(0.0, mean - lowest),
        height_outlier=_outlier([line.box[3] - line.box[1] for line in amounts]),
        right_edge_outlier=_outlier([line.box[2] for line in amounts]),
    )


def _decided(reading: Reading, fields: ReceiptFields) -> list[TextLine]:
    """Return the lines that hold the total or the date; all lines where neither is found."""
    printed = [value.printed for value in (fields.total, fields.date) if value is not None and value.printed]
    lines = [line for line in reading.lines if any(text in line.text for text in printed)]
    return lines or list(reading.lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _outlier(values: Sequence[int]) -> float:
    """Return the largest distance from the median in robust deviations; 0 where too few are there."""
    if len(values) < OUTLIERS_NEED_LINES:
        return 0.0
    middle = median(values)
    spread = max(SPREAD_FLOOR_PX, 1.4826 * median(abs(value - middle) for value in values))
    return float(max(abs(value - middle) for value in values) / spread)
