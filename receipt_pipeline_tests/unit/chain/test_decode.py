"""Decoding: every kind by its bytes, limits before pixels, awkward pictures upright and readable."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from receipt_pipeline.chain.decode import DecodeLimits, decode_scan
from receipt_pipeline.core.errors import ScanRejected

WIDTH, HEIGHT = 120, 80
BLACK, WHITE, RED = (0, 0, 0), (255, 255, 255), (255, 0, 0)


def a_picture(mode: str = "RGB", *, corner: tuple[int, int, int] = BLACK) -> Image.Image:
    picture = Image.new("RGB", (WIDTH, HEIGHT), WHITE)
    ImageDraw.Draw(picture).rectangle((0, 0, WIDTH // 2, HEIGHT // 2), fill=corner)
    return picture.convert(mode)


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def the_code(data: bytes, limits: DecodeLimits | None = None) -> str:
    with pytest.raises(ScanRejected) as caught:
        decode_scan(data, limits=limits or DecodeLimits())
    return caught.value.reason.code


def a_png_header(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("JPEG", "jpeg"),
        ("PNG", "png"),
        ("TIFF", "tiff"),
        ("WEBP", "webp"),
        ("GIF", "gif"),
        ("HEIF", "heic"),
        ("PDF", "pdf"),
    ],
)
def test_each_supported_kind_is_told_by_its_bytes(kind: str, expected: str) -> None:
    scan = decode_scan(saved(a_picture(), kind))
    assert scan.kind == expected
    assert len(scan.pages) == 1
    assert scan.pages[0].pixels.dtype == np.uint8
    height, width, channels = scan.pages[0].pixels.shape
    assert channels == 3
    assert abs(width / height - WIDTH / HEIGHT) < 0.01
    assert scan.pages[0].pixels[height // 8, width // 8].max() < 30
    assert scan.pages[0].pixels[-3, -3].min() > 225


def test_the_same_bytes_give_the_same_pixels_twice() -> None:
    data = saved(a_picture(), "JPEG")
    assert np.array_equal(decode_scan(data).pages[0].pixels, decode_scan(data).pages[0].pixels)


def test_no_bytes_are_rejected_as_empty() -> None:
    assert the_code(b"") == "SCAN.EMPTY.v1"


def test_more_bytes_than_the_limit_are_rejected_unread() -> None:
    assert the_code(saved(a_picture(), "PNG"), DecodeLimits(scan_size_bytes_max=20)) == "SCAN.TOO_LARGE.v1"


@pytest.mark.parametrize("data", [b"hello", b"PK\x03\x04" + bytes(40), b"\x00\x00\x00\x1cftypavif" + bytes(40)])
def test_other_kinds_are_rejected_as_unsupported(data: bytes) -> None:
    assert the_code(data) == "SCAN.UNSUPPORTED.v1"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "HEIF"])
def test_a_picture_cut_in_half_is_never_half_a_scan(kind: str) -> None:
    noise = np.random.default_rng(7).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    data = saved(Image.fromarray(noise), kind)
    assert the_code(data[: len(data) // 2]) == "SCAN.BROKEN.v1"


def test_a_picture_that_claims_too_many_pixels_is_a_bomb_before_it_is_loaded() -> None:
    assert the_code(a_png_header(20_000, 20_000)) == "SCAN.BOMB.v1"
    assert the_code(a_png_header(9_000, 9_000)) == "SCAN.BOMB.v1"


def test_pages_over_the_limit_are_a_bomb() -> None:
    pages = [a_picture() for _ in range(4)]
    data = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert len(decode_scan(data, limits=DecodeLimits(pages_max=4)).pages) == 4
    assert the_code(data, DecodeLimits(pages_max=3)) == "SCAN.BOMB.v1"


def test_all_pages_together_are_bounded_too() -> None:
    pages = [a_picture() for _ in range(4)]
    data = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert the_code(data, DecodeLimits(scan_pixels_max=3 * WIDTH * HEIGHT)) == "SCAN.BOMB.v1"


def test_every_page_of_a_tiff_is_decoded_in_order() -> None:
    pages = [a_picture(corner=BLACK), a_picture(corner=RED)]
    scan = decode_scan(saved(pages[0], "TIFF", save_all=True, append_images=pages[1:]))
    assert [page.index for page in scan.pages] == [0, 1]
    assert [tuple(page.pixels[5, 5]) for page in scan.pages] == [BLACK, RED]


@pytest.mark.parametrize(
    ("orientation", "stored"),
    [
        (2, lambda picture: picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
        (3, lambda picture: picture.transpose(Image.Transpose.ROTATE_180)),
        (4, lambda picture: picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM)),
        (5, lambda picture: picture.transpose(Image.Transpose.TRANSPOSE)),
        (6, lambda picture: picture.transpose(Image.Transpose.ROTATE_90)),
        (7, lambda picture: picture.transpose(Image.Transpose.TRANSVERSE)),
        (8, lambda picture: picture.transpose(Image.Transpose.ROTATE_270)),
    ],
)
def test_a_picture_stored_turned_comes_out_upright(
    orientation: int, stored: Callable[[Image.Image], Image.Image]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = decode_scan(saved(stored(a_picture()), "JPEG", exif=exif, quality=95)).pages[0].pixels
    assert pixels.shape == (HEIGHT, WIDTH, 3)
    assert pixels[5, 5].max() < 30
    assert pixels[-5, -5].min() > 225


def test_four_colour_pictures_are_not_inverted() -> None:
    pixels = decode_scan(saved(a_picture("CMYK"), "JPEG")).pages[0].pixels
    assert pixels[5, 5].max() < 30
    assert pixels[-5, -5].min() > 225


def test_transparent_ground_becomes_white_paper() -> None:
    picture = Image.new("RGBA", (WIDTH, HEIGHT), (0, 0, 0, 0))
    ImageDraw.Draw(picture).rectangle((0, 0, 20, 20), fill=(0, 0, 0, 255))
    pixels = decode_scan(saved(picture, "PNG")).pages[0].pixels
    assert tuple(pixels[5, 5]) == BLACK
    assert tuple(pixels[-5, -5]) == WHITE


def test_a_palette_with_a_transparent_entry_is_read_over_white() -> None:
    picture = a_picture("P")
    ground = picture.getpixel((WIDTH - 1, HEIGHT - 1))
    pixels = decode_scan(saved(picture, "PNG", transparency=ground)).pages[0].pixels
    assert tuple(pixels[-5, -5]) == WHITE
    assert pixels[5, 5].max() < 30


@pytest.mark.parametrize(("dark", "light"), [(600, 60_000), (100, 3_900)])
def test_deep_grey_is_scaled_and_not_clipped(dark: int, light: int) -> None:
    values = np.full((HEIGHT, WIDTH), light, dtype=np.uint16)
    values[: HEIGHT // 2, : WIDTH // 2] = dark
    pixels = decode_scan(saved(Image.fromarray(values), "PNG")).pages[0].pixels
    assert pixels[5, 5].max() < 10
    assert 225 < pixels[-5, -5].min() < 250


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_damaged_exif_block_does_not_damage_the_picture() -> None:
    data = saved(a_picture(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert decode_scan(data).pages[0].pixels.shape == (HEIGHT, WIDTH, 3)


def test_bytes_behind_the_picture_change_nothing() -> None:
    data = saved(a_picture(), "JPEG")
    padded = decode_scan(data + bytes(4096) + b"text").pages[0].pixels
    assert np.array_equal(padded, decode_scan(data).pages[0].pixels)
