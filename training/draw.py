"""Invented receipts as pictures, by seed, and the samples in `data/samples`: `python -m training.draw`."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from training.alterations import AMOUNT, TOTAL_KINDS
from training.content import Cell, Content, draw_content

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
FACES = ("DejaVuSansMono.ttf", "DejaVuSans.ttf", "DejaVuSansMono-Bold.ttf")
PAGE_WIDTH_PX = 520
MARGIN_PX = 28
PICTURE_KINDS = ("JPEG", "PNG", "TIFF", "PDF")
JPEG_QUALITY = 60
PDF_DPI = 110.0

Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class DrawnCell:
    """A cell on the drawn page: its row's kind, its text, and the box of each character in pixels."""

    kind: str
    text: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class DrawnReceipt:
    """A drawn page, what is true of it, and where its cells stand before noise and turn."""

    image: Image.Image
    truth: dict[str, Any]
    cells: tuple[DrawnCell, ...]


@dataclass(frozen=True, slots=True)
class Wear:
    """How a page was printed and scanned: turn in degrees, blur radius in pixels, noise in grey levels."""

    turn_degrees: float = 0.0
    blur_px: float = 0.0
    noise_levels: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random) -> Wear:
        """Invent the wear of one scan."""
        return cls(rng.uniform(-0.8, 0.8), rng.uniform(0.0, 0.7), rng.uniform(0.0, 7.0))


def draw_receipt(seed: int, *, wear: Wear | None = None, content: Content | None = None) -> DrawnReceipt:
    """Draw one invented receipt; equal seeds give equal pixels with the same libraries.

    Args:
        seed: of content, face and wear.
        wear: given, or invented from the seed.
        content: what to draw instead of inventing it, for instance after tampering.
    """
    rng = random.Random(f"receipt/{seed}")
    shown = draw_content(rng) if content is None else content
    page = _draw_page(shown, rng)
    return worn(page, Wear.drawn(rng) if wear is None else wear, seed=seed)


def worn(page: DrawnReceipt, wear: Wear, *, seed: int) -> DrawnReceipt:
    """Return the page as scanned: turned, blurred and noisy."""
    image = page.image
    if wear.turn_degrees:
        image = image.rotate(wear.turn_degrees, Image.Resampling.BICUBIC, fillcolor=255)
    if wear.blur_px:
        image = image.filter(ImageFilter.GaussianBlur(wear.blur_px))
    if wear.noise_levels:
        noise = np.random.default_rng(seed).normal(0.0, wear.noise_levels, (image.height, image.width))
        grey = np.clip(np.asarray(image, dtype=np.float64) + noise, 0, 255)
        image = Image.fromarray(grey.astype(np.uint8))
    return replace(page, image=image)


def encoded(image: Image.Image, kind: str) -> bytes:
    """Return the picture's bytes as JPEG, PNG, TIFF or PDF; equal pictures give equal bytes."""
    assert kind in PICTURE_KINDS, kind
    buffer = io.BytesIO()
    if kind == "JPEG":
        image.save(buffer, kind, quality=JPEG_QUALITY)
    elif kind == "PNG":
        # Sixteen greys keep a scan of print readable at a third of the size.
        image.quantize(16).save(buffer, kind, optimize=True)
    elif kind == "TIFF":
        image.convert("1", dither=Image.Dither.NONE).save(buffer, kind, compression="group4")
    else:
        # The writer would enter the time of writing: without dates the bytes stay the same.
        image.save(buffer, kind, resolution=PDF_DPI, quality=JPEG_QUALITY, creationDate=None, modDate=None)
    return buffer.getvalue()


def _draw_page(content: Content, rng: random.Random) -> DrawnReceipt:
    size_px = rng.choice([17, 18, 20])
    font = ImageFont.truetype(str(FONTS / rng.choice(FACES)), size_px)
    step_px = round(size_px * rng.choice([1.5, 1.7]))
    image = Image.new("L", (PAGE_WIDTH_PX, 2 * MARGIN_PX + step_px * len(content.rows)), 250)
    pen = ImageDraw.Draw(image)
    drawn: list[DrawnCell] = []
    for number, row in enumerate(content.rows):
        top = MARGIN_PX + number * step_px
        for cell in row.cells:
            left = _left_of(cell, font)
            pen.text((left, top), cell.text, fill=rng.randrange(15, 60), font=font)
            drawn.append(DrawnCell(row.kind, cell.text, _character_boxes(cell.text, left, top, font)))
    return DrawnReceipt(image=image, truth=content.truth, cells=tuple(drawn))


def _left_of(cell: Cell, font: ImageFont.FreeTypeFont) -> int:
    place = MARGIN_PX + cell.at * (PAGE_WIDTH_PX - 2 * MARGIN_PX)
    return round(place - (font.getlength(cell.text) if cell.right else 0.0))


def _character_boxes(text: str, left: int, top: int, font: ImageFont.FreeTypeFont) -> tuple[Box, ...]:
    ascent, descent = font.getmetrics()
    edges = [left + round(font.getlength(text[:end])) for end in range(len(text) + 1)]
    return tuple((edges[at], top, edges[at + 1], top + ascent + descent) for at in range(len(text)))


def paste_digit(drawn: DrawnReceipt, rng: random.Random, *, kinds: Sequence[str] = TOTAL_KINDS) -> DrawnReceipt:
    """Copy a digit of the page over the first digit of one amount, as forgers do in the picture.

    Everything else stays as it was, so that the sums no longer fit. The page should not be worn yet.

    Raises:
        ValueError: when the page shows no amount of these kinds, or no other digit to copy.
    """
    targets = [cell for cell in drawn.cells if cell.kind in kinds and AMOUNT.search(cell.text)]
    if not targets:
        raise ValueError("the page shows no amount of these kinds")
    target = rng.choice(targets)
    at = next(at for at, character in enumerate(target.text) if character.isdigit())
    sources = [
        (character, box)
        for cell in drawn.cells
        for character, box in zip(cell.text, cell.boxes, strict=True)
        if character in "23456789" and character != target.text[at]
    ]
    if not sources:
        raise ValueError("the page shows no other digit")
    digit, (left, top, right, bottom) = rng.choice(sources)
    image = drawn.image.copy()
    image.paste(drawn.image.crop((left, top, right, bottom)), target.boxes[at][:2])
    now = target.text[:at] + digit + target.text[at + 1 :]
    change = {"was": target.text, "now": now}
    truth = {**drawn.truth, "tampered": True, "alteration": "pasted_digit", "change": change}
    return replace(drawn, image=image, truth=truth)


MANIFEST = "manifest.json"
SAMPLE_SIZE_BYTES_MAX = 60_000
SCANNED = Wear(turn_degrees=0.4, blur_px=0.4, noise_levels=2.0)
UNWORN = Wear()
MEDIA_TYPES = {"JPEG": "image/jpeg", "PNG": "image/png", "TIFF": "image/tiff", "PDF": "application/pdf"}
ENDINGS = {"JPEG": "jpg", "PNG": "png", "TIFF": "tif", "PDF": "pdf"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One shipped sample: its item id, the kind of file, and how its page comes about."""

    item_id: str
    kind: str
    page: Callable[[], Image.Image]


def _genuine(seed: int, wear: Wear) -> Callable[[], Image.Image]:
    return lambda: draw_receipt(seed, wear=wear).image


def _pasted(seed: int) -> Callable[[], Image.Image]:
    def page() -> Image.Image:
        clean: DrawnReceipt = draw_receipt(seed, wear=UNWORN)
        return worn(paste_digit(clean, random.Random(seed)), SCANNED, seed=seed).image

    return page


def _blank() -> Image.Image:
    return worn(DrawnReceipt(image=Image.new("L", (420, 560), 247), truth={}, cells=()), SCANNED, seed=0).image


SAMPLES = (
    Sample("s-001", "JPEG", _genuine(1, SCANNED)),
    Sample("s-002", "PNG", _genuine(41, UNWORN)),
    Sample("s-003", "PDF", _genuine(51, SCANNED)),
    Sample("s-004-altered", "JPEG", _pasted(40)),
    Sample("s-005", "TIFF", _genuine(44, UNWORN)),
    Sample("s-006-blank", "JPEG", _blank),
)


def drawn_files() -> dict[str, bytes]:
    """Return the sample files by name, the manifest last; equal libraries give equal bytes."""
    files: dict[str, bytes] = {}
    items: list[dict[str, Any]] = []
    for sample in SAMPLES:
        data = encoded(sample.page(), sample.kind)
        assert len(data) <= SAMPLE_SIZE_BYTES_MAX, sample.item_id
        name = f"{sample.item_id}.{ENDINGS[sample.kind]}"
        files[name] = data
        items.append(
            {
                "item_id": sample.item_id,
                "uri": name,
                "sha256": hashlib.sha256(data).hexdigest(),
                "size_bytes": len(data),
                "media_type": MEDIA_TYPES[sample.kind],
            }
        )
    manifest = {
        "contract": "receipt-job/v1",
        "idempotency_key": "samples",
        "operation_class": "receipt-classification",
        "release": "production",
        "items": items,
    }
    files[MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode()
    return files


def main(arguments: list[str] | None = None) -> int:
    """Write the samples; print their names and sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=Path, default=Path("data/samples"))
    options = parser.parse_args(arguments)
    options.samples.mkdir(parents=True, exist_ok=True)
    for name, data in drawn_files().items():
        (options.samples / name).write_bytes(data)
        sys.stdout.write(f"{name} {len(data)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
