"""Numbers of a shop that check themselves or each other; what is not printed proves nothing."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from receipt_pipeline.chain.features.dates import is_sold_at_night
from receipt_pipeline.chain.features.shop_numbers import read_shop_numbers

JOHOR = "12 JALAN SATU, 81200 JOHOR BAHRU, JOHOR"


@pytest.mark.parametrize(
    ("printed", "invalid"),
    [
        ("SHOP SDN BHD (1234567-M)", set()),
        ("SHOP SDN BHD (1234567-A)", {"register_invalid"}),
        ("SHOP SDN BHD (234567-V)", set()),
        ("SHOP SDN BHD (234567 - K)", {"register_invalid"}),
        ("ROOM 12345-B", set()),
        (JOHOR, set()),
        (JOHOR.replace("81200", "31200"), {"postcode_invalid"}),
        ("68100 BATU CAVES, SELANGOR, WILAYAH PERSEKUTUAN", set()),
        (f"{JOHOR}|TEL: 07-5512345", set()),
        (f"{JOHOR}|TEL: 03-55123456", {"telephone_invalid"}),
        (f"{JOHOR}|TEL: 07-551234", {"telephone_invalid"}),
        (f"{JOHOR}|TEL: 012-5512345", set()),
        ("TEL: 03-55123456", set()),
        ("9556001234561 TEA", {"article_invalid"}),
        ("9556001234568 TEA", set()),
    ],
)
def test_only_a_number_that_fails_its_own_check_is_invalid(printed: str, invalid: set[str]) -> None:
    found = asdict(read_shop_numbers(printed.split("|")))
    assert {name for name, value in found.items() if value} == invalid


@pytest.mark.parametrize(
    ("printed", "night"),
    [("12:41", False), ("02:15:09", True), ("12:30 AM", True), ("12:30 PM", False), ("OPEN 10:00 TO 02:00", False)],
)
def test_a_sale_at_night_is_seen_and_opening_hours_are_none(printed: str, night: bool) -> None:
    assert is_sold_at_night([printed]) is night
