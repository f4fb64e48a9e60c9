"""Names, addresses and marks as they are read, repaired where the print proves it."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.amounts import with_dollar_marks
from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.extract.merchant import normalized_address, normalized_name, with_letters_for_digits
from receipt_pipeline_tests.printed_receipt import reading_of


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        ("LUMBUNG (M SDN BHD", "LUMBUNG (M) SDN BHD"),
        ("TIN WHISTLE. SDN BHD", "TIN WHISTLE SDN BHD"),
        ("TIN WHISTLE- SDN BHD", "TIN WHISTLE SDN BHD"),
        ("TIN WHISTLE ENTERPISE", "TIN WHISTLE ENTERPRISE"),
        ("OLD KILN BOOKSTORES", "OLD KILN BOOKSTORES"),
        ("OLD_KILN TRADING", "OLD KILN TRADING"),
        ("A.1.B. HARDWARE", "A.I.B. HARDWARE"),
        ("K.0.P ENTERPRISE", "K.O.P ENTERPRISE"),
        ("TIN WHISTLE· SDN BHD", "TIN WHISTLE SDN BHD"),
        ("LUMBUNG (M) SDN BHD E0118-A)", "LUMBUNG (M) SDN BHD"),
        ("H.K. MOTOR ( (SUNGAI) SDN BHD", "H.K. MOTOR (SUNGAI) SDN BHD"),
        ("TEH & CO. LTD", "TEH & CO. LTD"),
        ("CAFE 1.0 BAR", "CAFE 1.0 BAR"),
        ("SETIA (SHAH ALAM) SDN BHD", "SETIA (SHAH ALAM) SDN BHD"),
    ],
)
def test_a_name_is_repaired_where_its_form_proves_it(read: str, meant: str) -> None:
    assert normalized_name(read) == meant


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        ("JALAN KENANGA, 43000KAJANG", "JALAN KENANGA, 43000 KAJANG"),
        ("14JALAN MAWAR 2", "14 JALAN MAWAR 2"),
        ("KUALA L.UMPUR", "KUALA LUMPUR"),
        ("Kawasan Perindustrlan, 41000 Klang", "Kawasan Perindustrian, 41000 Klang"),
        ("KAWASAN PERINDUSTRN, 41000 KLANG", "KAWASAN PERINDUSTRN, 41000 KLANG"),
        ("PETALING JAYA.SELANGOR", "PETALING JAYA,SELANGOR"),
        ("NO 1: JLN MELATI 4", "NO 1, JLN MELATI 4"),
        ("LOT P.T, 331, BATU 4", "LOT P.T. 331, BATU 4"),
        ("12, JALAN INTAN, TAMAN DAMAI,81200 JOHOR BAHRU", "12, JALAN INTAN, TAMAN DAMAI, 81200 JOHOR BAHRU"),
        ("12,JALAN INTAN,TAMAN DAMAI, KLANG", "12,JALAN INTAN,TAMAN DAMAI, KLANG"),
        ("NO 29O, JALAN INTAN", "NO 290, JALAN INTAN"),
        ("NO.12-1, JALAN SS 6/5B", "NO.12-1, JALAN SS 6/5B"),
        ("LOT NO : 20, LEVEL UG1", "LOT NO : 20, LEVEL UG1"),
        ("3RD FLOOR, 10115 BERLIN", "3RD FLOOR, 10115 BERLIN"),
        ("MUEHLENWEG 4 10115 BERLIN", "MUEHLENWEG 4 10115 BERLIN"),
    ],
)
def test_an_address_is_repaired_where_its_form_proves_it(read: str, meant: str) -> None:
    assert normalized_address(read) == meant


HANDWRITTEN_ABOVE = """
Ali Caterer
PAPER LANTERN
(1365663-P)
12, JALAN KENANGA 3/4,
43000 KAJANG, SELANGOR
TOTAL  RM 2.00
"""


def test_the_line_above_a_bare_company_number_is_the_name() -> None:
    assert extract_fields(reading_of(HANDWRITTEN_ABOVE)).merchant == "PAPER LANTERN"


def test_a_branch_is_no_part_of_an_address_that_repeats_its_place() -> None:
    head = "OLD KILN SDN BHD\nBANDAR BARU MAWAR\nNO 15 JALAN INTAN 10\nBANDAR BARU MAWAR"
    text = head + "\nTEL: 03-123\nTOTAL  RM 2.00"
    assert extract_fields(reading_of(text)).address == "NO 15 JALAN INTAN 10 BANDAR BARU MAWAR"


def test_the_number_and_name_of_a_branch_close_an_address() -> None:
    head = "OLD KILN SDN BHD\nLOT 12, JALAN INTAN\n42100 KLANG, SELANGOR\n1174-PERMATA HILL"
    text = head + "\nGST NO 0001\nTOTAL  RM 2.00"
    address = extract_fields(reading_of(text)).address
    assert address == "LOT 12, JALAN INTAN 42100 KLANG, SELANGOR 1174-PERMATA HILL"


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
