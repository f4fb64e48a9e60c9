"""A letter read for a currency mark, a digit for a letter of a name: repaired where print proves it."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.amounts import with_dollar_marks
from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.extract.merchant import with_letters_for_digits
from receipt_pipeline_tests.printed_receipt import reading_of

PRINTED = "RICE HOUSE\nSINGAPORE\nRice  $7.10\nTea  $1.10\n"


@pytest.mark.parametrize("total", ["S8.20", "$S8.20", "s8.20", "$8.20"])
def test_a_letter_in_the_place_of_the_mark_is_the_mark(total: str) -> None:
    fields = extract_fields(reading_of(f"{PRINTED}TOTAL  {total}\nCASH  $10.00"))
    assert fields.total is not None
    assert (fields.total.minor, fields.total.printed, fields.total.currency) == (820, "$8.20", "SGD")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("SHOP\nRice  7.10\nTOTAL  S8.20", id="no mark on the receipt"),
        pytest.param("SHOP\nRice  $7.10\nTOTAL  S8.20", id="one mark proves nothing"),
        pytest.param("SHOP\nA  $7.10\nB  $1.10\nC  S1.00\nD  S2.00\nTOTAL  S8.20", id="more letters"),
        pytest.param(f"{PRINTED}TOTAL  S820", id="a size or a code, no amount with cents"),
        pytest.param(f"{PRINTED}TOTAL  GS8.20", id="the end of a word"),
    ],
)
def test_a_letter_stays_one_without_proof(text: str) -> None:
    lines = reading_of(text).lines
    assert with_dollar_marks(lines) == lines


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


def test_digits_in_the_name_of_the_shop_are_repaired() -> None:
    page_text = reading_of("F00DICIOUS SDN BHD\nNO 1, JALAN MAWAR\n43000 KAJANG\nTOTAL  RM 9.00")
    assert extract_fields(page_text).merchant == "FOODICIOUS SDN BHD"
