"""Labels: what the words beside an amount say, in several languages and with the reader's mistakes."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.labels import LabelKind, kind_of_label, opens_tax_summary

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


@pytest.mark.parametrize(
    ("kind", "label"), [(kind, label) for kind, labels in LABELS.items() for label in labels]
)
def test_a_label_says_what_its_amount_is(kind: LabelKind, label: str) -> None:
    assert kind_of_label(label) == kind


@pytest.mark.parametrize(
    "head", ["GST SUMMARY  AMOUNT(RM)  TAX(RM)", "Steuer %  Netto  Steuer  Brutto", "Tax Code  %"]
)
def test_heads_of_tax_tables_are_known(head: str) -> None:
    assert opens_tax_summary(head)
