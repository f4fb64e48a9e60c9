"""A rescanned, saved, turned or brightened copy is the same receipt; another one of the same till is not."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.near_duplicates import ScanPrint, find_near_duplicate, new_scan_print
from receipt_pipeline.chain.values import DecodedScan, Page, PageText, ReceiptFields, TextLine
from receipt_pipeline.core.items import EarlierItem

FIRST = [
    "LUMBUNG PADI SDN BHD",
    "12 JALAN KENANGA, 43000 KAJANG",
    "TEL 03-87654321",
    "INVOICE 20180314001",
    "DATE 14/03/2018 12:41",
    "TEA 100023   RM 4.60",
    "CAKE 100047   RM 20.85",
    "TOTAL   RM 25.45",
    "CASH   RM 30.00",
    "CHANGE   RM 4.55",
    "THANK YOU AND COME AGAIN",
]
OTHER_DAY = [line.replace("14/03", "15/03").replace("0314001", "0315007") for line in FIRST]
OTHER_TIME = [line.replace("12:41", "12:58").replace("314001", "314009") for line in FIRST]
OTHER_TOTAL = [line.replace("25.45", "28.45").replace("20.85", "23.85") for line in FIRST]

Box = tuple[float, float, float, float]


def drawn(lines: list[str]) -> tuple[Image.Image, list[Box]]:
    image = Image.new("RGB", (420, 120 + 34 * len(lines)), "white")
    pen, boxes = ImageDraw.Draw(image), []
    for at, line in enumerate(lines):
        place = (40 + 9 * (at % 3), 60 + 34 * at)
        pen.text(place, line, fill="black", font=ImageFont.load_default(18))
        boxes.append(tuple(map(float, pen.textbbox(place, line, font=ImageFont.load_default(18)))))
    return image, boxes


def turned(image: Image.Image, boxes: list[Box], degrees: float) -> tuple[Image.Image, list[Box]]:
    other = image.rotate(degrees, expand=True, fillcolor=(225, 225, 225), resample=Image.Resampling.BICUBIC)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    found = []
    for left, top, right, bottom in boxes:
        corners = [(x - image.width / 2, y - image.height / 2) for x in (left, right) for y in (top, bottom)]
        xs = [x * cos + y * sin + other.width / 2 for x, y in corners]
        ys = [y * cos - x * sin + other.height / 2 for x, y in corners]
        found.append((min(xs), min(ys), max(xs), max(ys)))
    return other, found


def scaled(image: Image.Image, boxes: list[Box], factor: float) -> tuple[Image.Image, list[Box]]:
    size = (round(image.width * factor), round(image.height * factor))
    return image.resize(size), [tuple(edge * factor for edge in box) for box in boxes]  # type: ignore[misc]


def saved(image: Image.Image, boxes: list[Box]) -> tuple[Image.Image, list[Box]]:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=60)
    return Image.open(buffer).convert("RGB"), boxes


def read(image: Image.Image, boxes: list[Box], lines: list[str]) -> tuple[ScanPrint, ReceiptFields]:
    height, width = image.height, image.width
    reading = PageText(
        tuple(
            TextLine(text, (round(b[0]), round(b[1]), round(b[2]), round(b[3])), 1.0, 0)
            for text, b in zip(lines, boxes, strict=True)
        ),
        ((width, height),),
    )
    own = new_scan_print(DecodedScan("png", (Page(0, np.asarray(image)),)), reading)
    assert own is not None
    return own, extract_fields(reading)


def earlier() -> tuple[EarlierItem, ...]:
    own, fields = read(*drawn(FIRST), FIRST)
    return (EarlierItem("item-1", fields.as_document(), own.as_document()),)


COPIES = {
    "saved": saved(*drawn(FIRST)),
    "smaller": scaled(*drawn(FIRST), 0.7),
    "larger": scaled(*drawn(FIRST), 1.5),
    "turned": turned(*drawn(FIRST), 2),
    "turned back": turned(*drawn(FIRST), -2),
    "darker": (ImageEnhance.Brightness(drawn(FIRST)[0]).enhance(0.7), drawn(FIRST)[1]),
}


@pytest.mark.parametrize("kind", sorted(COPIES))
def test_a_copy_of_a_receipt_names_the_item_that_it_repeats(kind: str) -> None:
    own, fields = read(*COPIES[kind], FIRST)
    assert find_near_duplicate(own, fields, earlier()) == "item-1"


@pytest.mark.parametrize("lines", [OTHER_DAY, OTHER_TIME, OTHER_TOTAL])
def test_another_receipt_of_the_same_till_repeats_nothing(lines: list[str]) -> None:
    own, fields = read(*drawn(lines), lines)
    assert find_near_duplicate(own, fields, earlier()) is None


def test_the_first_of_several_is_named_and_a_day_that_was_not_read_contradicts_nothing() -> None:
    own, fields = read(*drawn(FIRST), FIRST)
    (item,) = earlier()
    again = replace(item, item_id="item-2")
    assert find_near_duplicate(own, replace(fields, date=None), (item, again)) == "item-1"
    assert find_near_duplicate(own, fields, (again, item)) == "item-2"


def test_a_print_survives_its_document_and_a_page_without_numbers_has_none() -> None:
    own, _ = read(*drawn(FIRST), FIRST)
    assert ScanPrint.from_document(own.as_document()) == own
    words = PageText((TextLine("HELLO", (5, 5, 60, 20), 1.0, 0),), ((80, 80),))
    page = DecodedScan("png", (Page(0, np.full((80, 80, 3), 255, np.uint8)),))
    assert new_scan_print(page, words) is None
    assert new_scan_print(page, PageText((), ((80, 80),))) is None
