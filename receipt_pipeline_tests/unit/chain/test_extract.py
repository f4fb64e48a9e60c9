"""Extraction from perfect readings: totals, sums, refunds, pages and everything that must stay in doubt."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.extract.rows import build_rows
from receipt_pipeline.chain.values import PageText, ReceiptFields, TextLine
from receipt_pipeline_tests.printed_receipt import reading_of

MALAYSIAN = """
BEISPIEL MAJU SDN BHD (123456-X)
NO 5, JALAN CONTOH 3/2,
47000 SUNGAI BULOH, SELANGOR.
TEL: 03-1234 5678
TAX INVOICE
DATE : 03/04/2018 14:21
Nasi lemak            1     8.20
Teh tarik             2     5.81
TOTAL SALES INCLUSIVE GST  14.01
ROUNDING ADJ               -0.01
TOTAL                   RM 14.00
CASH                    RM 20.00
CHANGE                  RM  6.00
GST SUMMARY  AMOUNT(RM)  TAX(RM)
SR = 6%          13.22     0.79
TOTAL            13.22     0.79
"""


def fields_of(*pages: str) -> ReceiptFields:
    return extract_fields(reading_of(*pages))


def the_total(*pages: str) -> tuple[int, str | None, bool]:
    total = fields_of(*pages).total
    assert total is not None
    return total.minor, total.currency, total.ambiguous


def test_a_whole_receipt_gives_all_its_fields() -> None:
    fields = fields_of(MALAYSIAN)
    assert fields.merchant == "BEISPIEL MAJU SDN BHD"
    assert fields.address == "NO 5, JALAN CONTOH 3/2, 47000 SUNGAI BULOH, SELANGOR."
    assert fields.currency == "MYR"
    assert not fields.several_receipts
    document = fields.as_document()
    assert document["date"] == {"iso": "2018-04-03", "ambiguous": False, "printed": "03/04/2018"}
    assert document["total"] == {"minor": 1400, "currency": "MYR", "printed": "RM 14.00"}
    assert document["rounding"]["minor"] == -1
    assert document["cash"]["minor"] == 2000
    assert document["change"]["minor"] == 600
    assert document["line_amounts_minor"] == [820, 581]


def test_the_same_reading_gives_the_same_fields() -> None:
    assert fields_of(MALAYSIAN) == fields_of(MALAYSIAN)


def test_a_reading_without_text_has_no_fields() -> None:
    assert extract_fields(PageText((), ((100, 100),))) == ReceiptFields()


def test_cash_change_and_subtotal_are_never_the_total() -> None:
    fields = fields_of("DINER\nSUBTOTAL  18.20\nTAX 8%  1.46\nTOTAL USD  19.66\nCASH  50.00\nCHANGE  30.34")
    assert fields.total is not None
    assert fields.subtotal is not None
    assert fields.tax is not None
    assert (fields.total.minor, fields.subtotal.minor, fields.tax.minor) == (1966, 1820, 146)


@pytest.mark.parametrize(
    "text", ["SHOP\nSUBTOTAL  18.20\nCASH  50.00", "SHOP\nApples  3.00\nPears  2.00", "MASTER CARD  12.00"]
)
def test_without_a_total_none_is_made_up(text: str) -> None:
    assert fields_of(text).total is None


def test_cash_less_change_is_taken_when_it_is_printed_but_the_label_was_lost() -> None:
    fields = fields_of("SHOP\nApples  3.00\nPears  2.00\nTQTXX  5.00\nCASH  10.00\nCHANGE  5.00")
    assert fields.total is not None
    assert fields.total.minor == 500


def test_a_refund_keeps_its_sign() -> None:
    assert the_total("MODE\nJacke  -39,95\nSUMME EUR  -39,95\nRueckzahlung bar  39,95") == (-3995, "EUR", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SHOP\nWare  1.037,45\nGESAMT EUR  1.234,56", (123456, "EUR", False)),
        ("SHOP\nGoods  1,037.45\nGRAND TOTAL USD  1,234.56", (123456, "USD", False)),
        ("SHOP\nKOKKU  40,00 $", (4000, "USD", False)),
        ("SHOP\nTOTAL ¥1,234", (1234, "JPY", False)),
        ("SHOP\nNasi  Rp 25.000\nTOTAL  Rp 25.000", (2500000, "IDR", False)),
        ("SHOP\nTOTAL  12.00", (1200, None, False)),
        ("SHOP\nLamp  1.234\nTOTAL  1.234", (123400, None, True)),
        ("SHOP\nTOTAL  2210", (221000, None, True)),
    ],
)
def test_totals_of_many_countries(text: str, expected: tuple[int, str | None, bool]) -> None:
    assert the_total(text) == expected


def test_a_total_that_lost_its_decimal_mark_takes_the_reading_of_the_amount_paid() -> None:
    assert the_total("SHOP\nCement  6.00\nTOTAL INCL GST  600\nPAYMENT  6.00\nCHANGE  0.00")[0] == 600


def test_a_total_without_cents_among_amounts_with_cents_is_in_doubt() -> None:
    assert the_total("SHOP\nBread  RM22.10\nTOTAL  RM2210") == (2210, "MYR", False)
    assert the_total("SHOP\nBread  RM1.05\nTOTAL  RM2210") == (221000, "MYR", True)
    assert the_total("SHOP\nBread  RM30\nTOTAL  RM30") == (3000, "MYR", False)


def test_a_price_each_is_no_line_amount() -> None:
    fields = fields_of("SHOP\nMilk  RM13.58 S\n@2 X RM 6.79\nTOTAL  RM13.58")
    assert [amount.minor for amount in fields.line_amounts] == [1358]


def test_a_sum_in_a_tax_table_is_not_the_total() -> None:
    text = "SHOP\nApples  5.30\nGST SUMMARY  AMOUNT  TAX\nSR = 6%  5.00  0.30\nTOTAL  5.00  0.30"
    assert fields_of(text).total is None


def test_the_amount_beside_a_label_that_slid_down_is_found() -> None:
    lines = (
        TextLine("SHOP", (10, 0, 60, 20), 0.99, 0),
        TextLine("TOTAL EUR", (10, 40, 100, 60), 0.99, 0),
        TextLine("7.50", (300, 54, 340, 74), 0.97, 0),
    )
    total = extract_fields(PageText(lines, ((400, 100),))).total
    assert total is not None
    assert (total.minor, total.currency, total.confidence) == (750, "EUR", 0.97)


def test_a_page_slightly_askew_keeps_labels_and_amounts_together() -> None:
    lines = tuple(
        TextLine(text, (left, top + left // 20, left + 60, top + left // 20 + 20), 0.99, 0)
        for top in range(0, 120, 24)
        for left, text in ((0, f"label {top}"), (400, f"{top}.00"))
    )
    rows = build_rows(PageText(lines, ((500, 200),)))
    assert [row.text for row in rows] == [f"label {top} {top}.00" for top in range(0, 120, 24)]


def test_a_sum_carried_over_pages_is_one_receipt_and_not_its_total() -> None:
    fields = fields_of(
        "GARDEN\n2026-09-30  page 1/2\nItem 01  5.21\nCARRY OVER  52.10",
        "page 2/2\nBROUGHT FORWARD  52.10\nBag  3.35\nTOTAL EUR  55.45",
    )
    assert fields.total is not None
    assert fields.total.minor == 5545
    assert not fields.several_receipts


def test_a_blank_first_page_changes_nothing() -> None:
    fields = fields_of("", "BUS STATION\n2026-10-01\nTicket  21.00\nTOTAL EUR  21.00")
    assert fields.total is not None
    assert fields.total.minor == 2100
    assert not fields.several_receipts


def test_two_receipts_on_two_pages_are_several() -> None:
    one = "SHOP ONE\n2026-10-02\nSoup  9.20\nTOTAL EUR  9.20"
    other = "SHOP TWO\n2026-10-03\nBook  14.05\nTOTAL EUR  14.05"
    assert fields_of(one, other).several_receipts
    assert not fields_of(one, one).several_receipts


def test_two_receipts_one_above_the_other_are_several() -> None:
    stacked = (
        "SHOP ABOVE\n2026-10-02\nSoup  9.20\nTOTAL EUR  9.20\n\n\nSHOP BELOW\n2026-10-03\nBook  14.05\nTOTAL EUR  14.05"
    )
    assert fields_of(stacked).several_receipts


def test_a_date_between_total_and_payment_does_not_make_two_receipts() -> None:
    assert not fields_of("SHOP\n2026-10-02\nSoup  9.20\nTOTAL  9.20\nclosed 2026-10-02\nCASH  9.20").several_receipts


def test_an_open_tip_line_puts_the_printed_total_in_doubt() -> None:
    assert the_total("GRILL\nMenu  30.00\nTOTAL USD  30.00\nGratuity:  ____\nSum:  ____") == (3000, "USD", True)


def test_a_tip_and_sum_by_hand_are_taken_but_stay_in_doubt() -> None:
    fields = fields_of("GRILL\nMenu  30.00\nTOTAL USD  30.00\nGratuity:\nSum:\n5.00\n35.00")
    assert fields.total is not None
    assert fields.tip is not None
    assert (fields.total.minor, fields.total.ambiguous, fields.tip.minor) == (3500, True, 500)


@pytest.mark.parametrize(
    ("head", "merchant"),
    [
        ("TAX INVOICE\nCONTOH TRADING SDN BHD (99999-A)\nNO 1, JALAN SATU", "CONTOH TRADING SDN BHD"),
        ("BEISPIEL\nRESTAURANT SDN BHD\nNO 1, JALAN SATU", "BEISPIEL RESTAURANT SDN BHD"),
        ("BEISPIEL HARDWARE\nENTERPRISE (SETIA\nALAM) SDN BHD", "BEISPIEL HARDWARE ENTERPRISE (SETIA ALAM) SDN BHD"),
        ("RESTAURANT BEISPIEL\nBEISPIEL HOUSE\n13, JLN TASIK", "RESTAURANT BEISPIEL BEISPIEL HOUSE"),
        ("BAECKEREI BEISPIEL\nDatum: 12.03.2025", "BAECKEREI BEISPIEL"),
        ("CONTOH MART S/B 273500-U (KJ1)\nNO. 20-A1, JALAN SS6/3", "CONTOH MART S/B"),
    ],
)
def test_the_shop_is_named_by_its_head(head: str, merchant: str) -> None:
    assert fields_of(head + "\nApples  3.00\nTOTAL  3.00").merchant == merchant


def test_an_address_ends_before_telephone_branch_and_title() -> None:
    head = "CONTOH SDN BHD\nLOT 276 JALAN BANTING\n43800 DENGKIL, SELANGOR\nTEL: 03-1\n"
    assert fields_of(head + "TOTAL  1.00").address == "LOT 276 JALAN BANTING 43800 DENGKIL, SELANGOR"
    head = "CONTOH SDN BHD\nNO 8, JALAN 7/118B,\n56000 KUALA LUMPUR\n(KEPONG)\nTAX INVOICE\n"
    assert fields_of(head + "TOTAL  1.00").address == "NO 8, JALAN 7/118B, 56000 KUALA LUMPUR"
