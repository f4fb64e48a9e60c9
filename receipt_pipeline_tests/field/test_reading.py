"""PageText the public cases, awkward files and real scans from bytes to fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from receipt_pipeline.chain.decode import decode_scan
from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.ocr.engine import RapidOcrEngine, read_scan
from receipt_pipeline.chain.ocr.models import place_models
from receipt_pipeline.chain.values import PageText, ReceiptFields
from receipt_pipeline.core.errors import ScanRejected
from receipt_pipeline.core.money import Money
from receipt_pipeline.evaluation.fields import normalized_value, strict_fields
from receipt_pipeline_tests.printed_receipt import reading_of

pytestmark = pytest.mark.field

CASES = {
    "25-exif-upside-down": ("upright.jpg", "tag3.jpg"),
    "26-bad-images": ("good.png", "cmyk.jpg"),
    "27-pages-and-pieces": ("long.pdf", "blank-front.pdf"),
    "28-european-date": ("dotted.png",),
    "29-decimal-comma-currency": ("comma.png", "point.png", "trailing.png"),
    "30-refund-change-tip": ("refund.png", "change.png"),
}
CASE_FILES = [(case, name) for case, names in CASES.items() for name in names]
REJECTED = {
    "truncated-60pct.jpg": "SCAN.BROKEN.v1",
    "empty.jpg": "SCAN.EMPTY.v1",
    "pillow-truncated.jpg": "SCAN.BROKEN.v1",
    "pillow-broken-stream.png": "SCAN.BROKEN.v1",
    "pillow-png-dos.png": "SCAN.BROKEN.v1",
    "pillow-bomb.gif": "SCAN.BOMB.v1",
    "paperless-encrypted.pdf": "SCAN.ENCRYPTED.v1",
    "ocrmypdf-invalid.pdf": "SCAN.BROKEN.v1",
    "ocrmypdf-hugemono.pdf": "SCAN.BOMB.v1",
}
DECODED = {
    "pillow-total-pages-zero.tif": ("tiff", 3),
    "paperless-simple.heic": ("heic", 1),
    "ocrmypdf-rotated-skew.pdf": ("pdf", 1),
    "three-receipts.tiff": ("tiff", 3),
    "two-receipts.pdf": ("pdf", 2),
    "png-named.jpg": ("png", 1),
}
SAME_FIELDS = {
    "exif-orientation-6.jpg": "sroie-0095",
    "cmyk.jpg": "sroie-0055",
    "gray-16bit.png": "sroie-0031",
    "palette-16.png": "sroie-0039",
    "png-named.jpg": "sroie-0109",
    "trailing-garbage.jpg": "sroie-0004",
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> RapidOcrEngine:
    return RapidOcrEngine(place_models(tmp_path_factory.mktemp("models")))


def read(path: Path, engine: RapidOcrEngine) -> tuple[PageText, ReceiptFields]:
    page_text = read_scan(decode_scan(path.read_bytes()), engine)
    return page_text, extract_fields(page_text)


def expected_of(shared: Path, case: str) -> Any:
    return json.loads((shared / "cases" / case / "expected.json").read_text(encoding="utf-8"))


def total_text(fields: ReceiptFields) -> str:
    assert fields.total is not None
    return Money(fields.total.minor, fields.total.currency).as_decimal_text()


@pytest.mark.parametrize(("case", "name"), CASE_FILES)
def test_a_case_is_read_as_it_expects(shared: Path, engine: RapidOcrEngine, case: str, name: str) -> None:
    expected = expected_of(shared, case)[name]
    page_text, fields = read(shared / "cases" / case / name, engine)
    assert total_text(fields) == expected["total"]
    assert fields.currency == expected["currency"].split()[0]
    assert fields.total is not None
    assert not fields.total.ambiguous
    assert not fields.several_receipts
    assert len(page_text.page_sizes) == expected.get("pages", 1)
    if "date" in expected:
        assert fields.date is not None
        assert fields.date.iso == expected["date"]


@pytest.mark.parametrize("name", ["bomb.png", "cut.jpg", "empty.png"])
def test_bad_pictures_are_rejected_each_with_its_reason(shared: Path, name: str) -> None:
    with pytest.raises(ScanRejected) as caught:
        decode_scan((shared / "cases" / "26-bad-images" / name).read_bytes())
    reasons = {"bomb.png": "SCAN.BOMB.v1", "cut.jpg": "SCAN.BROKEN.v1", "empty.png": "SCAN.EMPTY.v1"}
    assert caught.value.reason.code == reasons[name]


def test_a_document_under_a_picture_name_is_decoded_by_its_content(shared: Path) -> None:
    assert decode_scan((shared / "cases" / "26-bad-images" / "really-pdf.jpg").read_bytes()).kind == "pdf"


def test_the_blank_page_of_a_document_is_noted(shared: Path, engine: RapidOcrEngine) -> None:
    page_text, _fields = read(shared / "cases" / "27-pages-and-pieces" / "blank-front.pdf", engine)
    assert page_text.blank_pages == (0,)


def test_two_receipts_in_one_picture_are_several(shared: Path, engine: RapidOcrEngine) -> None:
    _page_text, fields = read(shared / "cases" / "27-pages-and-pieces" / "stacked.png", engine)
    assert fields.several_receipts


def test_a_slashed_date_without_a_hint_stays_as_printed(shared: Path, engine: RapidOcrEngine) -> None:
    _page_text, fields = read(shared / "cases" / "28-european-date" / "slashed.png", engine)
    assert fields.date is not None
    assert (fields.date.printed, fields.date.iso, fields.date.ambiguous) == ("03/04/2025", None, True)
    assert total_text(fields) == "2.25"
    assert fields.currency is None


def test_a_bare_total_is_ambiguous(shared: Path, engine: RapidOcrEngine) -> None:
    _page_text, fields = read(shared / "cases" / "29-decimal-comma-currency" / "bare.png", engine)
    assert fields.total is not None
    assert fields.total.ambiguous
    assert fields.currency is None


def test_a_total_changed_by_hand_is_never_the_printed_one_without_doubt(shared: Path, engine: RapidOcrEngine) -> None:
    _page_text, fields = read(shared / "cases" / "30-refund-change-tip" / "pen.png", engine)
    assert fields.total is not None
    assert fields.total.ambiguous
    assert total_text(fields) in ("30.00", "35.00")


@pytest.mark.parametrize(("case", "name"), [pair for pair in CASE_FILES if pair[1] not in ("good.png", "tag3.jpg")])
def test_a_perfect_reading_gives_the_same_total(shared: Path, case: str, name: str) -> None:
    folder = shared / "cases" / case
    stem = name.partition(".")[0]
    text = folder / f"{stem}.lines.txt"
    pages = (text if text.exists() else folder / "text.lines.txt").read_text(encoding="utf-8").split("\f")
    assert total_text(extract_fields(reading_of(*pages))) == expected_of(shared, case)[name]["total"]


@pytest.mark.parametrize(("name", "code"), REJECTED.items())
def test_awkward_files_that_cannot_be_read_are_rejected(shared: Path, name: str, code: str) -> None:
    with pytest.raises(ScanRejected) as caught:
        decode_scan((shared / "data" / "awkward" / name).read_bytes())
    assert caught.value.reason.code == code


@pytest.mark.parametrize(("name", "kind_and_pages"), DECODED.items())
def test_awkward_files_that_can_be_read_are_decoded(shared: Path, name: str, kind_and_pages: tuple[str, int]) -> None:
    scan = decode_scan((shared / "data" / "awkward" / name).read_bytes())
    assert (scan.kind, len(scan.pages)) == kind_and_pages


def test_garbage_after_a_picture_leaves_the_same_pixels(shared: Path) -> None:
    padded = decode_scan((shared / "data" / "awkward" / "trailing-garbage.jpg").read_bytes())
    clean = decode_scan((shared / "data" / "receipts" / "sroie-0004.jpg").read_bytes())
    assert np.array_equal(padded.pages[0].pixels, clean.pages[0].pixels)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "source"), SAME_FIELDS.items())
def test_awkward_pictures_give_the_fields_of_their_source(
    shared: Path, engine: RapidOcrEngine, name: str, source: str
) -> None:
    truth = json.loads((shared / "data" / "receipts" / f"{source}.json").read_text(encoding="utf-8"))
    _page_text, fields = read(shared / "data" / "awkward" / name, engine)
    printed = strict_fields(fields)
    for field in ("date", "total"):
        assert printed[field] is not None
        assert normalized_value(field, printed[field] or "") == normalized_value(field, truth[field])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "total", "currency"),
    [
        ("photo-us-restaurant.jpg", "128.27", None),
        ("photo-us-korean.jpg", "60.44", "USD"),
        ("german-sideways.pdf", "0.99", "EUR"),
    ],
)
def test_photos_and_turned_pages_are_read(
    shared: Path, engine: RapidOcrEngine, name: str, total: str, currency: str | None
) -> None:
    _page_text, fields = read(shared / "data" / "awkward" / name, engine)
    assert (total_text(fields), fields.currency) == (total, currency)


@pytest.mark.slow
def test_a_photo_without_its_total_gets_none(shared: Path, engine: RapidOcrEngine) -> None:
    _page_text, fields = read(shared / "data" / "awkward" / "photo-us-grocery.jpg", engine)
    assert fields.total is None


def test_a_picture_without_text_has_no_lines(shared: Path, engine: RapidOcrEngine) -> None:
    page_text, fields = read(shared / "data" / "awkward" / "paperless-no-text-alpha.png", engine)
    assert page_text.lines == ()
    assert fields == ReceiptFields()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three-receipts.tiff", "two-receipts.pdf"])
def test_several_receipts_in_one_file_are_noticed(shared: Path, engine: RapidOcrEngine, name: str) -> None:
    _page_text, fields = read(shared / "data" / "awkward" / name, engine)
    assert fields.several_receipts


@pytest.mark.slow
@pytest.mark.parametrize("receipt_id", ["sroie-0003", "sroie-0037", "sroie-0097"])
def test_real_scans_give_day_and_total_and_the_same_lines_twice(
    shared: Path, engine: RapidOcrEngine, receipt_id: str
) -> None:
    folder = shared / "data" / "receipts"
    truth = json.loads((folder / f"{receipt_id}.json").read_text(encoding="utf-8"))
    page_text, fields = read(folder / f"{receipt_id}.jpg", engine)
    printed = strict_fields(fields)
    assert (printed["date"], printed["total"]) == (truth["date"], truth["total"])
    assert not fields.several_receipts
    assert read(folder / f"{receipt_id}.jpg", engine)[0] == page_text
