"""The values that the stages of the chain pass to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from receipt_pipeline.core.items import Decision

# Gray levels of a page: (height_px, width_px) uint8, row 0 at the top.
Gray = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Page:
    """One decoded page: (height_px, width_px, 3) RGB uint8, row 0 at the top, EXIF turn applied."""

    index: int
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DecodedScan:
    """A scan after decoding: the kind its bytes are of (`jpeg`, `pdf`, ...), and its pages in order."""

    kind: str
    pages: tuple[Page, ...]


@dataclass(frozen=True, slots=True)
class TextLine:
    """One recognized text line.

    `box` is (left, top, right, bottom) in whole pixels of its page; `confidence` in 0..1,
    rounded to 4 digits at the stage boundary so that digests mean something.
    """

    text: str
    box: tuple[int, int, int, int]
    confidence: float
    page: int


@dataclass(frozen=True, slots=True)
class PageText:
    """What OCR read of all pages: lines in reading order, page sizes (width_px, height_px)."""

    lines: tuple[TextLine, ...]
    page_sizes: tuple[tuple[int, int], ...]

    @property
    def blank_pages(self) -> tuple[int, ...]:
        """Return the indexes of pages without any text."""
        seen = {line.page for line in self.lines}
        return tuple(index for index in range(len(self.page_sizes)) if index not in seen)


class OcrEngine(Protocol):
    """Reads the text lines of one page; the one seam that scripted readers replace."""

    def read_page(self, page: Page) -> tuple[TextLine, ...]:
        """Return lines in reading order. Raises StageFailed when the engine gives no answer."""


@dataclass(frozen=True, slots=True)
class ReadDate:
    """A date as printed, as an ISO date, and whether another date is as possible."""

    printed: str
    iso: str | None
    ambiguous: bool


@dataclass(frozen=True, slots=True)
class ReadAmount:
    """An amount as printed, in integer minor units of `currency` (ISO 4217, None unknown).

    `ambiguous` is true when the print admits another amount ("1.234" without cents).
    """

    printed: str
    minor: int
    currency: str | None
    ambiguous: bool
    confidence: float


@dataclass(frozen=True, slots=True)
class ReceiptFields:
    """The fields of one shop receipt; absent ones are None or empty."""

    merchant: str | None = None
    address: str | None = None
    date: ReadDate | None = None
    total: ReadAmount | None = None
    currency: str | None = None
    subtotal: ReadAmount | None = None
    tax: ReadAmount | None = None
    rounding: ReadAmount | None = None
    cash: ReadAmount | None = None
    change: ReadAmount | None = None
    tip: ReadAmount | None = None
    line_amounts: tuple[ReadAmount, ...] = ()
    several_receipts: bool = False
    payment: tuple[str, ...] = ()

    def as_document(self) -> dict[str, Any]:
        """Return the fields as plain JSON with money in integer minor units.

        `payment` is there only where the receipt says how it was paid.
        """

        def amount(value: ReadAmount | None) -> dict[str, Any] | None:
            if value is None:
                return None
            return {"minor": value.minor, "currency": value.currency, "printed": value.printed}

        payment = {"payment": list(self.payment)} if self.payment else {}
        return {
            **payment,
            "merchant": self.merchant,
            "address": self.address,
            "date": None
            if self.date is None
            else {"iso": self.date.iso, "ambiguous": self.date.ambiguous, "printed": self.date.printed},
            "currency": self.currency,
            "total": amount(self.total),
            "subtotal": amount(self.subtotal),
            "tax": amount(self.tax),
            "rounding": amount(self.rounding),
            "cash": amount(self.cash),
            "change": amount(self.change),
            "tip": amount(self.tip),
            "line_amounts_minor": [value.minor for value in self.line_amounts],
        }


@dataclass(frozen=True, slots=True)
class Features:
    """Admitted features under a versioned contract: name to finite number."""

    contract: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Risk:
    """Probability of tampering in parts per million, and each feature's contribution in log-odds."""

    probability_ppm: int
    contributions: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's decision with its reason codes, strongest first; `clear` has none."""

    decision: Decision
    reasons: tuple[str, ...] = field(default=())


LINE_HEIGHT_PX = 22
ROW_STEP_PX = 32
CHARACTER_PX = 12
# What takes the place of the pages of such a text.
NO_PAGES = DecodedScan("text", ())


def page_text_of(texts: tuple[str, ...]) -> PageText:
    """Return the page text of bare lines: full confidence, one row a line, all starting at the left."""
    lines = tuple(
        TextLine(
            text=text,
            box=(0, ROW_STEP_PX * at, CHARACTER_PX * len(text), ROW_STEP_PX * at + LINE_HEIGHT_PX),
            confidence=1.0,
            page=0,
        )
        for at, text in enumerate(texts)
    )
    width = max((line.box[2] for line in lines), default=1)
    return PageText(lines=lines, page_sizes=((width, ROW_STEP_PX * max(1, len(texts))),))
