"""The content of one invented receipt, as rows of cells, with its truth."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

from training.vocabulary import COUNTRIES, GOODS, SHOP_ENDINGS, SHOP_NAMES, STREETS, Country


@dataclass(frozen=True, slots=True)
class Cell:
    """A text at a place of its row: `at` is 0..1 of the width, `right` aligns its end there."""

    text: str
    at: float = 0.0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Cells that stand side by side; `kind` tells tampering what the row is."""

    kind: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """A receipt before it is drawn or read: its rows and what is true of it."""

    rows: tuple[Row, ...]
    truth: dict[str, Any] = field(default_factory=dict)

    def with_rows(self, rows: list[Row]) -> Content:
        """Return the same receipt with other rows."""
        return replace(self, rows=tuple(rows))


@dataclass(slots=True)
class _Sale:
    """The sale that a receipt is printed for, in minor units."""

    country: Country
    when: datetime
    items: list[tuple[str, int, int]]
    inclusive: bool
    rate: int
    discount: int = 0
    service: int = 0

    @property
    def gross_items(self) -> int:
        return sum(quantity * price for _, quantity, price in self.items)

    @property
    def taxable(self) -> int:
        return self.gross_items - self.discount + self.service

    @property
    def tax(self) -> int:
        if self.inclusive:
            return round(self.taxable * self.rate / (100 + self.rate))
        return round(self.taxable * self.rate / 100)

    @property
    def before_rounding(self) -> int:
        return self.taxable if self.inclusive else self.taxable + self.tax

    @property
    def total(self) -> int:
        step = self.country.cash_step
        return step * ((self.before_rounding + step // 2) // step)


def draw_content(rng: random.Random) -> Content:
    """Invent one genuine receipt; equal generators give equal receipts."""
    country = rng.choices(COUNTRIES, weights=[country.weight for country in COUNTRIES])[0]
    when = _when(rng, country)
    sale = _sale(rng, country, when)
    printer = _Printer(rng, country)
    shop = f"{rng.choice(SHOP_NAMES)} {rng.choice(SHOP_ENDINGS[country.code])}".strip()
    rows = [
        *printer.header(shop, sale),
        *printer.meta(when),
        *printer.items(sale),
        *printer.sums(sale),
        *printer.footer(when, sale),
    ]
    truth = {
        "company": shop,
        "date": when.date().isoformat(),
        "total_minor": sale.total,
        "currency": country.currency,
        "tampered": False,
    }
    return Content(rows=tuple(rows), truth=truth)


def _when(rng: random.Random, country: Country) -> datetime:
    first, last = rng.choices(country.tax_periods, weights=[w for *_, w in country.tax_periods])[0][:2]
    day = first + timedelta(days=rng.randrange((last - first).days + 1))
    return datetime(day.year, day.month, day.day, rng.randrange(8, 23), rng.randrange(60), rng.randrange(60))  # noqa: DTZ001 (local time as printed)


def _rate_on(rng: random.Random, country: Country, day: date) -> int:
    for first, last, rate, _ in country.tax_periods:
        if first <= day <= last:
            return rate if rng.random() < 0.85 else 0
    return 0


def _sale(rng: random.Random, country: Country, when: datetime) -> _Sale:
    ending = rng.choice([5, 10, 10, 1])
    items = []
    for _ in range(min(14, 1 + int(rng.expovariate(0.28)))):
        price = max(ending, ending * (int(rng.lognormvariate(6.6, 0.9)) // ending))
        items.append((rng.choice(GOODS), rng.choices([1, 1, 1, 2, 3, 4, 6, 10], k=1)[0], price))
    sale = _Sale(country, when, items, inclusive=rng.random() < 0.65, rate=_rate_on(rng, country, when.date()))
    if rng.random() < 0.12:
        sale.discount = round(sale.gross_items * rng.choice([5, 10, 20]) / 100)
    if rng.random() < 0.12:
        sale.service = round((sale.gross_items - sale.discount) / 10)
    return sale


class _Printer:
    """Prints one shop's layout: every choice is made once a receipt and then kept."""

    def __init__(self, rng: random.Random, country: Country) -> None:
        self.rng = rng
        self.country = country
        self.item_style = rng.choice(["one_row", "two_rows", "two_rows", "plain", "coded", "columns"])
        self.mark = rng.choice(country.marks)
        self.marks_totals = rng.random() < 0.5
        self.date_format = rng.choice(country.date_formats)
        self.upper = rng.random() < 0.7
        self.labels = {name: rng.choice(words) for name, words in country.labels.items()}
        self.colon = rng.choice(["", ":", " :"])

    def money(self, minor: int, *, marked: bool = False) -> str:
        """Print an amount in the country's way."""
        whole, cents = divmod(abs(minor), 100)
        digits = f"{whole:,}".replace(",", self.country.thousands) if whole >= 1000 else str(whole)
        text = f"{'-' if minor < 0 else ''}{digits}{self.country.point}{cents:02d}"
        return f"{self.mark}{text}" if marked and self.mark else text

    def row(self, kind: str, *cells: Cell) -> Row:
        """Set a row in this shop's case."""
        return Row(kind, tuple(replace(cell, text=cell.text.upper()) if self.upper else cell for cell in cells))

    def labelled(self, kind: str, label: str, minor: int) -> Row:
        """Set a label on the left or towards the middle, and its amount at the right edge."""
        at = self.rng.choice([0.0, 0.0, 0.3])
        return self.row(
            kind, Cell(label + self.colon, at), Cell(self.money(minor, marked=self.marks_totals), 1.0, right=True)
        )

    def header(self, shop: str, sale: _Sale) -> Iterator[Row]:
        """Print who sells and where."""
        rng = self.rng
        yield self.row("company", Cell(shop, 0.15))
        if rng.random() < 0.7:
            yield self.row("registration", Cell(f"({rng.randrange(100000, 1999999)}-{rng.choice('ADHKMPTVWX')})", 0.3))
        yield self.row("address", Cell(f"NO. {rng.randrange(1, 99)}, {rng.choice(STREETS[self.country.code])}", 0.1))
        yield self.row("address", Cell(rng.choice(self.country.towns), 0.15))
        if rng.random() < 0.7:
            yield self.row("phone", Cell(f"TEL: {rng.randrange(10, 99):03d}-{rng.randrange(1000000, 9999999)}", 0.2))
        if sale.rate and rng.random() < 0.75:
            # GST numbers were given out in steps of 4096, behind two zeros.
            number = 4096 * rng.randrange(10**4, 5 * 10**5) if self.country.code == "MY" else rng.randrange(10**11)
            yield self.row("tax_number", Cell(f"{self.country.tax_name(sale.when.date())} NO: {number:012d}", 0.1))
        yield self.row("title", Cell(rng.choice(self.country.titles), 0.3))

    def meta(self, when: datetime) -> Iterator[Row]:
        """Print number, date, time and clerk."""
        rng = self.rng
        number = rng.choice(
            [f"{when:%Y%m%d}{rng.randrange(999):04d}", f"CS-{rng.randrange(10**6):06d}", f"{rng.randrange(10**5)}"]
        )
        printed = when.strftime(self.date_format)
        time = when.strftime(rng.choice(["%H:%M", "%H:%M:%S", "%I:%M:%S %p", "%I:%M%p"]))
        rows = [
            self.row(
                "number", Cell(f"{rng.choice(['INVOICE NO', 'RECEIPT #', 'BILL', 'DOC NO.'])}{self.colon} {number}")
            ),
            self.row("date", *self._date_cells(printed, time)),
        ]
        if rng.random() < 0.6:
            rows.append(
                self.row(
                    "clerk", Cell(f"CASHIER{self.colon} {rng.choice(['LINA', 'OMAR', 'MEI', '#3', 'USER', 'TOM'])}")
                )
            )
        rng.shuffle(rows)
        yield from rows

    def _date_cells(self, printed: str, time: str) -> tuple[Cell, ...]:
        label = self.rng.choice(["DATE", "DATE", "DATE", "DATUM" if self.country.code == "DE" else "DATE", ""])
        both = f"{printed} {time}"
        style = self.rng.randrange(3)
        if not label:
            return (Cell(both, self.rng.choice([0.0, 0.1, 0.3])),)
        if style == 0:
            return (Cell(f"{label}{self.colon or ':'} {both}"),)
        if style == 1:
            return (Cell(f"{label}{self.colon}"), Cell(both, 0.25))
        return (Cell(f"{label}{self.colon or ':'} {printed}"), Cell(f"TIME: {time}", 0.6))

    def items(self, sale: _Sale) -> Iterator[Row]:
        """Print the goods in the shop's item style."""
        if self.item_style in ("one_row", "columns", "coded"):
            yield self.row(
                "heading", Cell("DESCRIPTION"), Cell("QTY", 0.5), Cell("PRICE", 0.75, True), Cell("AMOUNT", 1.0, True)
            )
        for name, quantity, price in sale.items:
            amount = Cell(self.money(quantity * price) + self.country.tax_code(self.rng, sale.rate), 1.0, True)
            if self.item_style == "plain" and quantity == 1:
                yield self.row("item", Cell(name), amount)
            elif self.item_style in ("two_rows", "plain"):
                times = self.rng.choice([" X ", " x ", " @ "])
                yield self.row("name", Cell(name))
                yield self.row("item", Cell(f"{quantity}{times}{self.money(price)}", 0.1), amount)
            elif self.item_style == "coded":
                yield self.row("name", Cell(f"{self.rng.randrange(10**6, 10**12)}"), Cell(name, 0.35))
                yield self.row("item", Cell(str(quantity), 0.5), Cell(self.money(price), 0.75, True), amount)
            else:
                yield self.row(
                    "item", Cell(name[:14]), Cell(str(quantity), 0.52), Cell(self.money(price), 0.75, True), amount
                )
            if self.rng.random() < 0.02:
                yield self.row("note", Cell("PROMO SAVED"), Cell(self.money(self.rng.randrange(10, 300)), 1.0, True))

    def sums(self, sale: _Sale) -> Iterator[Row]:
        """Print from subtotal to change."""
        rng, words = self.rng, self.labels
        if rng.random() < 0.25:
            pieces = sum(quantity for _, quantity, _ in sale.items)
            yield self.row(
                "count", Cell(rng.choice(["TOTAL QTY:", "ITEM COUNT", "TOTAL ITEMS :"])), Cell(str(pieces), 0.5)
            )
        if sale.discount or sale.service or not sale.inclusive or rng.random() < 0.4:
            yield self.labelled("subtotal", words["subtotal"], sale.gross_items)
        if sale.discount:
            yield self.labelled("discount", words["discount"], -sale.discount)
        if sale.service:
            yield self.labelled("service", words["service"], sale.service)
        tax_name = self.country.tax_name(sale.when.date())
        if sale.rate and not sale.inclusive:
            yield self.labelled("tax", f"{tax_name} {sale.rate}%", sale.tax)
        rounding = sale.total - sale.before_rounding
        if rounding or (self.country.cash_step > 1 and rng.random() < 0.5):
            yield self.labelled(
                "total_before", rng.choice([words["total"], f"TOTAL INCL. {tax_name}"]), sale.before_rounding
            )
            yield self.labelled("rounding", words["rounding"], rounding)
            yield self.labelled("total", rng.choice(["ROUNDED TOTAL", "NET TOTAL", "AMOUNT DUE"]), sale.total)
        else:
            yield self.labelled("total", words["total"], sale.total)
        yield from self._clutter(sale, tax_name)
        yield from self._paid(sale)
        if sale.rate and rng.random() < 0.55:
            yield from self._tax_table(sale, tax_name)

    def _clutter(self, sale: _Sale, tax_name: str) -> Iterator[Row]:
        """Print what genuine shops add among the sums, and what makes their sums hard to follow."""
        rng = self.rng
        if rng.random() < 0.08 and sale.inclusive and sale.rate:
            yield self.labelled("included", f"{tax_name} {sale.rate}% INCLUDED IN TOTAL", sale.tax)
        if rng.random() < 0.05:
            words = rng.choice(["TOTAL SPENT TO DATE", "TOTAL OUTSTANDING", "MEMBER TOTAL", "TOTAL BY ITEM"])
            yield self.labelled("included", words, rng.randrange(100, 90000))
        if rng.random() < 0.05:
            yield self.row("note", Cell(f"{self.mark}{rng.choice([2, 5, 10])} OFF NEXT VISIT", 0.1))
        if self.country.cash_step > 1 and rng.random() < 0.03:
            yield self.labelled("rounding", self.labels["rounding"], rng.choice([0, 1, -1, 2, -2]))

    def _paid(self, sale: _Sale) -> Iterator[Row]:
        kind = self.rng.random()
        if kind < 0.6:
            note = self.rng.choice([100, 500, 1000, 5000, 10000])
            given = sale.total if self.rng.random() < 0.3 else note * -(-sale.total // note)
            yield self.labelled("cash", self.labels["cash"], given)
            if given != sale.total or self.rng.random() < 0.7:
                yield self.labelled("change", self.labels["change"], given - sale.total)
        elif kind < 0.85:
            yield self.labelled("cash", self.rng.choice(["VISA", "MASTERCARD", "CARD PAYMENT", "E-WALLET"]), sale.total)

    def _tax_table(self, sale: _Sale, tax_name: str) -> Iterator[Row]:
        base = sale.taxable - sale.tax if sale.inclusive else sale.taxable
        yield self.row("heading", Cell(f"{tax_name} SUMMARY"), Cell("AMOUNT", 0.7, True), Cell("TAX", 1.0, True))
        yield self.row(
            "tax_table",
            Cell(f"SR @ {sale.rate}%"),
            Cell(self.money(base), 0.7, True),
            Cell(self.money(sale.tax), 1.0, True),
        )

    def footer(self, when: datetime, sale: _Sale) -> Iterator[Row]:
        """Print thanks, conditions and sometimes the date again."""
        rng = self.rng
        if rng.random() < 0.2:
            later = when + timedelta(seconds=rng.randrange(1, 900))
            yield self.row("print_date", Cell(f"PRINTED {later.strftime(self.date_format)} {later:%H:%M:%S}"))
        if rng.random() < 0.3:
            yield self.row("points", Cell(f"POINTS EARNED: {sale.total // 100}"))
        if rng.random() < 0.4:
            yield self.row("condition", Cell(f"EXCHANGE WITHIN {rng.choice([3, 7, 14])} DAYS WITH RECEIPT"))
        yield self.row("thanks", Cell(rng.choice(self.country.thanks), 0.2))
