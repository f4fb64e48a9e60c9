"""Decoding PDF: all pages at 200 dpi, claims checked before rendering, cut and locked files refused."""

from __future__ import annotations

import io
import zlib

import pytest
from PIL import Image

from receipt_pipeline.chain.decode import DecodeLimits, decode_scan
from receipt_pipeline_tests.unit.chain.test_decode import the_code


def a_pdf(pages: int = 1, *, width_px: int = 100, height_px: int = 60, dpi: float = 72.0) -> bytes:
    file = io.BytesIO()
    sheets = [Image.new("RGB", (width_px, height_px), "white") for _ in range(pages)]
    sheets[0].save(file, "PDF", save_all=True, append_images=sheets[1:], resolution=dpi)
    return file.getvalue()


def a_written_pdf(objects: list[bytes], trailer: bytes = b"") -> bytes:
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n" % number + body + b"\nendobj\n")
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    for offset in offsets:
        out.write(b"%010d 00000 n \n" % offset)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %s >>\n" % (len(objects) + 1, trailer))
    out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def a_pdf_with_a_huge_picture() -> bytes:
    body = zlib.compress(bytes(1000))
    picture = (
        b"<< /Type /XObject /Subtype /Image /Width 20000 /Height 20000 /BitsPerComponent 1 "
        b"/ColorSpace /DeviceGray /Filter /FlateDecode /Length %d >>\nstream\n" % len(body)
    )
    content = b"q 500 0 0 500 0 0 cm /P Do Q"
    return a_written_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 576 576] /Contents 4 0 R "
            b"/Resources << /XObject << /P 5 0 R >> >> >>",
            b"<< /Length %d >>\nstream\n" % len(content) + content + b"\nendstream",
            picture + body + b"\nendstream",
        ]
    )


def a_locked_pdf() -> bytes:
    lock = (
        b"/Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <"
        + b"41" * 32
        + b"> /U <"
        + b"42" * 32
        + b"> >> "
        b"/ID [<00112233445566778899aabbccddeeff> <00112233445566778899aabbccddeeff>]"
    )
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] >>"
    return a_written_pdf(
        [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page], lock
    )


def test_pages_are_drawn_at_two_hundred_dots_to_the_inch() -> None:
    scan = decode_scan(a_pdf(2, width_px=144, height_px=72))
    assert [page.pixels.shape for page in scan.pages] == [(200, 400, 3), (200, 400, 3)]
    assert scan.pages[0].pixels.min() > 250


def test_many_pages_are_drawn_coarser_so_that_all_fit() -> None:
    limits = DecodeLimits(scan_pixels_max=100_000)
    scan = decode_scan(a_pdf(5, width_px=144, height_px=72), limits=limits)
    assert len(scan.pages) == 5
    drawn = sum(page.pixels.shape[0] * page.pixels.shape[1] for page in scan.pages)
    assert 90_000 < drawn < 110_000


def test_a_huge_page_is_a_bomb_before_it_is_drawn() -> None:
    assert the_code(a_pdf(width_px=60, height_px=60, dpi=0.5)) == "SCAN.BOMB.v1"


def test_a_huge_picture_on_a_small_page_is_a_bomb_before_it_is_drawn() -> None:
    assert the_code(a_pdf_with_a_huge_picture()) == "SCAN.BOMB.v1"


def test_pages_over_the_limit_are_a_bomb() -> None:
    assert the_code(a_pdf(4), DecodeLimits(pages_max=3)) == "SCAN.BOMB.v1"


def test_a_document_that_asks_for_a_password_says_so() -> None:
    assert the_code(a_locked_pdf()) == "SCAN.ENCRYPTED.v1"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_document_cut_short_is_broken_although_parts_could_be_drawn(share: float) -> None:
    data = a_pdf(3)
    assert the_code(data[: int(len(data) * share)]) == "SCAN.BROKEN.v1"


def test_a_header_alone_is_broken() -> None:
    assert the_code(b"%PDF-1.4\n%%EOF\n") == "SCAN.BROKEN.v1"
