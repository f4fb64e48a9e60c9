"""Stage decode, PDF part: every page of a document rendered to RGB at a bounded resolution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pypdfium2 as pdfium
from numpy.typing import NDArray

from receipt_pipeline.core.errors import ScanRejected
from receipt_pipeline.core.reasons import SCAN_BOMB, SCAN_BROKEN, SCAN_ENCRYPTED

POINTS_PER_INCH = 72
RENDER_DPI = 200
# A page larger than this at 200 dpi (about 14 by 21 inches) is drawn coarser: its text is larger too.
RENDER_PIXELS_MAX = 12_000_000
NESTED_OBJECTS_MAX = 10


@dataclass(frozen=True, slots=True)
class PdfLimits:
    """Bounds of one document: pixels of one page or embedded picture, of all pages, number of pages."""

    page_pixels_max: int
    scan_pixels_max: int
    pages_max: int


def decode_pdf_pages(data: bytes, *, limits: PdfLimits) -> list[NDArray[np.uint8]]:
    """Render all pages, (height_px, width_px, 3) RGB.

    Raises:
        ScanRejected: SCAN.BROKEN, SCAN.ENCRYPTED, or SCAN.BOMB before anything is rendered.
    """
    _refuse_cut_file(data)
    with _opened(data) as document:
        try:
            scales = _checked_scales(document, limits)
            return [_render(document, index, scale) for index, scale in enumerate(scales)]
        except pdfium.PdfiumError as error:
            raise ScanRejected(SCAN_BROKEN, kind="pdf") from error


def _refuse_cut_file(data: bytes) -> None:
    # pdfium repairs a cut file silently and draws what is left, so half a receipt could pass as whole:
    # the end mark must come after the last object.
    if data.rfind(b"%%EOF") < data.rfind(b" obj"):
        raise ScanRejected(SCAN_BROKEN, kind="pdf", missing="end of file mark")


@contextmanager
def _opened(data: bytes) -> Iterator[pdfium.PdfDocument]:
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        # Only the text tells the two apart.
        reason = SCAN_ENCRYPTED if "password" in str(error).lower() else SCAN_BROKEN
        raise ScanRejected(reason, kind="pdf") from error
    try:
        yield document
    finally:
        document.close()


def _checked_scales(document: pdfium.PdfDocument, limits: PdfLimits) -> list[float]:
    """Return each page's scale in pixels per point, after all claims were checked."""
    pages = len(document)
    if pages == 0:
        raise ScanRejected(SCAN_BROKEN, kind="pdf", pages=0)
    if pages > limits.pages_max:
        raise ScanRejected(SCAN_BOMB, pages=pages, pages_max=limits.pages_max)
    areas = [_checked_area(document, index, limits) for index in range(pages)]
    full = RENDER_DPI / POINTS_PER_INCH
    scales = [min(full, math.sqrt(RENDER_PIXELS_MAX / area)) for area in areas]
    drawn = sum(area * scale * scale for area, scale in zip(areas, scales, strict=True))
    # A document of many pages is drawn coarser as a whole, so that all its pages fit.
    coarser = min(1.0, math.sqrt(limits.scan_pixels_max / drawn))
    return [scale * coarser for scale in scales]


def _checked_area(document: pdfium.PdfDocument, index: int, limits: PdfLimits) -> float:
    """Return the page's area in square points. Raises ScanRejected with SCAN.BOMB."""
    page = document[index]
    try:
        width, height = page.get_size()
        page_pixels = (width * RENDER_DPI / POINTS_PER_INCH) * (height * RENDER_DPI / POINTS_PER_INCH)
        if page_pixels > limits.page_pixels_max:
            raise ScanRejected(SCAN_BOMB, page=index, width_pt=round(width), height_pt=round(height))
        pictures = page.get_objects(filter=[pdfium.raw.FPDF_PAGEOBJ_IMAGE], max_depth=NESTED_OBJECTS_MAX)
        for picture in pictures:
            width_px, height_px = picture.get_px_size()
            if width_px * height_px > limits.page_pixels_max:
                raise ScanRejected(SCAN_BOMB, page=index, width_px=width_px, height_px=height_px)
        return max(1.0, float(width * height))
    finally:
        page.close()


def _render(document: pdfium.PdfDocument, index: int, scale: float) -> NDArray[np.uint8]:
    page = document[index]
    try:
        bitmap = page.render(scale=scale, rev_byteorder=True)
        try:
            # The bitmap's memory belongs to pdfium and goes with it.
            pixels = np.array(bitmap.to_numpy()[:, :, :3], dtype=np.uint8)
        finally:
            bitmap.close()
    finally:
        page.close()
    return pixels
