"""A letter read for the mark of a currency, a digit for a letter of a name: mended where print proves it."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.extract.merchant import with_letters_for_digits
from receipt_pipeline.chain.extract_rules import RULES_V3, RULES_V4
from receipt_pipeline_tests.printed_receipt import reading_of

PRINTED = "RICE HOUSE\nSINGAPORE\nRice  $7.10\nTea  $1.10\n"


@pytest.mark.parametrize("total", ["S8.20", "$S8.20", "s8.20", "$8.20"])
def test_a_letter_in_the_place_of_the_mark_is_the_mark(total: str) -> None:
    fields = extract_fields(reading_of(f"{PRINTED}TOTAL  {total}\nCASH  $10.00"), RULES_V4)
    assert fields.total is not None
    assert (fields.total.minor, fields.total.printed, fields.total.currency) == (820, "$8.20", "SGD")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SHOP\nRice  7.10\nTOTAL  S8.20", "no mark on the receipt"),
        ("SHOP\nRice  $7.10\nTOTAL  S8.20", "one mark proves nothing"),
        ("SHOP\nA  $7.10\nB  $1.10\nC  S1.00\nD  S2.00\nTOTAL  S8.20", "more letters than marks"),
        (f"{PRINTED}TOTAL  S820", "a size or a code, no amount with cents"),
        (f"{PRINTED}TOTAL  GS8.20", "the end of a word"),
    ],
)
def test_a_letter_stays_one_without_proof(text: str, why: str) -> None:
    reading = reading_of(text)
    assert extract_fields(reading, RULES_V4) == extract_fields(reading, RULES_V3), why


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        ("KMF F00DICIOUS SDN BHD", "KMF FOODICIOUS SDN BHD"),
        ("G0lden Rose", "Golden Rose"),
        ("GOLDEN RE5TAURANT", "GOLDEN RESTAURANT"),
        ("99 MART S/8", "99 MART S/B"),
        ("99 MART 5/8", "99 MART S/B"),
        ("99 MART 5/B", "99 MART S/B"),
        # A digit that belongs to the name.
        ("7ELEVEN", "7ELEVEN"),
        ("B2B TRADING", "B2B TRADING"),
        ("STUDIO54", "STUDIO54"),
        ("1UTAMA", "1UTAMA"),
        ("M0Z", "M0Z"),
        ("H2O0 CAFE", "H2O0 CAFE"),
        ("KEDAI 5/87", "KEDAI 5/87"),
        ("LOT 1/8/8", "LOT 1/8/8"),
    ],
)
def test_a_digit_inside_a_word_is_the_letter_it_looks_like(read: str, meant: str) -> None:
    assert with_letters_for_digits(read) == meant


def test_the_third_chain_leaves_digits_in_names() -> None:
    reading = reading_of("F00DICIOUS SDN BHD\nNO 1, JALAN MAWAR\n43000 KAJANG\nTOTAL  RM 9.00")
    assert [extract_fields(reading, rules).merchant for rules in (RULES_V3, RULES_V4)] == [
        "F00DICIOUS SDN BHD",
        "FOODICIOUS SDN BHD",
    ]
