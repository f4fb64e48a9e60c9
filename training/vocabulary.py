"""Invented shops, goods and the printing habits of the countries that receipts come from."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

SHOP_NAMES = (
    "HELIOTROPE",
    "LUMBUNG PADI",
    "KUPFERKANNE",
    "BLUE FINCH",
    "SERI CAHAYA",
    "TIN WHISTLE",
    "MORGENTAU",
    "PAPER LANTERN",
    "HARBOUR NINE",
    "BUNGA RAYA",
    "OLD KILN",
    "NORDLICHT",
    "SILVER TEAPOT",
    "TAMAN BATU",
    "QUIET MILL",
    "RED ANVIL",
    "KEDAI BINTANG",
    "WALDMEISTER",
    "CORNER LOAF",
    "THIRD BRIDGE",
)
SHOP_ENDINGS: Mapping[str, tuple[str, ...]] = {
    "MY": ("SDN BHD", "ENTERPRISE", "TRADING SDN. BHD.", "RESTAURANT", "HARDWARE", "MART"),
    "SG": ("PTE LTD", "CAFE PTE. LTD.", "MART"),
    "DE": ("GMBH", "BAECKEREI", "KAFFEE", "MARKT GMBH"),
    "US": ("DINER", "GROCERY", "HARDWARE LLC", "COFFEE"),
}
STREETS: Mapping[str, tuple[str, ...]] = {
    "MY": ("JALAN KENANGA 3/4", "JALAN PERMATA 12", "LORONG MAWAR 2", "JALAN SETIA 5/1A"),
    "SG": ("ORCHID LANE", "TANGLIN VIEW", "KALLANG WALK"),
    "DE": ("MUEHLENWEG", "AM ANGER", "BAHNHOFSTR."),
    "US": ("ELM STREET", "HARBOR AVE", "3RD STREET"),
}
GOODS = (
    "TEA SET",
    "RICE 5KG",
    "PENCIL BOX",
    "NOODLE SOUP",
    "HAND TOWEL",
    "LED BULB 9W",
    "SUGAR BUN",
    "FRIED RICE",
    "GLUE STICK",
    "PAINT BRUSH",
    "ICED LEMON TEA",
    "SCREW M6",
    "NOTEBOOK A5",
    "SOAP BAR",
    "GREEN APPLE",
    "COFFEE",
    "ROTI",
    "BATTERY AA",
    "CABLE TIE",
    "MILK 1L",
    "SALT",
    "CHICKEN SET",
    "DETERGENT",
    "USB CABLE",
)


@dataclass(frozen=True, slots=True)
class Country:
    """How receipts of one country are printed.

    `tax_periods` are (first day, last day, rate in percent, weight); `cash_step` is the smallest
    coin in minor units that cash totals are rounded to.
    """

    code: str
    currency: str
    weight: float
    marks: tuple[str, ...]
    point: str
    thousands: str
    cash_step: int
    date_formats: tuple[str, ...]
    tax_periods: tuple[tuple[date, date, int, float], ...]
    labels: Mapping[str, tuple[str, ...]]
    towns: tuple[str, ...]
    titles: tuple[str, ...]
    thanks: tuple[str, ...]

    def tax_name(self, day: date) -> str:
        """Return what the tax of that day is called."""
        if self.code == "MY":
            return "GST" if day < date(2018, 9, 1) else "SST"
        return {"SG": "GST", "DE": "MWST"}.get(self.code, "TAX")

    def tax_code(self, rng: random.Random, rate: int) -> str:
        """Return the letter some shops print behind an amount, or nothing."""
        return rng.choice([" SR", " S", "", "", ""]) if self.code == "MY" and rate else ""


_ENGLISH: Mapping[str, tuple[str, ...]] = {
    "subtotal": ("SUBTOTAL", "SUB TOTAL", "SUB-TOTAL", "TOTAL EXCL. TAX"),
    "total": ("TOTAL", "GRAND TOTAL", "TOTAL AMOUNT", "AMOUNT DUE", "NETT TOTAL", "TOTAL SALES"),
    "discount": ("DISCOUNT", "DISC", "LESS DISCOUNT"),
    "service": ("SERVICE CHARGE 10%", "SVC CHG 10%"),
    "rounding": ("ROUNDING", "ROUNDING ADJ", "ROUND ADJUSTMENT"),
    "cash": ("CASH", "CASH TENDERED", "PAID", "CASH RECEIVED"),
    "change": ("CHANGE", "CHANGE DUE"),
}
_GERMAN: Mapping[str, tuple[str, ...]] = {
    "subtotal": ("ZWISCHENSUMME", "NETTO"),
    "total": ("SUMME", "GESAMT", "SUMME EUR", "ZU ZAHLEN"),
    "discount": ("RABATT",),
    "service": ("SERVICE CHARGE 10%",),
    "rounding": ("RUNDUNG",),
    "cash": ("BAR", "GEGEBEN"),
    "change": ("RUECKGELD",),
}

COUNTRIES = (
    Country(
        code="MY",
        currency="MYR",
        weight=0.66,
        marks=("RM", "RM ", "", "$"),
        point=".",
        thousands=",",
        cash_step=5,
        date_formats=("%d/%m/%Y", "%d/%m/%y", "%d-%m-%Y", "%d-%m-%y", "%d %b %Y", "%Y/%m/%d", "%d/%m/%Y (%a)"),
        tax_periods=(
            (date(2015, 4, 1), date(2018, 5, 31), 6, 0.75),
            (date(2018, 6, 1), date(2018, 8, 31), 0, 0.05),
            (date(2018, 9, 1), date(2026, 6, 30), 6, 0.20),
        ),
        labels=_ENGLISH,
        towns=("43000 KAJANG, SELANGOR", "81100 JOHOR BAHRU, JOHOR", "50250 KUALA LUMPUR"),
        titles=("TAX INVOICE", "RECEIPT", "CASH BILL", "INVOICE"),
        thanks=("THANK YOU, PLEASE COME AGAIN", "TERIMA KASIH", "GOODS SOLD ARE NOT RETURNABLE"),
    ),
    Country(
        code="SG",
        currency="SGD",
        weight=0.08,
        marks=("$", "S$", ""),
        point=".",
        thousands=",",
        cash_step=5,
        date_formats=("%d/%m/%Y", "%d %b %Y"),
        tax_periods=(
            (date(2012, 1, 1), date(2022, 12, 31), 7, 0.7),
            (date(2023, 1, 1), date(2023, 12, 31), 8, 0.1),
            (date(2024, 1, 1), date(2026, 6, 30), 9, 0.2),
        ),
        labels=_ENGLISH,
        towns=("SINGAPORE 238801", "SINGAPORE 339511"),
        titles=("TAX INVOICE", "RECEIPT"),
        thanks=("THANK YOU", "SEE YOU AGAIN"),
    ),
    Country(
        code="DE",
        currency="EUR",
        weight=0.14,
        marks=("EUR ", "€", ""),
        point=",",
        thousands=".",
        cash_step=1,
        date_formats=("%d.%m.%Y", "%d.%m.%y"),
        tax_periods=((date(2012, 1, 1), date(2020, 6, 30), 19, 0.6), (date(2021, 1, 1), date(2026, 6, 30), 19, 0.4)),
        labels=_GERMAN,
        towns=("04103 BEISPIELSTADT", "99084 MUSTERHAUSEN"),
        titles=("KASSENBON", "QUITTUNG", "RECHNUNG"),
        thanks=("VIELEN DANK FUER IHREN EINKAUF", "AUF WIEDERSEHEN"),
    ),
    Country(
        code="US",
        currency="USD",
        weight=0.12,
        marks=("$", "$", "USD "),
        point=".",
        thousands=",",
        cash_step=1,
        date_formats=("%m/%d/%Y", "%b %d, %Y", "%m/%d/%y"),
        tax_periods=((date(2012, 1, 1), date(2026, 6, 30), 8, 1.0),),
        labels=_ENGLISH,
        towns=("SPRINGDALE, OR 97204", "LAKE PORT, OH 44101"),
        titles=("RECEIPT", "SALE"),
        thanks=("THANK YOU!", "HAVE A NICE DAY"),
    ),
)
