"""The bytes of one scan become upright RGB pages; limits are checked before pixels exist."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pillow_heif
import pypdfium2 as pdfium
from numpy.typing import NDArray
from PIL import Image

from receipt_pipeline.chain.values import DecodedScan, Page
from receipt_pipeline.core.errors import ScanRejected
from receipt_pipeline.core.reasons import (
    SCAN_BOMB,
    SCAN_BROKEN,
    SCAN_EMPTY,
    SCAN_ENCRYPTED,
    SCAN_TOO_LARGE,
    SCAN_UNSUPPORTED,
)

pillow_heif.register_heif_opener()

# Kinds whose every frame is a page; of the others (GIF, WebP, HEIC, ...) the first picture counts.
PAGED_KINDS = frozenset({"tiff"})
PILLOW_FORMATS = {"jpeg": "JPEG", "png": "PNG", "tiff": "TIFF", "webp": "WEBP", "gif": "GIF", "heic": "HEIF"}
HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
ORIENTATION_TAG = 0x0112
BAND_ROWS = 512
# The brightest value of floating, 8-, 12- and 16-bit gray.
GRAY_CEILINGS = (1.0, 255.0, 4095.0, 65535.0)
# How the stored pixels are turned upright, by the value of the orientation tag.
TURNS: Mapping[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = MappingProxyType(
    {
        2: lambda pixels: pixels[:, ::-1],
        3: lambda pixels: pixels[::-1, ::-1],
        4: lambda pixels: pixels[::-1],
        5: lambda pixels: pixels.transpose(1, 0, 2),
        6: lambda pixels: np.rot90(pixels, 3),
        7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
        8: lambda pixels: np.rot90(pixels),
    }
)


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Bounds of one scan: bytes, pixels of one page and of all pages, number of pages."""

    scan_size_bytes_max: int = 64 * 1024 * 1024
    page_pixels_max: int = 50_000_000
    scan_pixels_max: int = 120_000_000
    pages_max: int = 50


def decode_scan(data: bytes, *, limits: DecodeLimits = DecodeLimits()) -> DecodedScan:
    """Decode one scan by its content; names and declared types play no part.

    Returns:
        The kind and all pages, RGB uint8, upright by their EXIF tag, alpha over white.
    Raises:
        ScanRejected: SCAN.EMPTY, SCAN.TOO_LARGE, SCAN.UNSUPPORTED, SCAN.BROKEN, SCAN.ENCRYPTED or SCAN.BOMB.
    """
    if not data:
        raise ScanRejected(SCAN_EMPTY)
    if len(data) > limits.scan_size_bytes_max:
        raise ScanRejected(SCAN_TOO_LARGE, size_bytes=len(data), size_bytes_max=limits.scan_size_bytes_max)
    kind = sniff_kind(data)
    if kind == "pdf":
        pdf_limits = PdfLimits(limits.page_pixels_max, limits.scan_pixels_max, limits.pages_max)
        pixels = decode_pdf_pages(data, limits=pdf_limits)
    else:
        pixels = _decode_picture(data, kind, limits)
    return DecodedScan(kind, tuple(Page(index, page) for index, page in enumerate(pixels)))


def sniff_kind(data: bytes) -> str:
    """Return the kind by the first bytes. Raises ScanRejected with SCAN.UNSUPPORTED."""
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith((b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")):
        return "tiff"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp" and data[8:12] in HEIC_BRANDS:
        return "heic"
    # Readers of PDF accept its header anywhere in the first kilobyte.
    if b"%PDF-" in data[:1024]:
        return "pdf"
    raise ScanRejected(SCAN_UNSUPPORTED)


def _decode_picture(data: bytes, kind: str, limits: DecodeLimits) -> list[NDArray[np.uint8]]:
    try:
        # Opening reads the header only; the size is known before any pixel is decompressed.
        with Image.open(io.BytesIO(data), formats=(PILLOW_FORMATS[kind],)) as image:
            return [_upright_rgb(frame) for frame in _bounded_frames(image, kind, limits)]
    except (ScanRejected, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ScanRejected(SCAN_BOMB, kind=kind) from error
    except Exception as error:
        # Pillow's plug-ins raise whatever their parser met (OSError, SyntaxError, ValueError, ...), and each
        # of these means that this file cannot be read to its end.
        raise ScanRejected(SCAN_BROKEN, kind=kind, error=type(error).__name__) from error


def _bounded_frames(image: Image.Image, kind: str, limits: DecodeLimits) -> Iterator[Image.Image]:
    """Yield the picture positioned at each page, after checking that page's claim."""
    pixels_claimed = 0
    index = 0
    while True:
        if index >= limits.pages_max:
            raise ScanRejected(SCAN_BOMB, pages_over=limits.pages_max)
        page_pixels = image.width * image.height
        pixels_claimed += page_pixels
        if page_pixels > limits.page_pixels_max or pixels_claimed > limits.scan_pixels_max:
            raise ScanRejected(SCAN_BOMB, width_px=image.width, height_px=image.height, page=index)
        yield image
        index += 1
        if kind not in PAGED_KINDS:
            return
        try:
            # Frames are walked one by one: the claimed page count may be wrong or zero.
            image.seek(index)
        except EOFError:
            return


def _upright_rgb(frame: Image.Image) -> NDArray[np.uint8]:
    frame.load()
    ceiling = _deep_grey_ceiling(frame)
    pixels = np.empty((frame.height, frame.width, 3), dtype=np.uint8)
    # Converted band by band: whole copies of a large page in between would treble its memory.
    for top in range(0, frame.height, BAND_ROWS):
        bottom = min(top + BAND_ROWS, frame.height)
        band = frame.crop((0, top, frame.width, bottom))
        pixels[top:bottom] = np.asarray(_rgb(band)) if ceiling is None else _scaled_grey(band, ceiling)
    turn = TURNS.get(_orientation(frame))
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))


def _orientation(frame: Image.Image) -> int:
    try:
        return int(frame.getexif().get(ORIENTATION_TAG, 1))
    except Exception:  # A damaged EXIF block does not damage the picture: it is taken as stored.
        return 1


def _rgb(band: Image.Image) -> Image.Image:
    """Return the band as RGB, transparency over white."""
    if band.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in band.info:
        over_white = Image.new("RGBA", band.size, (255, 255, 255, 255))
        over_white.alpha_composite(band.convert("RGBA"))
        return over_white.convert("RGB")
    return band.convert("RGB")


def _deep_grey_ceiling(frame: Image.Image) -> float | None:
    """Return the white of 12-, 16-, 32-bit or floating gray; None for all other pictures."""
    if not (frame.mode.startswith("I") or frame.mode == "F"):
        return None
    _darkest, brightest = (float(str(value)) for value in frame.getextrema())
    return next((top for top in GRAY_CEILINGS if brightest <= top), brightest)


def _scaled_grey(band: Image.Image, ceiling: float) -> NDArray[np.uint8]:
    """Scale deep gray to 8 bit; a plain convert would clip it to white."""
    values = np.asarray(band).astype(np.float32)
    gray = np.clip(values * (255.0 / ceiling), 0, 255).astype(np.uint8)
    return np.repeat(gray[:, :, np.newaxis], 3, axis=2)


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
        # Only the text distinguishes the two.
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
