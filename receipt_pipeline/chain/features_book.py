"""The money book of a reading: every printed amount with its row and what its label calls it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from receipt_pipeline.chain.values import Reading, TextLine


class Label(StrEnum):
    """What a row says its amount is; `ITEM` where it says nothing and no total came before it."""

    COUNT = "count"
    ROUNDING = "rounding"
    CHANGE = "change"
    SUBTOTAL = "subtotal"
    TAX = "tax"
    SERVICE = "service"
    DISCOUNT = "discount"
    TOTAL = "total"
    CASH = "cash"
    ITEM = "item"
    OTHER = "other"


# The first pattern that fits names the row, so narrower words come before wider ones.
LABEL_PATTERNS: tuple[tuple[Label, re.Pattern[str]], ...] = tuple(
    (label, re.compile(pattern))
    for label, pattern in (
        (
            Label.COUNT,
            r"\b(?:TOTAL|T\.?)? ?(?:QTY|QUANTITY)\b *:?|ITEM\(?S?\)? ?COUNT|NO\.? OF ITEMS?|TOTAL ITEMS?\b",
        ),
        (Label.TOTAL, r"ROUNDED TOTAL|TOTAL (?:AFTER|ROUND(?:ED)?)\b|TOTAL.*INCL|AMOUNT TO BE PAID"),
        (Label.ROUNDING, r"ROUND|\bRND\b|\bADJ\b|PEMBUNDARAN|PELARASAN|RUNDUNG"),
        (Label.CHANGE, r"\bCHANGE\b|RUECKGELD|RÜCKGELD|\bBAKI\b|KEMBALI|\bRENDU\b"),
        (Label.SUBTOTAL, r"SUB ?-? ?TOTAL|EXCL|ZWISCHENSUMME|\bNETTO\b|BEFORE (?:TAX|GST)|SOUS-TOTAL"),
        (Label.SERVICE, r"SERVICE CH|SERV\.? ?CH|\bSVC\b|SER\.? ?CHG"),
        (Label.DISCOUNT, r"\bDISC|RABATT|\bSAVING"),
        (Label.TAX, r"\bGST\b|\bTAX\b|\bSST\b|\bVAT\b|\bMWST\b|\bUST\b|\bTVA\b"),
        (Label.TOTAL, r"TOTAL|AM(?:OUN)?T DUE|\bNETT?\b|\bSUMME\b|GESAMT|JUMLAH|BALANCE DUE|ZU ZAHLEN"),
        (
            Label.CASH,
            r"\bCASH\b(?! ?(?:SALE|BILL|IER))|TENDER|\bPAID\b|PAYMENT|\bVISA\b|MASTER"
            r"|\bTUNAI\b|\bBAR\b|GEGEBEN|RECEIVED",
        ),
    )
)

AMOUNT = re.compile(
    r"(?<![\d.,])(?P<sign>-|\()?(?P<cur>RM|EUR|USD|MYR|SGD|GBP|[€$£])? ?(?P<minus>-)?"
    r"(?P<whole>\d{1,3}(?:[.,' ]\d{3})+|\d{1,9})[.,](?P<cents>\d{2})(?![\d]|[.,]\d)"
    r"(?P<after>-|\)| ?(?:RM|EUR|USD|MYR|[€$£%]))?"
)
NOT_COUNTED = re.compile(r"[^A-ZÄÖÜ0-9.%&\-() ]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One printed amount in minor units (two decimals), its row, label and the line it stands on."""

    minor: int
    row: int
    label: Label
    line: TextLine
    currency_mark: str


@dataclass(slots=True)
class MoneyBook:
    """All amounts of one reading in reading order, and the rows' texts in upper case."""

    entries: list[Entry] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)

    def minors(self, *labels: Label) -> list[int]:
        """Return the amounts under these labels, in reading order."""
        return [entry.minor for entry in self.entries if entry.label in labels]

    @property
    def pool(self) -> list[int]:
        """Return every amount, in reading order."""
        return [entry.minor for entry in self.entries]


def keep_book(reading: Reading) -> MoneyBook:
    """Enter every printed amount of the reading under the label of its row.

    A label without an amount waits for the next row of bare amounts: scans read column by column
    give all labels first and then all amounts, in the same order.
    """
    book = MoneyBook()
    waiting: deque[Label] = deque()
    closed = False
    for number, row in enumerate(_rows(reading)):
        text = " ".join(line.text for line in row).upper()
        book.rows.append(text)
        amounts = [(line, *parsed) for line in row for parsed in _amounts(line.text.upper())]
        label = _label_of(text)
        if label is not None and not amounts:
            waiting.append(label)
            continue
        for line, minor, mark in amounts:
            named = label
            if named is None and waiting and _bare(text):
                named = waiting.popleft()
            if named is None:
                named = Label.OTHER if closed else Label.ITEM
            book.entries.append(Entry(minor=minor, row=number, label=named, line=line, currency_mark=mark))
        closed = closed or label in (Label.SUBTOTAL, Label.TOTAL)
        if amounts and label is None and not _bare(text):
            # An item's row ends whatever column of labels came before it.
            waiting.clear()
    return book


def _rows(reading: Reading) -> Iterator[list[TextLine]]:
    """Yield lines that stand side by side on one page as one row, left to right."""
    row: list[TextLine] = []
    for line in sorted(reading.lines, key=lambda line: (line.page, line.box[1] + line.box[3])):
        if row and not _side_by_side(row[0], line):
            yield sorted(row, key=lambda line: line.box[0])
            row = []
        row.append(line)
    if row:
        yield sorted(row, key=lambda line: line.box[0])


def _side_by_side(first: TextLine, second: TextLine) -> bool:
    if first.page != second.page:
        return False
    height = min(first.box[3] - first.box[1], second.box[3] - second.box[1])
    centres_apart = abs(first.box[1] + first.box[3] - second.box[1] - second.box[3]) / 2
    return centres_apart < 0.5 * height


def _label_of(text: str) -> Label | None:
    plain = NOT_COUNTED.sub(" ", text)
    for label, pattern in LABEL_PATTERNS:
        if pattern.search(plain):
            return label
    return None


def _bare(text: str) -> bool:
    """Tell whether a row holds amounts and hardly anything else, such as `RM 12.50 SR`."""
    return sum(character.isalpha() for character in AMOUNT.sub("", text)) <= 3


def _amounts(text: str) -> Iterator[tuple[int, str]]:
    """Yield (minor units, currency mark or "") of each amount with two decimals; percentages are none."""
    for match in AMOUNT.finditer(text):
        after = (match["after"] or "").strip()
        if after == "%" or text[match.end() : match.end() + 2].strip().startswith("%"):
            continue
        minor = int(re.sub(r"\D", "", match["whole"])) * 100 + int(match["cents"])
        negative = match["sign"] or match["minus"] or after == "-"
        mark = match["cur"] or (after if after not in ("-", ")") else "")
        yield (-minor if negative else minor), mark
