"""Dates that a genuine receipt keeps: possible, at one with each other, its weekday and its tax."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from receipt_pipeline.chain.values import Reading, ReceiptFields

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
WEEKDAY = re.compile(rf"\b({'|'.join(WEEKDAYS)})(?:DAY|SDAY|NESDAY|RSDAY|URDAY)?\b")
NUMERIC_DATE = re.compile(r"(?<![\w./-])(\d{1,2})[./-](\d{1,2})[./-](\d{4}|\d{2})(?![\d/-]|\.\d)")
ISO_DATE = re.compile(r"(?<!\d)(20\d{2})[./-](\d{1,2})[./-](\d{1,2})(?!\d)")
NAMED_DATE = re.compile(rf"(?<!\d)(\d{{1,2}})[ /-]?({'|'.join(MONTHS)})[A-Z]*[ ,/-]*(\d{{4}}|\d{{2}})(?!\d)")
STAMP = re.compile(r"(?<!\d)(20[12]\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])\d{4,8}(?!\d)")
STAMP_NEAR_DAYS = 400
TIME = re.compile(r"(?<![\d:])(\d{1,2})[:](\d{2})(?:[:](\d{2}))? ?(AM|PM)?")
DATED = re.compile(rf"DATE|DATUM|TIME|PRINT|\d:\d\d|[./-](?:19|20)\d\d|{'|'.join(MONTHS)}")
BARE_DATE_LENGTH = 12
NOT_THE_SALE = re.compile(r"EXP|VALID|DUE|BEFORE|UNTIL|DELIVER|RETURN|W\.?E\.?F|STARTING|EFFECTIVE")
GST_NUMBER = re.compile(r"\bGST\D{0,14}?(00\d{2} ?\d{4} ?\d{4})(?!\d)")
GST_NUMBER_STEP = 4096
YEARS_KNOWN = (1995, 2060)


@dataclass(frozen=True, slots=True)
class TaxPeriod:
    """While a consumption tax of that name and rate was in force; public law, both days included."""

    hint: re.Pattern[str]
    tax: re.Pattern[str]
    rate: int
    first: date
    last: date


_MALAYSIA = re.compile(r"\bRM ?\d|SDN\.? ?BHD|MALAYSIA|\bRM\b|SELANGOR|JALAN")
_SINGAPORE = re.compile(r"SINGAPORE|PTE\.? ?LTD|\bSGD\b")
_GERMANY = re.compile(r"\bMWST\b|\bGMBH\b")
_GST, _SST, _MWST = re.compile(r"\bGST\b"), re.compile(r"\bSST\b"), re.compile(r"\bMWST\b|\bUST\b")

# Sources: Malaysia Goods and AppContext Tax Act 2014 (Act 762) and its repeal, Sales Tax Act 2018;
# Singapore GST Act, rate changes of 2007, 2023, 2024; Germany UStG par. 12, reduction of 2020.
TAX_PERIODS = (
    TaxPeriod(_MALAYSIA, _GST, 6, date(2015, 4, 1), date(2018, 5, 31)),
    TaxPeriod(_MALAYSIA, _GST, 0, date(2018, 6, 1), date(2018, 8, 31)),
    TaxPeriod(_MALAYSIA, _SST, 6, date(2018, 9, 1), date(2060, 12, 31)),
    TaxPeriod(_MALAYSIA, _SST, 10, date(2018, 9, 1), date(2060, 12, 31)),
    TaxPeriod(_MALAYSIA, _SST, 8, date(2024, 3, 1), date(2060, 12, 31)),
    TaxPeriod(_MALAYSIA, _SST, 5, date(2018, 9, 1), date(2060, 12, 31)),
    TaxPeriod(_SINGAPORE, _GST, 7, date(2007, 7, 1), date(2022, 12, 31)),
    TaxPeriod(_SINGAPORE, _GST, 8, date(2023, 1, 1), date(2023, 12, 31)),
    TaxPeriod(_SINGAPORE, _GST, 9, date(2024, 1, 1), date(2060, 12, 31)),
    TaxPeriod(_GERMANY, _MWST, 19, date(2007, 1, 1), date(2060, 12, 31)),
    TaxPeriod(_GERMANY, _MWST, 7, date(1983, 7, 1), date(2060, 12, 31)),
    TaxPeriod(_GERMANY, _MWST, 16, date(2020, 7, 1), date(2020, 12, 31)),
    TaxPeriod(_GERMANY, _MWST, 5, date(2020, 7, 1), date(2020, 12, 31)),
)
# Shops went on printing the name and number of an ended tax for a while; a rate they could not.
NAME_LINGERS_DAYS = 150
RATE_LINGERS_DAYS = 10
TAX_RATE = re.compile(
    r"\b(?:GST|SST|MWST|UST)\b ?(?:@|TAX)? ?\(?(\d{1,2})(?:[.,]0{1,2})? ?%"
    r"|(?<![\d.,])(\d{1,2})(?:[.,]0{1,2})? ?% ?(?:GST|SST|MWST)"
)


@dataclass(frozen=True, slots=True)
class DateEvidence:
    """What the printed dates say of each other; counts, and 0 or 1 for the rest."""

    impossible: int
    contradicting: int
    agreeing: int
    weekday_mismatch: int
    outside_tax_period: int
    time_impossible: int
    years_apart: int


def read_dates(reading: Reading, fields: ReceiptFields) -> DateEvidence:
    """Compare every printed date with the date of the sale, the weekday, the clock and the tax."""
    texts = [line.text.upper() for line in reading.lines]
    sale = sale_day(fields)
    impossible = 0
    others: list[set[date]] = []
    years: set[int] = set()
    for text in texts:
        # Numbers of bills often begin with the day; shorter ones only look as if they did.
        stamped = [day for day in _stamped_days(text) if sale and abs((day - sale).days) <= STAMP_NEAR_DAYS]
        others.extend({day} for day in stamped)
        for readings in _printed_dates(text):
            impossible += not readings
            if readings and _is_dated(text) and not NOT_THE_SALE.search(text):
                others.append(readings)
                years.update(day.year for day in readings)
    agreeing = sum(1 for days in others if sale in days)
    return DateEvidence(
        impossible=impossible,
        contradicting=sum(1 for days in others if sale is not None and sale not in days),
        agreeing=agreeing,
        weekday_mismatch=int(any(_weekday_differs(text) for text in texts)),
        outside_tax_period=int(sale is not None and _outside_tax_period(texts, sale)),
        time_impossible=int(any(_time_impossible(text) for text in texts)),
        years_apart=max(years) - min(years) if years else 0,
    )


def _is_dated(text: str) -> bool:
    """Tell whether a line says that its numbers are a date; codes of goods may look like one."""
    return len(text) <= BARE_DATE_LENGTH or DATED.search(text) is not None


def sale_day(fields: ReceiptFields) -> date | None:
    """Return the day of the sale, None where it was not read or never was."""
    if fields.date is None or fields.date.iso is None:
        return None
    try:
        return date.fromisoformat(fields.date.iso)
    except ValueError:
        return None


def _printed_dates(text: str) -> Iterator[set[date]]:
    """Yield, for each printed date, the days it can mean; an empty set for a day that never was."""
    for first, second, year in NUMERIC_DATE.findall(text):
        if 1 <= int(first) <= 31 and 1 <= int(second) <= 31 and _year(year):
            yield set(_days((_year(year), int(second), int(first)), (_year(year), int(first), int(second))))
    for year, month, day in ISO_DATE.findall(text):
        yield set(_days((int(year), int(month), int(day))))
    for day, month, year in NAMED_DATE.findall(text):
        yield set(_days((_year(year), MONTHS.index(month) + 1, int(day))))


def _stamped_days(text: str) -> Iterator[date]:
    """Yield the days that long numbers such as 20180430123 begin with."""
    for year, month, day in STAMP.findall(text):
        yield from _days((int(year), int(month), int(day)))


def _days(*candidates: tuple[int, int, int]) -> Iterator[date]:
    for year, month, day in candidates:
        try:
            yield date(year, month, day)
        except ValueError:
            continue


def _year(text: str) -> int:
    """Return the four-digit year, or 0 where no receipt can be of it."""
    year = int(text) + (2000 if len(text) == 2 else 0)
    return year if YEARS_KNOWN[0] <= year <= YEARS_KNOWN[1] else 0


def _weekday_differs(text: str) -> bool:
    named = WEEKDAY.search(text)
    if named is None:
        return False
    readings = [days for days in _printed_dates(text) if days]
    wanted = WEEKDAYS.index(named[1])
    return bool(readings) and not any(day.weekday() == wanted for days in readings for day in days)


def _time_impossible(text: str) -> bool:
    for hour, minute, second, half in TIME.findall(text):
        # Some tills print 17:05 PM, but none prints an afternoon hour as AM.
        if half == "AM" and int(hour) > 12:
            return True
        if int(hour) > 23 and half == "" and second and int(minute) < 60:
            return True
        if int(minute) > 59 and (half or second):
            return True
    return False


def _outside_tax_period(texts: Sequence[str], sale: date) -> bool:
    """Tell whether the receipt charges or names a tax that was not in force on the day of the sale."""
    whole = " \n ".join(texts)
    for hint, tax in {(period.hint, period.tax): None for period in TAX_PERIODS}:
        if not (hint.search(whole) and tax.search(whole)):
            continue
        periods = [period for period in TAX_PERIODS if period.hint is hint and period.tax is tax]
        rates = {
            int(match[1] or match[2])
            for text in texts
            for match in TAX_RATE.finditer(text)
            if tax.search(match.group())
        } - {0}
        named = any(_within(period, sale, NAME_LINGERS_DAYS) for period in periods)
        in_force = {period.rate for period in periods if _within(period, sale, RATE_LINGERS_DAYS)}
        return not named or not rates <= in_force
    return False


def tax_number_odd(rows: Sequence[str]) -> bool:
    """Tell whether a Malaysian GST number of twelve digits is none that can have been given out.

    All that were seen on genuine receipts are multiples of 4096, which a number with altered digits
    hardly ever is.
    """
    numbers = {int(number.replace(" ", "")) for row in rows for number in GST_NUMBER.findall(row)}
    return any(number % GST_NUMBER_STEP for number in numbers)


def _within(period: TaxPeriod, sale: date, linger_days: int) -> bool:
    return period.first <= sale and (sale - period.last).days <= linger_days
