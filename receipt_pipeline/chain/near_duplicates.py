"""Prints of scans that survive a rescan, and when two of them show one receipt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from receipt_pipeline.chain.features.dates import CLOCK
from receipt_pipeline.chain.values import DecodedScan, Gray, PageText, ReceiptFields, TextLine
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.items import EarlierItem

LONG_SIDE_PX = 600
TURNS_DEGREES = tuple(step / 2 for step in range(-8, 9))
TURN_MARGIN_SHARE = 0.05
PALE_LEVELS = 10
INK_LEVEL_MIN = 90
INK_LEFT_OUT = 0.01
GRID_WIDTH, GRID_HEIGHT = 9, 24
NUMBER_DIGITS_MIN = 3
SKETCH_NUMBERS = 40
SKETCH_DIGITS = 5
NUMBERS_ENOUGH = 4
STORED_NUMBERS_MAX = 4096
# Measured on rescans made by program and on all pairs of real receipts; see the model card.
LAYOUT_APART_MAX = 0.4
NUMBERS_SHARED_MIN = 0.5


@dataclass(frozen=True, slots=True)
class ScanPrint:
    """What outlives a rescan.

    Attributes:
        layout: bits, as hexadecimal, whether the ink grows from cell to cell of a coarse grid.
        numbers: the smallest digests of the printed numbers, `SKETCH_DIGITS` hexadecimal digits each.
        times: printed times of day, `HH:MM`, in order.
    """

    layout: str
    numbers: tuple[str, ...]
    times: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        """Return the print as plain JSON."""
        return {"layout": self.layout, "numbers": "".join(self.numbers), "times": list(self.times)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ScanPrint:
        """Read a print back from the JSON that `as_document` wrote."""
        return cls(
            layout=str(document["layout"]),
            numbers=_cut(str(document["numbers"])),
            times=tuple(map(str, document["times"])),
        )


def new_scan_print(scan: DecodedScan, page_text: PageText) -> ScanPrint | None:
    """Return the print of the first page with text; None where too few numbers are printed to know it by."""
    first = min((line.page for line in page_text.lines), default=None)
    if first is None:
        return None
    lines = [line for line in page_text.lines if line.page == first]
    numbers = _sketch(lines)
    if len(numbers) < NUMBERS_ENOUGH:
        return None
    page = next(page for page in scan.pages if page.index == first)
    times = sorted({f"{int(h):02d}:{m}" for line in lines for h, m, _ in CLOCK.findall(line.text.upper())})
    return ScanPrint(_layout(page.pixels, lines), numbers, tuple(times))


def find_near_duplicate(own: ScanPrint, fields: ReceiptFields, earlier: Sequence[EarlierItem]) -> str | None:
    """Return the id of the first earlier item that shows the same receipt, else None."""
    sale, numbers = _sale(fields.as_document()), frozenset(own.numbers)
    for item in earlier:
        if not _may_share(numbers, item.scan_print) or _is_contradicted(sale, _sale(item.fields)):
            continue
        other = ScanPrint.from_document(item.scan_print)
        if _has_shared_time(own, other) and _is_same_receipt(own, other):
            return item.item_id
    return None


def _may_share(numbers: frozenset[str], scan_print: Mapping[str, Any]) -> bool:
    """Report, at a tenth of the cost, whether `numbers_shared` can reach its bound with a stored print.

    What it counts is shared by both in full, and it divides by no less than the longer of the two
    sketches: a large job compares each item with all before it, and nearly all of them end here.
    """
    other = _stored_numbers(str(scan_print["numbers"]))
    divisor = min(SKETCH_NUMBERS, max(len(numbers), len(other)))
    return len(numbers & other) >= NUMBERS_SHARED_MIN * divisor


@lru_cache(maxsize=STORED_NUMBERS_MAX)
def _stored_numbers(text: str) -> frozenset[str]:
    return frozenset(_cut(text))


def _cut(numbers: str) -> tuple[str, ...]:
    return tuple(numbers[at : at + SKETCH_DIGITS] for at in range(0, len(numbers), SKETCH_DIGITS))


def _is_same_receipt(one: ScanPrint, other: ScanPrint) -> bool:
    return numbers_shared(one, other) >= NUMBERS_SHARED_MIN and layout_apart(one, other) <= LAYOUT_APART_MAX


def layout_apart(one: ScanPrint, other: ScanPrint) -> float:
    """Return the share, 0..1, of the layout's bits that differ."""
    if len(one.layout) != len(other.layout) or not one.layout:
        return 1.0
    return (int(one.layout, 16) ^ int(other.layout, 16)).bit_count() / (4 * len(one.layout))


def numbers_shared(one: ScanPrint, other: ScanPrint) -> float:
    """Return an estimate, 0..1, of the share of all printed numbers that both print (bottom-k sketch)."""
    union = sorted({*one.numbers, *other.numbers})[:SKETCH_NUMBERS]
    both = {*one.numbers} & {*other.numbers}
    return sum(number in both for number in union) / max(1, len(union))


def _sale(fields: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return day and total in minor units, None for what was not read."""
    date, total = fields.get("date"), fields.get("total")
    return (date["iso"] if date else None), (total["minor"] if total else None)


def _is_contradicted(one: tuple[str | None, int | None], other: tuple[str | None, int | None]) -> bool:
    """Report whether day or total of two sales contradict each other; what was not read does not."""
    return any(a is not None and b is not None and a != b for a, b in zip(one, other, strict=True))


def _has_shared_time(one: ScanPrint, other: ScanPrint) -> bool:
    return not (one.times and other.times) or bool({*one.times} & {*other.times})


def _sketch(lines: Sequence[TextLine]) -> tuple[str, ...]:
    words = {re.sub(r"\D", "", word) for line in lines for word in line.text.split()}
    digests = {
        digest_of_bytes(word.encode())[7 : 7 + SKETCH_DIGITS] for word in words if len(word) >= NUMBER_DIGITS_MIN
    }
    return tuple(sorted(digests)[:SKETCH_NUMBERS])


def _layout(pixels: NDArray[np.uint8], lines: Sequence[TextLine]) -> str:
    """Return the bits of the upright ink, cropped to its own bounds: no margin and no border counts."""
    import cv2

    ink = _cropped(_upright(_ink(pixels, lines)))
    soft = cv2.GaussianBlur(ink, (0, 0), 3)
    grid = cv2.resize(soft, (GRID_WIDTH, GRID_HEIGHT), interpolation=cv2.INTER_AREA).astype(np.int16)
    bits = [*(grid[:, 1:] > grid[:, :-1]).ravel(), *(grid[1:] > grid[:-1]).ravel()]
    bits += [False] * (-len(bits) % 4)
    return f"{int(''.join('1' if bit else '0' for bit in bits), 2):0{len(bits) // 4}x}"


def _ink(pixels: NDArray[np.uint8], lines: Sequence[TextLine]) -> Gray:
    """Return the ink within text lines, darkest 255, at a bounded size; each line by its own contrast."""
    import cv2

    height, width = pixels.shape[:2]
    scale = LONG_SIDE_PX / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    gray = cv2.cvtColor(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    ink = np.zeros_like(gray)
    for line in lines:
        left, top, right, bottom = (max(0, round(edge * scale)) for edge in line.box)
        crop = gray[top:bottom, left:right]
        if crop.size == 0:
            continue
        dark, pale = np.percentile(crop, 5), np.percentile(crop, 80)
        if pale - dark < PALE_LEVELS:
            continue
        levels = np.clip((pale - crop) * (255.0 / (pale - dark)), 0, 255).astype(np.uint8)
        levels[levels < INK_LEVEL_MIN] = 0
        ink[top:bottom, left:right] = np.maximum(ink[top:bottom, left:right], levels)
    return np.asarray(ink, dtype=np.uint8)


def _upright(ink: Gray) -> Gray:
    """Return the ink turned by the half degree at which its rows differ most."""
    import cv2

    margin = int(TURN_MARGIN_SHARE * max(ink.shape))
    padded = cv2.copyMakeBorder(ink, margin, margin, margin, margin, cv2.BORDER_CONSTANT, value=0)
    height, width = padded.shape
    best, best_contrast = padded, -1
    for degrees in TURNS_DEGREES:
        turn = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1)
        turned = cv2.warpAffine(padded, turn, (width, height), flags=cv2.INTER_LINEAR)
        rows = turned.sum(axis=1, dtype=np.int64)
        contrast = int(((rows[1:] - rows[:-1]) ** 2).sum())
        if contrast > best_contrast:
            best, best_contrast = turned, contrast
    return np.asarray(best, dtype=np.uint8)


def _cropped(ink: Gray) -> Gray:
    top, bottom = _bounds(ink.sum(axis=1, dtype=np.int64))
    left, right = _bounds(ink.sum(axis=0, dtype=np.int64))
    return ink[top : bottom + 1, left : right + 1]


def _bounds(profile: NDArray[np.int64]) -> tuple[int, int]:
    """Return between which places all but a hundredth of the ink at either end is."""
    summed = np.cumsum(profile)
    last = len(profile) - 1
    low, high = (int(np.searchsorted(summed, share * summed[-1])) for share in (INK_LEFT_OUT, 1 - INK_LEFT_OUT))
    return min(low, last), min(high, last)
