"""Labels, dates, and several receipts in one picture."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.dates import choose_date, find_dates
from receipt_pipeline.chain.extract.fields import extract_fields, split_columns
from receipt_pipeline.chain.extract.labels import LabelKind, kind_of_label, opens_tax_summary
from receipt_pipeline.chain.extract.rows import build_rows
from receipt_pipeline.chain.values import ReadDate
from receipt_pipeline_tests.printed_receipt import reading_of

LABELS = {
    LabelKind.TOTAL: [
        "TOTAL:",
        "Total (RM)",
        "T0TAL EUR",
        "K0KKU",
        "SUMME EUR",
        "Jumlah",
        "TOTAL AMOUNT",
        "Gesantbetrag",
    ],
    LabelKind.TOTAL_BY_PART: ["TOTAL SALES INCLUSIVE GST @6.00%", "Total Include GST", "TOTAL INCL. GST@6%"],
    LabelKind.GRAND_TOTAL: [
        "GRAND TOTAL USD",
        "AMOUNT TO BE PAID :",
        "BALANCE DUE",
        "TOTAL ROUNDED",
        "Zu zahlen",
        "Due",
    ],
    LabelKind.SUBTOTAL: [
        "Sub-Total",
        "SUBTOTAL",
        "Zwischensumme",
        "TOTAL (EXCLUDING GST)",
        "Sub Total before discount",
    ],
    LabelKind.CASH: ["CASH", "Geg. BAR", "Tunai", "VISA", "Rueckzahlung bar", "Cash tendered"],
    LabelKind.CHANGE: ["CHANGE DUE", "Rückgeld BAR", "Baki", "Wechselgeld"],
    LabelKind.TAX: ["MwSt 19%", "TAX 8%", "TOTAL GST", "TOTAL INCLUDES 6% GST", "GST PAYABLE"],
    LabelKind.ROUNDING: ["ROUNDING ADJ", "Rounding Adjustrnent:", "Bundaran", "Total Rounding"],
    LabelKind.COUNT: ["TOTAL QTY: 25", "Totel Oty", "ITEM COUNT 3", "Item(s) : 1", "No of items"],
    LabelKind.DISCOUNT: ["TOTAL SAVING", "Total Item Discount", "Rabatt", "Card Savings"],
    LabelKind.CARRY: ["CARRY OVER", "CARRYOVER", "BROUGHT FORWARD", "Übertrag"],
    LabelKind.TIP: ["Gratuity:", "TIP", "Trinkgeld"],
    LabelKind.SERVICE: ["Service Charge 10%"],
    LabelKind.OTHER: ["Charge", "Kaffee", "Posters", "Summer dress", "Item 01"],
}


@pytest.mark.parametrize(("kind", "label"), [(kind, label) for kind, labels in LABELS.items() for label in labels])
def test_a_label_says_what_its_amount_is(kind: LabelKind, label: str) -> None:
    assert kind_of_label(label) == kind


@pytest.mark.parametrize("head", ["GST SUMMARY  AMOUNT(RM)  TAX(RM)", "Steuer %  Netto  Steuer  Brutto", "Tax Code  %"])
def test_heads_of_tax_tables_are_known(head: str) -> None:
    assert opens_tax_summary(head)


def the_date(text: str, *, day_first: bool | None = None) -> ReadDate | None:
    return choose_date(find_dates(build_rows(reading_of(text))), country_day_first=day_first)


@pytest.mark.parametrize(
    ("text", "printed", "iso"),
    [
        ("2026-10-14 12:20", "2026-10-14", "2026-10-14"),
        ("2026-10-1412:20", "2026-10-14", "2026-10-14"),
        ("2016/05/01", "2016/05/01", "2016-05-01"),
        ("30/03/2018 13:01", "30/03/2018", "2018-03-30"),
        ("DATE:24/07/201614:21", "24/07/2016", "2016-07-24"),
        ("30-06-16", "30-06-16", "2016-06-30"),
        ("7/30/2012", "7/30/2012", "2012-07-30"),
        ("12.03.2025", "12.03.2025", "2025-03-12"),
        ("04 JAN 2017", "04 JAN 2017", "2017-01-04"),
        ("14/MAY/2017", "14/MAY/2017", "2017-05-14"),
        ("3. März 2024", "3. März 2024", "2024-03-03"),
        ("March 5, 2021", "March 5, 2021", "2021-03-05"),
        ("5th Oct 2020", "5th Oct 2020", "2020-10-05"),
        ("Date 20/02V2018", "20/02/2018", "2018-02-20"),
        ("2025年3月12日", "2025年3月12日", "2025-03-12"),
        ("05/05/2018", "05/05/2018", "2018-05-05"),
    ],
)
def test_a_date_that_can_be_read_one_way_is_read(text: str, printed: str, iso: str) -> None:
    assert the_date(text) == ReadDate(printed, iso, ambiguous=False)


def test_two_small_numbers_without_a_hint_are_ambiguous_and_kept_as_printed() -> None:
    assert the_date("03/04/2025") == ReadDate("03/04/2025", None, ambiguous=True)


def test_the_country_settles_the_order() -> None:
    assert the_date("03/04/2025", day_first=True) == ReadDate("03/04/2025", "2025-04-03", ambiguous=False)
    assert the_date("03/04/2025", day_first=False) == ReadDate("03/04/2025", "2025-03-04", ambiguous=False)


def test_another_date_of_the_receipt_settles_the_order() -> None:
    read = the_date("DATE 03/04/2025\nvalid until 28/04/2025")
    assert read == ReadDate("03/04/2025", "2025-04-03", ambiguous=False)


def test_dotted_dates_are_day_first_whatever_the_country() -> None:
    assert the_date("02.03.2024", day_first=False) == ReadDate("02.03.2024", "2024-03-02", ambiguous=False)


def test_the_labelled_date_wins_over_others() -> None:
    read = the_date("Printed 01/02/2020\nDate: 15/03/2020 10:30\nReturn by 30/04/2020")
    assert read is not None
    assert read.iso == "2020-03-15"


@pytest.mark.parametrize("text", ["31/02/2018 x", "99/99/2018", "1-300-80-2366", "Tel 03-7880 5750", "no date at all"])
def test_numbers_that_are_no_day_are_no_date(text: str) -> None:
    assert the_date(text) is None


LEFT = ("TEA ROOM LTD", "LONDON", "05/04/2024", "Scone  3.20", "TOTAL  3.20", "CARD  3.20")
RIGHT = ("OLD KILN LTD", "LEEDS", "06/04/2024", "Bread  4.10", "TOTAL  4.10", "CARD  4.10")


def beside(left: tuple[str, ...], right: tuple[str, ...], *, gap: int = 12) -> str:
    width = max(map(len, left)) + gap
    return "\n".join(f"{one:<{width}}{other}" for one, other in zip(left, right, strict=True))


def test_two_receipts_side_by_side_are_several() -> None:
    page_text = reading_of(beside(LEFT, RIGHT))
    assert [len(column.lines) for column in split_columns(page_text)] == [9, 9]
    assert extract_fields(page_text).several_receipts


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\n".join(LEFT), id="one receipt"),
        pytest.param(
            "TEA ROOM\n05/04/2024\nScone            3.20\nBread            1.00\nMilk             1.00\n"
            "TOTAL            5.20\nCASH             5.20",
            id="amounts in a column",
        ),
        pytest.param(
            beside(LEFT, ("GOODS SOLD", "ARE NOT", "RETURNABLE", "THANK YOU", "COME AGAIN", "BYE BYE")),
            id="a text beside a receipt",
        ),
        pytest.param(beside(LEFT, RIGHT, gap=1), id="no room between"),
        pytest.param(f"{beside(LEFT, RIGHT)}\nTHE TOWN SQUARE, NOT FAR FROM HERE", id="crossed"),
        pytest.param("", id="nothing read"),
    ],
)
def test_one_receipt_is_never_taken_for_two(text: str) -> None:
    assert not extract_fields(reading_of(text)).several_receipts
