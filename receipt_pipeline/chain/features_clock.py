"""Clock, weekday and numbers of a receipt: what they say of the day of the sale beside its date."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from receipt_pipeline.chain.features_dates import WEEKDAY, WEEKDAYS, sale_day
from receipt_pipeline.chain.values import Reading, ReceiptFields

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


def read_clock(reading: Reading, fields: ReceiptFields) -> ClockEvidence:
    """Compare the numbers of the bill, the printed times and the weekday with the day of the sale."""
    texts = [line.text.upper() for line in reading.lines]
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
                shift = (
                    12 if half == "P" and int(hour) < 12 else -12 if half == "A" and int(hour) == 12 else 0
                )
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
    """Tell whether the one weekday beside a time or date is not that of the sale."""
    near = [text for text in texts if re.search(r"\d[:/.-]\d", text) and not HOURS.search(text)]
    named = {match[1] for text in near for match in WEEKDAY.finditer(text)}
    return len(named) == 1 and named != {WEEKDAYS[sale.weekday()]}


def sold_at_night(texts: Sequence[str]) -> bool:
    """Tell whether a printed time of day lies between midnight and six; texts in capitals."""
    return any(minute < NIGHT_ENDS_MINUTE for minute in _minutes(texts))
