"""Numbers of a shop that check themselves or each other; what is not printed proves nothing."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.features.dates import sold_at_night
from receipt_pipeline.chain.features.shop_numbers import read_places
from receipt_pipeline.chain.features_v3 import CONTRACT_V3, NEW_V3, admit_v3, compute_features_v3
from receipt_pipeline.chain.values import NO_PAGES
from receipt_pipeline_tests.printed_receipt import reading_of

JOHOR = "12 JALAN SATU, 81200 JOHOR BAHRU, JOHOR"


@pytest.mark.parametrize(
    ("printed", "odd"),
    [
        ("SHOP SDN BHD (1234567-M)", set()),
        ("SHOP SDN BHD (1234567-A)", {"register_odd"}),
        ("SHOP SDN BHD (234567-V)", set()),
        ("SHOP SDN BHD (234567 - K)", {"register_odd"}),
        ("ROOM 12345-B", set()),
        (JOHOR, set()),
        (JOHOR.replace("81200", "31200"), {"postcode_odd"}),
        ("68100 BATU CAVES, SELANGOR, WILAYAH PERSEKUTUAN", set()),
        (f"{JOHOR}|TEL: 07-5512345", set()),
        (f"{JOHOR}|TEL: 03-55123456", {"telephone_odd"}),
        (f"{JOHOR}|TEL: 07-551234", {"telephone_odd"}),
        (f"{JOHOR}|TEL: 012-5512345", set()),
        ("TEL: 03-55123456", set()),
        ("9556001234561 TEA", {"article_odd"}),
        ("9556001234568 TEA", set()),
    ],
)
def test_only_a_number_that_fails_its_own_check_is_odd(printed: str, odd: set[str]) -> None:
    found = asdict(read_places(printed.split("|")))
    assert {name for name, value in found.items() if value} == odd


@pytest.mark.parametrize(
    ("printed", "night"),
    [
        ("12:41", False),
        ("02:15:09", True),
        ("12:30 AM", True),
        ("12:30 PM", False),
        ("OPEN 10:00 TO 02:00", False),
    ],
)
def test_a_sale_at_night_is_seen_and_opening_hours_are_none(printed: str, night: bool) -> None:
    assert sold_at_night([printed]) is night


def test_the_third_contract_holds_the_second_and_admits_what_it_computes() -> None:
    reading = reading_of("SHOP SDN BHD (1234567-A)\nDATE: 14/03/2018 02:41\nTEA   RM 4.60\nTOTAL   RM 4.60\n")
    features = compute_features_v3(NO_PAGES, reading, extract_fields(reading))
    assert admit_v3(features) == ()
    assert list(features.values) == [bound.name for bound in CONTRACT_V3]
    assert {bound.name for _, bound in NEW_V3 if features.values[bound.name]} == {
        "register_odd",
        "time_at_night",
    }
