"""Receipts of many countries and kinds, each as its own printed text, and what the chain reads in them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from receipt_pipeline.chain.extract.fields import extract_fields
from receipt_pipeline.chain.values import ReceiptFields
from receipt_pipeline_tests.printed_receipt import reading_of


@dataclass(frozen=True, slots=True)
class Printed:
    """One receipt's text (pages parted by a form feed), and what it says."""

    name: str
    text: str
    total_minor: int
    currency: str | None
    date: str | None = None
    payment: tuple[str, ...] = ()
    doubts: frozenset[str] = frozenset()


RECEIPTS = (
    Printed(
        "pounds",
        "TEA ROOM LTD\nLONDON\n05/04/2024 11:02\nScone  3.20\nTOTAL  £3.20\nCARD  £3.20",
        320, "GBP", "2024-04-05", ("card",),
    ),
    Printed(
        "month first",
        "ELM DINER\nSPRINGFIELD IL 62701\n05/04/2024\nSales Tax  $0.30\nTOTAL  $4.30\nVISA  $4.30",
        430, "USD", "2024-05-04", ("card",),
    ),
    Printed(
        "australian dollars",
        "CAFE PTY LTD\nABN 12\n05/04/2024\nTOTAL  $5.00\nEFTPOS  $5.00",
        500, "AUD", "2024-04-05", ("card",),
    ),
    Printed(
        "apostrophe thousands",
        "BERGLADEN AG\n12.03.2025\nTOTAL  CHF 1'234.50\nBAR  CHF 1'234.50",
        123450, "CHF", "2025-03-12", ("cash",),
    ),
    Printed(
        "space thousands and a month's name",
        "BOULANGERIE SARL\n14 juillet 2024\nTOTAL TTC  1 234,50 €\nCB  1 234,50 €",
        123450, "EUR", "2024-07-14", ("card",),
    ),
    Printed(
        "decimal comma and change",
        "WALDCAFE GMBH\n01.02.24 09:15\nSUMME EUR  2,80\nGegeben Bar EUR  5,00\nRueckgeld EUR  2,20",
        280, "EUR", "2024-02-01", ("cash",),
    ),
    Printed("currency behind", "KAUPPA\nTOTAL  12.50 EUR", 1250, "EUR"),
    Printed(
        "zlotys", "SKLEP\n2024-05-06\nSUMA PLN  4,50\nGOTOWKA  4,50", 450, "PLN", "2024-05-06", ("cash",),
    ),
    Printed("year first with stops", "BOLT\n2024.05.06.\nOSSZESEN  850 Ft", 85000, "HUF", "2024-05-06"),
    Printed(
        "yen have no cents",
        "SHOP\n2024/03/05\nTOTAL  ¥1,480\nCASH  ¥2,000\nCHANGE  ¥520",
        1480, "JPY", "2024-03-05", ("cash",),
    ),
    Printed("won have no cents", "MART\n2024-03-05\nTOTAL  ₩12,500", 12500, "KRW", "2024-03-05"),
    Printed(
        "dong behind, order unknown", "QUAN AN\n05/03/2024\nTOTAL  45.000 ₫", 45000, "VND",
        doubts=frozenset({"date"}),
    ),
    Printed(
        "rupiah are printed whole",
        "WARUNG\n05-03-2024\nTOTAL  Rp 25.000\nTUNAI  Rp 50.000\nKEMBALI  Rp 25.000",
        2500000, "IDR", "2024-03-05", ("cash",),
    ),
    Printed("dinars have three decimals", "BAKALA\n2024-05-06\nTOTAL  KWD 1.250", 1250, "KWD", "2024-05-06"),
    Printed(
        "buddhist year",
        "CAFE THAILAND\n15/03/2567\nTOTAL  ฿65.00\nCASH  ฿100.00\nCHANGE  ฿35.00",
        6500, "THB", "2024-03-15", ("cash",),
    ),
    Printed("short buddhist year", "CAFE THAILAND\n15/03/67\nTOTAL  ฿65.00", 6500, "THB", "2024-03-15"),
    Printed("buddhist year, month's name", "CAFE\n15 MAR 2567\nTOTAL  65.00 BAHT", 6500, "THB", "2024-03-15"),
    Printed("short common year", "KEDAI SDN BHD\n18/05/18\nTOTAL  RM 2.00", 200, "MYR", "2018-05-18"),
    Printed(
        "order told by another date",
        "SHOP\n03/04/2025\nVALID UNTIL 04/28/2025\nTOTAL  $2.00",
        200, "USD", "2025-03-04",
    ),
    Printed("a day that never was", "SHOP\n30.02.2024\nTOTAL EUR  1.00", 100, "EUR"),
    Printed(
        "refund",
        "SHOP\n2024-05-06\nRETURN  -12.50\nTOTAL  GBP -12.50\nREFUND TO CARD  12.50",
        -1250, "GBP", "2024-05-06", ("card",),
    ),
    Printed("minus behind", "LADEN\nTOTAL  EUR 12,50-", -1250, "EUR"),
    Printed("minus as brackets", "SHOP\nTOTAL  USD (12.50)", -1250, "USD"),
    Printed(
        "printed tip",
        "DINER\nSUBTOTAL  USD 20.00\nTIP  USD 3.00\nTOTAL  USD 23.00\nVISA  USD 23.00",
        2300, "USD", payment=("card",),
    ),
    Printed(
        "open tip line", "DINER\nTOTAL  USD 20.00\nTIP\nTOTAL", 2000, "USD", doubts=frozenset({"total"}),
    ),
    Printed(
        "voucher and cash",
        "SHOP\nBread  RM 10.00\nTOTAL  RM 10.00\nVOUCHER  RM 5.00\nCASH  RM 5.00",
        1000, "MYR", payment=("voucher", "cash"),
    ),
    Printed("wallet", "KEDAI\nTOTAL  RM 10.00\nE-WALLET  RM 10.00", 1000, "MYR", payment=("wallet",)),
    Printed("said in words", "KEDAI\nTOTAL  RM 9.00\nPAYMENT TYPE: CASH", 900, "MYR", payment=("cash",)),
    Printed("nothing to pay", "KEDAI\nBread  RM 5.00\nDISCOUNT  RM -5.00\nTOTAL  RM 0.00", 0, "MYR"),
    Printed(
        "cash rounding",
        "KEDAI\nTOTAL  RM 9.98\nROUNDING  RM 0.02\nNET TOTAL  RM 10.00\nCASH  RM 10.00",
        1000, "MYR", payment=("cash",),
    ),
    Printed(
        "goods with a tax column",
        "KEDAI\nDescription  Quantity  Amount  Tax\nReload  1  RM 29.50  ES\nTotal  RM 30.00\n"
        "GST Summary  Amount  GST\nSR  RM 0.50  RM 0.00\nCash  RM 30.00",
        3000, "MYR", payment=("cash",),
    ),
    Printed(
        "pages that count themselves",
        "SHOP\nPAGE 1 OF 2\nBread  2.00\nCARRIED FORWARD  2.00\fPAGE 2 OF 2\nMilk  1.00\nTOTAL EUR  3.00",
        300, "EUR",
    ),
    Printed("a blank back side", "SHOP\n2024-05-06\nTOTAL EUR  3.00\f", 300, "EUR", "2024-05-06"),
    Printed(
        "two receipts in one file",
        "SHOP A\n2024-05-06\nTOTAL EUR  3.00\fSHOP B\n2024-05-07\nTOTAL EUR  4.00",
        400, "EUR", "2024-05-06", doubts=frozenset({"several"}),
    ),
    Printed(
        "simplified chinese",
        "东方小吃店\n2025-03-14 12:01\n牛肉面  ¥18.00\n小计  ¥28.00\n合计：¥26.00\n现金：30.00\n找零  4.00",
        2600, "CNY", "2025-03-14",
    ),
    Printed("yuan behind", "东方小吃店\n共2件\n合 计  26.00元\n实收  30.00元", 2600, "CNY"),
    Printed(
        "traditional chinese",
        "茶餐廳\nHONG KONG\n小計  HK$120.00\n總計HK$128.00\n現金HK$130.00",
        12800, "HKD",
    ),
    Printed(
        "japanese",
        "東屋\n2025/03/14\nお茶  ¥300\n小計  ¥300\n消費税  ¥30\n合計  ¥330\nお預り  ¥500\nお釣り  ¥170",
        330, "JPY", "2025-03-14",
    ),
    Printed("tax inside", "東屋\n小計 300円\n合計(税込)330円\n現金500円\nお釣170円", 330, "JPY"),
    Printed(
        "korean", "분식\n소계 9,000원\n부가세 900원\n합계 9,900원\n현금 10,000원\n거스름돈 100원",
        9900, "KRW",
    ),
    Printed(
        "lakhs with paise",
        "GOLD HOUSE\nDELHI\n05/04/2024\nChain  1,23,456.00\nTOTAL  ₹1,23,456.00\nCARD  ₹1,23,456.00",
        12345600, "INR", "2024-04-05", ("card",),
    ),
    Printed("lakhs of rupees", "GOLD HOUSE\nTOTAL  Rs. 12,34,567", 123456700, "INR"),
    Printed("two chinese words for pieces", "店\n数量合计  3\n总计  ¥12.00", 1200, "CNY"),
)  # fmt: skip


def doubts_of(fields: ReceiptFields) -> frozenset[str]:
    found = {
        "total": fields.total is not None and fields.total.ambiguous,
        "date": fields.date is not None and fields.date.ambiguous,
        "several": fields.several_receipts,
    }
    return frozenset(name for name, doubtful in found.items() if doubtful)


@pytest.mark.parametrize("printed", [pytest.param(printed, id=printed.name) for printed in RECEIPTS])
def test_a_receipt_is_read_as_it_is_printed(printed: Printed) -> None:
    fields = extract_fields(reading_of(*printed.text.split("\f")))
    assert fields.total is not None
    assert (fields.total.minor, fields.currency) == (printed.total_minor, printed.currency)
    assert (fields.date.iso if fields.date else None) == printed.date
    assert fields.payment == printed.payment
    assert doubts_of(fields) == printed.doubts


def test_sums_named_in_chinese_are_sorted_by_what_they_are() -> None:
    chinese = next(one for one in RECEIPTS if one.name == "simplified chinese")
    fields = extract_fields(reading_of(chinese.text))
    assert [amount.minor for amount in (fields.subtotal, fields.cash, fields.change) if amount] == [2800, 3000, 400]


def test_the_payment_is_part_of_the_document_where_it_is_told() -> None:
    told = extract_fields(reading_of("KEDAI\nTOTAL  RM 9.00\nCASH  RM 9.00"))
    assert told.as_document()["payment"] == ["cash"]
    assert "payment" not in extract_fields(reading_of("KEDAI\nTOTAL  RM 9.00")).as_document()
