"""Dates, weekdays, times and bill numbers that agree on a genuine receipt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from receipt_pipeline.chain.values import PageText, ReceiptFields

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

# Sources: Malaysia Goods and Services Tax Act 2014 (Act 762) and its repeal, Sales Tax Act 2018;
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
# Shops kept printing the name and number of an ended tax for a while; a rate they could not.
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


def read_dates(page_text: PageText, fields: ReceiptFields) -> DateEvidence:
    """Compare every printed date with the date of the sale, the weekday, the clock and the tax."""
    texts = [line.text.upper() for line in page_text.lines]
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
    """Report whether a line says that its numbers are a date; codes of goods may look like one."""
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
    """Report whether the receipt charges or names a tax that was not in force on the day of the sale."""
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


def _within(period: TaxPeriod, sale: date, linger_days: int) -> bool:
    return period.first <= sale and (sale - period.last).days <= linger_days


CLOCK = re.compile(r"(?<![\d:.])(\d{1,2}):([0-5]\d)(?::[0-5]\d)?(?:\.\d+)? ?([AP])?\.?M?\b")
HOURS = re.compile(r"OPEN|HOUR|DAILY|BUSINESS|OPERAT|\d ?(?:AM|PM)? ?(?:-|TO) ?\d")
NUMBERED = re.compile(r"\bNO\b|NO\.|NO:|#|INV|BILL|RECEIPT|RCPT|DOC|TRANS|TRX|SLIP|REF|CS|ORDER|CHECK|CHIT")
OTHER_NUMBER = re.compile(r"GST|TEL|FAX|REG|PHONE|CO\.|SST|CARD|MEMBER|HOTLINE|WHATSAPP")
DIGITS = re.compile(r"(?<!\d)\d{6,16}(?!\d)")
NEAR_DAYS = 800
APART_MINUTES = 120
NIGHT_ENDS_MINUTE = 6 * 60


@dataclass(frozen=True, slots=True)
class ClockEvidence:
    """What clock and numbers say; 0 or 1, and counts."""

    numbers_agreeing: int
    numbers_contradicting: int
    times_apart: bool
    weekday_contradicting: bool


def read_clock(page_text: PageText, fields: ReceiptFields) -> ClockEvidence:
    """Compare the numbers of the bill, the printed times and the weekday with the day of the sale."""
    texts = [line.text.upper() for line in page_text.lines]
    sale = sale_day(fields)
    minutes = sorted(set(_minutes(texts)))
    agreeing, contradicting = _numbers(texts, sale) if sale else (0, 0)
    return ClockEvidence(
        numbers_agreeing=agreeing,
        numbers_contradicting=contradicting,
        times_apart=len(minutes) > 1 and minutes[-1] - minutes[0] > APART_MINUTES,
        weekday_contradicting=sale is not None and _weekday_contradicts(texts, sale),
    )


def _minutes(texts: Sequence[str]) -> Iterator[int]:
    """Yield the printed times of day in minutes, those of opening hours left out."""
    for text in texts:
        if HOURS.search(text):
            continue
        for hour, minute, half in CLOCK.findall(text):
            if int(hour) < 24:
                shift = 12 if half == "P" and int(hour) < 12 else -12 if half == "A" and int(hour) == 12 else 0
                yield (int(hour) + shift) * 60 + int(minute)


def _numbers(texts: Sequence[str], sale: date) -> tuple[int, int]:
    """Return how many numbers of the bill begin with the day of the sale, and how many with a near one."""
    agreeing = contradicting = 0
    for at, text in enumerate(texts):
        named = NUMBERED.search(text) or (at and NUMBERED.search(texts[at - 1]))
        if not named or OTHER_NUMBER.search(text):
            continue
        for number in DIGITS.findall(text):
            days = {day for day in _days_in(number) if abs((day - sale).days) <= NEAR_DAYS}
            agreeing += sale in days
            contradicting += bool(days) and sale not in days
    return agreeing, contradicting


def _days_in(number: str) -> Iterator[date]:
    """Yield the days that a number begins with, as 20180314, 180314 or 140318."""
    forms = [(number[:4], number[4:6], number[6:8])] if len(number) >= 8 else []
    forms += [(f"20{number[:2]}", number[2:4], number[4:6]), (f"20{number[4:6]}", number[2:4], number[:2])]
    for year, month, day in forms:
        try:
            yield date(int(year), int(month), int(day))
        except ValueError:
            continue


def _weekday_contradicts(texts: Sequence[str], sale: date) -> bool:
    """Report whether the one weekday next to a time or date is not that of the sale."""
    near = [text for text in texts if re.search(r"\d[:/.-]\d", text) and not HOURS.search(text)]
    named = {match[1] for text in near for match in WEEKDAY.finditer(text)}
    return len(named) == 1 and named != {WEEKDAYS[sale.weekday()]}


def is_sold_at_night(texts: Sequence[str]) -> bool:
    """Report whether a printed time of day is between midnight and six; texts in capitals."""
    return any(minute < NIGHT_ENDS_MINUTE for minute in _minutes(texts))
