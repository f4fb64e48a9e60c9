"""The day of sale: as printed, as an ISO date, and whether it can be read two ways."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from receipt_pipeline.chain.extract.labels import fold_label
from receipt_pipeline.chain.extract.rows import Row
from receipt_pipeline.chain.values import ReadDate

YEAR_MIN, YEAR_MAX = 1990, 2099
_MONTHS = {
    1: "JANUARY JANUAR JANVIER ENERO GENNAIO JANUARI JAN ENE GEN",
    2: "FEBRUARY FEBRUAR FEVRIER FEBRERO FEBBRAIO FEBRUARI FEB FEV",
    3: "MARCH MARZ MAERZ MARS MARZO MAC MAART MAR MRZ",
    4: "APRIL AVRIL ABRIL APRILE APR AVR ABR",
    5: "MAY MAI MAYO MAGGIO MEI MAG",
    6: "JUNE JUNI JUIN JUNIO GIUGNO JUN GIU",
    7: "JULY JULI JUILLET JULIO LUGLIO JULAI JUL LUG",
    8: "AUGUST AOUT AGOSTO OGOS AUGUSTUS AUG AGO OGO",
    9: "SEPTEMBER SEPTEMBRE SEPTIEMBRE SETTEMBRE SEPT SEP SET",
    10: "OCTOBER OKTOBER OCTOBRE OCTUBRE OTTOBRE OCT OKT OTT",
    11: "NOVEMBER NOVEMBRE NOVIEMBRE NOV",
    12: "DECEMBER DEZEMBER DECEMBRE DICIEMBRE DICEMBRE DISEMBER DEC DEZ DIC DIS",
}
_MONTH_NUMBERS = {name: month for month, names in _MONTHS.items() for name in names.split()}
_NAME = "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True))
_LAST_DAY = r"(?P<day>\d{2}(?=\d{2}:\d{2})|\d{1,2}(?!\d))"
_MARK = r"\s?(?P<mark>[-/.])\s?"


# 2540 to 2599 of the Buddhist era: no other calendar in use prints such a year. A four-digit year may run
# into the time that follows it.
_CENTURIES = "19|20|25(?=[4-9])"
_YEAR = rf"(?P<year>(?:{_CENTURIES})\d{{2}}(?=\D|$|\d{{1,2}}[:.]\d{{2}})|\d{{2}}(?!\d))"
_PATTERNS = (
    re.compile(rf"(?<!\d)(?P<year>(?:{_CENTURIES})\d{{2}}){_MARK}(?P<month>\d{{1,2}})\s?(?P=mark)\s?{_LAST_DAY}"),
    re.compile(r"(?<![\d])(?P<year>20\d{2})年(?P<month>\d{1,2})月(?P<day>\d{1,2})日"),
    re.compile(rf"(?<!\d)(?P<day>\d{{1,2}})(?:ST|ND|RD|TH)?[-/., ']*(?P<name>{_NAME})[-/., ']*{_YEAR}"),
    re.compile(rf"\b(?P<name>{_NAME})[-/., ]*(?P<day>\d{{1,2}})(?:ST|ND|RD|TH)?[-/., ']+{_YEAR}"),
    re.compile(rf"(?<![\d.])(?P<first>\d{{1,2}}){_MARK}(?P<second>\d{{1,2}})\s?(?P=mark)\s?{_YEAR}"),
)
BUDDHIST_YEARS_AHEAD = 543
BUDDHIST_YEAR_MIN = 2540
_THAI = re.compile(r"฿|\bBAHT\b|\bTHB\b|\bTHAILAND\b|[\u0E01-\u0E4E]{2}", re.IGNORECASE)
# The reader sometimes loses the second mark, or takes it for a letter.
_LOST_MARK = re.compile(r"(?<!\d)(?P<first>\d{2})(?P<mark>[-/])(?P<second>\d{2})[VIl1]?(?P<year>(?:19|20)\d{2})(?!\d)")
_ISO_RUN = re.compile(r"(?<!\d)(?P<year>20\d{2})(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01])(?!\d)")
_TIME = re.compile(r"\b\d{1,2}[:.]\d{2}(?:[:.]\d{2})?\s?(?:AM|PM)?\b")
_LABEL = re.compile(r"\b(?:DATE|DATUM|TARIKH|FECHA|DATA|TANGGAL|DT)\b")
_OTHER_DAY = re.compile(
    r"\b(?:DUE|EXPIR\w*|EXP|VALID|UNTIL|BEFORE|BIRTH|DOB|WARRANTY|EFFECTIVE|RETURN BY|STARTING"
    r"|VISIT|SINCE|GUELTIG"
    r"|GULTIG|VOUCHER|MEMBER)\b"
)


@dataclass(frozen=True, slots=True)
class FoundDate:
    """One date in a row: as printed, its possible days, and how well its row supports it."""

    printed: str
    row: int
    day_first: datetime.date | None
    month_first: datetime.date | None
    dotted: bool
    weight: int

    @property
    def two_ways(self) -> bool:
        """Report whether both orders of day and month give a day, and not the same one."""
        both = self.day_first is not None and self.month_first is not None
        return both and self.day_first != self.month_first


def find_dates(rows: Sequence[Row]) -> list[FoundDate]:
    """Return all dates of the receipt in reading order."""
    thai = any(_THAI.search(row.text) for row in rows)
    return [found for index, row in enumerate(rows) for found in _dates_of(row.text, index, short_years_buddhist=thai)]


def choose_date(found: Sequence[FoundDate], *, country_day_first: bool | None) -> ReadDate | None:
    """Choose the day of sale and decide the order of day and month, or call the date ambiguous.

    The order follows from the print itself (dots, a number over 12), from other dates of the same
    receipt, or from the receipt's country.
    """
    if not found:
        return None
    best = max(found, key=lambda date: (date.weight, -date.row))
    if not best.two_ways:
        day = best.day_first or best.month_first
        assert day is not None
        return ReadDate(best.printed, day.isoformat(), ambiguous=False)
    day_first = _order_of(best, found, country_day_first)
    if day_first is None:
        return ReadDate(best.printed, None, ambiguous=True)
    day = best.day_first if day_first else best.month_first
    assert day is not None
    return ReadDate(best.printed, day.isoformat(), ambiguous=False)


def _order_of(best: FoundDate, found: Sequence[FoundDate], country_day_first: bool | None) -> bool | None:
    if best.dotted:
        return True
    shown = {date.month_first is None for date in found if not date.two_ways and _has_one_order(date)}
    if len(shown) == 1:
        return shown.pop()
    return country_day_first


def _has_one_order(date: FoundDate) -> bool:
    return (date.day_first is None) != (date.month_first is None)


def _dates_of(text: str, row: int, *, short_years_buddhist: bool) -> Iterator[FoundDate]:
    upper = fold_label(text, keep_marks=True)
    taken: list[tuple[int, int]] = []
    for pattern in (*_PATTERNS, _LOST_MARK, _ISO_RUN):
        for match in pattern.finditer(upper):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            days = _days(match, short_years_buddhist=short_years_buddhist)
            if days is None:
                continue
            taken.append(match.span())
            printed = text[match.start() : match.end()] if len(upper) == len(text) else match.group()
            if pattern is _LOST_MARK:
                printed = match["mark"].join((match["first"], match["second"], match["year"]))
            weight = _weight(upper, match, run_together=pattern is _ISO_RUN)
            dotted = match.groupdict().get("mark") == "."
            yield FoundDate(printed, row, *days, dotted, weight)


def _days(
    match: re.Match[str], *, short_years_buddhist: bool
) -> tuple[datetime.date | None, datetime.date | None] | None:
    """Return the day read day first and month first; the same day twice where the print decides it."""
    parts = match.groupdict()
    year = _christian_year(parts["year"], short_years_buddhist=short_years_buddhist)
    if not YEAR_MIN <= year <= YEAR_MAX:
        return None
    if parts.get("first") is None:
        month = _MONTH_NUMBERS[parts["name"]] if parts.get("name") else int(parts["month"])
        day = _date(year, month, int(parts["day"]))
        return None if day is None else (day, day)
    first, second = int(parts["first"]), int(parts["second"])
    day_first, month_first = _date(year, second, first), _date(year, first, second)
    if day_first is None and month_first is None:
        return None
    return day_first, month_first


def _christian_year(printed: str, *, short_years_buddhist: bool) -> int:
    year = int(printed)
    if len(printed) == 2:
        # On a Thai receipt 67 is the year 2567; below 40 it can only be meant as the common era has it.
        buddhist = short_years_buddhist and year >= BUDDHIST_YEAR_MIN % 100
        year += 2500 if buddhist else 2000
    return year - BUDDHIST_YEARS_AHEAD if year >= BUDDHIST_YEAR_MIN else year


def _date(year: int, month: int, day: int) -> datetime.date | None:
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return None


def _weight(upper: str, match: re.Match[str], *, run_together: bool) -> int:
    before = upper[: match.start()]
    if _OTHER_DAY.search(before):
        return 0
    if run_together:
        # Eight digits in a row are mostly a number of something; with a label they are a date.
        return 2 if _LABEL.search(before) else 0
    weight = 2
    weight += 2 if _LABEL.search(before) else 0
    # Right after a letter it is more likely a part of some code.
    weight -= 1 if re.search(r"[A-Z]$", before) and not _LABEL.search(before) else 0
    weight += 1 if _TIME.search(upper[match.end() :]) or _TIME.search(before) else 0
    return weight
