"""Amounts: every way of printing one, as exact minor units, or called ambiguous."""

from __future__ import annotations

import pytest

from receipt_pipeline.chain.extract.amounts import AmountContext, decimal_mark_of, find_amounts, normalized_digits
from receipt_pipeline.chain.extract.currency import (
    day_comes_first,
    dollar_currency,
    hinted_countries,
    marks_in,
    stated_currency,
)

BARE = AmountContext(dollar="USD")


@pytest.mark.parametrize(
    ("text", "minor", "currency"),
    [
        ("8.20", 820, None),
        ("8,20", 820, None),
        (".02", 2, None),
        ("1,234.56", 123456, None),
        ("1.234,56", 123456, None),
        ("1 234,56 €", 123456, "EUR"),
        ("1'234.50 CHF", 123450, "CHF"),
        ("1.234.567,89", 123456789, None),
        ("RM65.20", 6520, "MYR"),
        ("RM 65.20", 6520, "MYR"),
        ("RM.02", 2, "MYR"),
        ("40,00 $", 4000, "USD"),
        ("S$12.30", 1230, "SGD"),
        ("£3.50", 350, "GBP"),
        ("฿120.00", 12000, "THB"),
        ("Rp 25.000", 2500000, "IDR"),
        ("Rp25.000,00", 2500000, "IDR"),
        ("¥1,234", 1234, "JPY"),
        ("¥ 980", 980, "JPY"),
        ("KWD 1.234", 1234, "KWD"),
        ("-39,95", -3995, None),
        ("CARD #7185:RM111.90", 11190, "MYR"),
        ("TOTAL:8.20", 820, None),
        ("1.80-", -180, None),
        ("(5.00)", -500, None),
        ("-RM0.01", -1, "MYR"),
        ("RM-0.02", -2, "MYR"),
        ("17.00SR", 1700, None),
        ("9,90 B", 990, None),
    ],
)
def test_one_amount_is_read_exactly(text: str, minor: int, currency: str | None) -> None:
    (found,) = find_amounts(text, BARE)
    assert (found.minor, found.currency, found.ambiguous) == (minor, currency, False)


@pytest.mark.parametrize("text", ["1.234", "1,234", "12.5"])
def test_a_number_that_can_be_read_two_ways_is_ambiguous(text: str) -> None:
    (found,) = find_amounts(text, BARE)
    assert found.ambiguous


def test_the_rest_of_the_receipt_settles_what_a_thousands_mark_is() -> None:
    (found,) = find_amounts("1.234", AmountContext(decimal_mark=","))
    assert (found.minor, found.ambiguous) == (123400, False)
    (found,) = find_amounts("1.234", AmountContext(decimal_mark="."))
    assert found.ambiguous


@pytest.mark.parametrize(
    "text", ["30/03/2018", "12:30:45", "2018-03-30", "@6.00%", "GST 6%", "250ML", "1.5KG", "A4-2.50-X", "2.500x3"]
)
def test_dates_times_rates_and_measures_are_no_amounts(text: str) -> None:
    assert [found.printed for found in find_amounts(text, BARE) if found.has_cents] == []


def test_the_print_is_kept_beside_the_reading() -> None:
    (found,) = find_amounts("TOTAL  RM  65.20", BARE)
    assert found.printed == "RM 65.20"


def test_letters_read_for_digits_inside_amounts_are_undone() -> None:
    assert normalized_digits("RMI11.90") == "RM111.90"
    assert normalized_digits("1O.O0") == "10.00"
    assert normalized_digits("OIL FILTER") == "OIL FILTER"


def test_the_decimal_mark_is_the_one_most_amounts_use() -> None:
    assert decimal_mark_of(["1,20", "3,50", "12.00"]) == ","
    assert decimal_mark_of(["1.20", "3,50"]) is None
    assert decimal_mark_of(["Lamp"]) is None


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("TOTAL EUR", ["EUR"]),
        ("Amount(RM)", ["MYR"]),
        ("US$5", ["USD"]),
        ("$5", ["$"]),
        ("FRESH FT MILK", []),
        ("ARMY", []),
        ("BALL PEN BLUE  1.90", []),
        ("CONTOH SDN BHD 666770-U", []),
        ("TRY OUR CAKES", []),
    ],
)
def test_currency_marks_are_found_only_where_they_stand_alone(text: str, marks: list[str]) -> None:
    assert marks_in(text) == marks


def test_there_is_no_default_currency() -> None:
    assert stated_currency(["TOTAL 12.00", "Kuala Lumpur"], hinted_countries("Kuala Lumpur")) is None


def test_two_currencies_that_appear_alike_leave_it_unknown() -> None:
    assert stated_currency(["TOTAL EUR 5.00", "USD 5.60"], ()) is None
    assert stated_currency(["EUR 1.00", "EUR 2.00", "EUR 3.00", "USD 3.30"], ()) == "EUR"


def test_a_dollar_sign_is_the_dollar_of_the_country_named() -> None:
    assert dollar_currency(hinted_countries("CLOUD TOOLS")) == "USD"
    assert dollar_currency(hinted_countries("EXAMPLE PTE LTD SINGAPORE")) == "SGD"
    assert dollar_currency(hinted_countries("BEISPIEL SDN BHD, JOHOR")) is None


def test_currency_and_country_tell_the_order_of_dates() -> None:
    assert day_comes_first("MYR", ()) is True
    assert day_comes_first("USD", ()) is False
    assert day_comes_first(None, ()) is None
    assert day_comes_first("USD", hinted_countries("LONDON")) is None
