"""Names and addresses as reading leaves them, and what their form proves about them."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.extract.merchant import normalized_address, normalized_name
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
