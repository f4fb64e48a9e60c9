"""The name of the shop and its address, as printed and repaired where their form proves it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from receipt_pipeline.chain.extract.labels import fold_label, one_letter_apart
from receipt_pipeline.chain.extract.rows import Row
from receipt_pipeline.chain.ocr.letters import KNOWN_WORDS

HEADER_ROWS_MAX = 14
ADDRESS_ROWS_MAX = 8
NAME_LINES_ABOVE_MAX = 2
_LEGAL_FORM = re.compile(
    r"\b(?:S\.?D\.?N\.?\s?\.?B\.?H\.?D|SDN|BHD|S/B|SB|PLT|PTE|LTD|LIMITED|INC|LLC|PLC|CORP|GMBH|KG|OHG|UG|AG"
    r"|SARL|SAS|SRL|SPA|BV|NV|OY|AB|APS|PTY|CV)\b\.?|^PT\.? (?=[A-Z])"
)
_TRADE = re.compile(
    r"\b(?:RESTAURANT|RESTORAN|KEDAI|ENTERPRISE|TRADING|STORES?|SHOP|MART|MARKET|MARKETING|CAFE|CAFFE|COFFEE"
    r"|HOTEL|BAKERY|BAKERIES|PHARMACY|SUPERMARKET|HARDWARE|STATIONERY|STATIONER|BOOKSTORES?|BOOKS?|COMPANY|CO"
    r"|SYARIKAT|SERVICES?|STATION|CONFECTIONERY|HOUSE|KITCHEN|FOOD|FOODS|SUPPLY|SUPPLIES|ELECTRICAL|MOTOR"
    r"|MINI|PASAR|CLINIC|KLINIK|DINER|GRILL|BAR|PIZZA|BAECKEREI|BACKEREI|MARKT|HANDEL|APOTHEKE|NIAGA|VENTURE"
    r"|RESOURCES|CASH & CARRY)\b"
)
_NOT_A_NAME = re.compile(
    r"INVOICE|\bRECEIPT\b|\bCASH (?:BILL|SALES?)\b|\bWELCOME\b|\bTHANK|\bTQ\s?FOR\b|\bWWW|@.*\.|\.COM\b"
    r"|\b(?:GST|SST|VAT|TAX|CO|COMPANY|ROC|REG)\b[ .]*(?:ID|NO|REG|:)|\bTEL\b|\bFAX\b|\bPHONE\b|\bTIME\b"
    r"|\bDATE\b|\bDATUM\b|\bTABLE\b|\bCASHIER\b|\bORDER\b|\bCUSTOMER\b|\bCOPY\b|\bREPRINT\b|\bDUPLICATE\b"
    r"|\bBILL\b|\bGST REG|\bRETOURE?\b|\bREFUND\b"
)
_STREET = re.compile(
    r"\b(?:JALAN|JLN|JIN|LORONG|LRG|TAMAN|TMN|KAMPUNG|KG|BANDAR|SEKSYEN|SECTION|LEBUH|LEBUHRAYA|PERSIARAN"
    r"|KAWASAN|BATU|PLAZA|KOMPLEKS|COMPLEX|COMPLEKS|WISMA|MENARA|BANGUNAN|MALL|LOT|LEVEL|FLOOR|FLR|TINGKAT"
    r"|GROUND|UNIT|BLOCK|BLOK|STREET|ST|ROAD|RD|AVENUE|AVE|LANE|DRIVE|BLVD|BOULEVARD|SQUARE|HIGHWAY"
    r"|\w*STRASSE|\w*STR|\w*WEG|\w*ALLEE|\w*PLATZ|RUE|VIA|CALLE|OFF|MUKIM|CENTRE)\b|^NO ?\d|^NO [A-Z0-9]+ "
)
_PLACE = re.compile(
    r"\b(?:SELANGOR|JOHOR|KUALA LUMPUR|MALAYSIA|PENANG|PERAK|KEDAH|MELAKA|SARAWAK|SABAH|PAHANG|KELANTAN"
    r"|TERENGGANU|NEGERI SEMBILAN|WILAYAH|DARUL|SINGAPORE|TMN|TAMAN|JALAN|JLN|BANDAR)\b"
)
_POSTCODE = re.compile(r"(?<!LOT )(?<!PT )(?<!P\.T\. )\b\d{5}\b")
_ADDRESS_END = re.compile(
    r"\b[TL][E3][L1I](?:EPHONE|P|EFON|NO)?\b|\bFAX\b|\bPHONE\b|\bH/P\b|\bHP\b|\bMOBILE\b|\bE-?MAIL\b|WWW\.?"
    r"|\b(?:GST|SST|VAT|GSI)\b|\b(?:CO|COMPANY|BUSINESS)\.? ?(?:REG|NO)|\bREG(?:ISTRATION)?\b|\bROC\b"
    r"|INVOICE|\bINV\b|\bRECEIPT\b|\bBILL\b|\bDATE\b|\bCASH(?:IER)?\b|\bSHOPPING HOURS\b"
    r"|\bBUSINESS HOURS?\b|\bOUTLET\b"
    r"|\bTABLE\b|\bORDER\b|\bUID\b|\bWELCOME\b|\bSTORE\b|CAREL?[IL1]NE\b|\bHOTLINE\b|\bTAX\b|\bDOC\b|\bPOS\b"
    r"|\bATTN\b|\bCUSTOMER\b|\bDATUM\b|\bTRANSACTION\b|\bSITE ?:"
)
_NUMBER_AFTER_NAME = re.compile(
    r"\s*[(\[{]\s*(?:(?:CO|COMPANY|ROC|REG|NO|GST|ID)[ .:]*)*[A-Z]{0,3}\d{3,}[\d\s-]*-?"
    r"\s*[A-Z0-9]?\s*[)\]}]?\s*$"
    r"|\s+\d{5,}\s?-\s?[A-Z0-9]$"
    r"|(?:(?<=S/B)|(?<=BHD)|(?<=HD\.)|(?<=\bSB))\s*[(\[]?\s*\d{4,}.*$"
    r"|(?<=BHD)\s+[A-Z]{1,2}$",
    re.IGNORECASE,
)
_PHONE = re.compile(r"\+?\(?\d{2,4}\)?[- ]{1,2}\d{3,4}[- ]?\d{3,4}")
_ONLY_NUMBER = re.compile(
    r"^\W*(?:(?:CO|COMPANY|ROC|REG|NO)[ .:]*)*[A-Z]{0,3}\d{5,}[\d\s]*-?\s?[A-Z]?\W*$", re.IGNORECASE
)
# The number and name of a branch, as it closes some addresses.
_BRANCH = re.compile(r"^\d{3,4}\s?-\s?[A-Z]{3}[A-Z .]*$")
_ONLY_BRACKET = re.compile(r"^[(\[].*[)\]]$")
_DAY = re.compile(r"\b\d{1,4}[-/.]\d{1,2}[-/.]\d{2,4}\b")
_AMOUNT = re.compile(r"\d[.,]\d{2}\b(?![.,/-])")
_ARTICLES = frozenset({"THE", "AND", "OF"})


@dataclass(frozen=True, slots=True)
class _Line:
    """One row of the head: its text in plain brackets, the same in upper case, its height in pixels.

    `numbered` means that the row below holds the number of a company and nothing else.
    """

    text: str
    upper: str
    height: float
    numbered: bool = False


def find_header(rows: Sequence[Row]) -> tuple[str | None, str | None]:
    """Return the name of the shop and its address as printed, each None where not found."""
    name, address = _found_header(rows)
    return (
        normalized_name(with_letters_for_digits(name)) if name else name,
        normalized_address(address) if address else address,
    )


def _found_header(rows: Sequence[Row]) -> tuple[str | None, str | None]:
    head = _head(rows)
    if not head:
        return None, None
    chosen = _choose_name(head)
    if chosen is None:
        return None, _address(head)
    first, last = chosen
    below, above = _address(head[last + 1 :]), _address(head[:first])
    name = without_number(" ".join(line.text for line in head[first : last + 1]))
    # Some shops print the place first and the company that runs it below.
    better_above = above is not None and (below is None or len(_POSTCODE.findall(below)) == 0)
    return name, above if better_above else below


def without_number(text: str) -> str:
    """Return the name without the number of a branch before it or of the company after it."""
    return _NUMBER_AFTER_NAME.sub("", re.sub(r"^#\d+\s*", "", text)).strip(" ,;:·*")


def _head(rows: Sequence[Row]) -> list[_Line]:
    """Return the rows of words above the first amount; specks that were read as text are left out."""
    head: list[_Line] = []
    for row in rows:
        text = " ".join(unicodedata.normalize("NFKC", row.text).split())
        if head and _ONLY_NUMBER.match(text):
            head[-1] = replace(head[-1], numbered=True)
        if _AMOUNT.search(text) and not _DAY.search(text):
            break
        if re.search(r"[^\W\d_]{2}", text) or re.fullmatch(r"\d{5}", text) or _PHONE.search(text):
            head.append(_Line(text, text.upper().replace("5/B", "S/B"), row.height))
    return head[:HEADER_ROWS_MAX]


def _choose_name(head: Sequence[_Line]) -> tuple[int, int] | None:
    """Return the first and last line of the name, or None."""
    height = median(line.height for line in head)
    best_score, minus_index = max((_name_score(head, index, height), -index) for index in range(len(head)))
    if best_score <= 0:
        return None
    index = -minus_index
    first = index
    while first > max(0, index - NAME_LINES_ABOVE_MAX):
        name = " ".join(line.upper for line in head[first : index + 1])
        if not _needs_line_above(name, head[first - 1].upper):
            break
        first -= 1
    if first < index:
        return first, index
    if index + 1 < len(head) and _one_name(head[index].upper, head[index + 1].upper):
        return index, index + 1
    return index, index


def _name_score(head: Sequence[_Line], index: int, height: float) -> float:
    upper = head[index].upper
    if _NOT_A_NAME.search(upper) or len(re.findall(r"[^\W\d_]", upper)) < 3:
        return -1.0
    if _DAY.search(upper) or _PHONE.search(upper):
        return -1.0
    bare = without_number(upper)
    score = 2.0 - 0.35 * index
    score += 3.0 if _LEGAL_FORM.search(bare) else 0.0
    score += 1.5 if _TRADE.search(bare) else 0.0
    score += min(1.0, max(0.0, head[index].height / height - 1.0) * 2)
    score += 1.0 if bare != upper else 0.0
    score += 1.5 if head[index].numbered else 0.0
    score -= 3.0 if re.search(r"\d", bare) and _STREET.search(fold_label(bare)) else 0.0
    score -= 3.0 if _POSTCODE.search(bare) or upper.endswith(",") else 0.0
    # A customer's name is below the title of the document.
    score -= 1.5 if any("INVOICE" in line.upper for line in head[1:index]) else 0.0
    return score


def _needs_line_above(name: str, above: str) -> bool:
    """Report whether a name begins on the line above: it is only a form, or closes a bracket opened there."""
    if _NOT_A_NAME.search(above) or _LEGAL_FORM.search(above) or not re.search(r"[A-Z]{3}", above):
        return False
    rest = re.sub(r"\([^)]*\)", "", _TRADE.sub("", _LEGAL_FORM.sub("", without_number(name))))
    if not re.search(r"[A-Z]", rest) or name.startswith("("):
        return True
    opening, closing = name.find("("), name.find(")")
    return (closing >= 0 and (opening < 0 or closing < opening)) or _one_name(above, name)


def _one_name(upper_line: str, lower_line: str) -> bool:
    """Report whether two lines are one name: both of a trade, sharing a word, neither within the other."""
    if any(_NOT_A_NAME.search(line) or re.search(r"\d{3}", without_number(line)) for line in (upper_line, lower_line)):
        return False
    words = [set(re.findall(r"[A-Z']{3,}", line)) - _ARTICLES for line in (upper_line, lower_line)]
    shared = words[0] & words[1]
    if not shared or shared in words:
        return False
    return all(_TRADE.search(line) for line in (upper_line, lower_line))


def _address(lines: Sequence[_Line]) -> str | None:
    parts: list[str] = []
    postcode_seen = False
    for line in lines:
        end = _ADDRESS_END.search(line.upper)
        if end or _DAY.search(line.upper) or _PHONE.fullmatch(line.upper.strip(" :")):
            before = line.text[: end.start()].strip(" (:,-") if end and end.start() > 8 else ""
            if before and _opens_address(before.upper()):
                parts.append(before)
            if parts:
                break
        elif parts and postcode_seen and _BRANCH.match(line.upper):
            parts.append(line.text)
        elif parts and _ends_address(line.upper, postcode_seen=postcode_seen):
            break
        elif parts or _opens_address(line.upper):
            parts.append(line.text)
            postcode_seen = postcode_seen or bool(_POSTCODE.search(line.upper))
        if len(parts) == ADDRESS_ROWS_MAX:
            break
    if len(parts) > 2 and fold_label(parts[0]) in map(fold_label, parts[1:]):
        # The branch is named after its place, and the place is in the address as well.
        del parts[0]
    return " ".join(parts) if parts else None


def _opens_address(upper: str) -> bool:
    if _ONLY_BRACKET.match(upper) or _LEGAL_FORM.search(upper):
        return False
    words = fold_label(upper)
    if _STREET.search(words) or _PLACE.search(words):
        return len(words) > 3
    if _POSTCODE.search(words):
        return bool(re.search("[A-Z]{3}", words))
    # A house number, then words, as most countries write it.
    return bool(re.match(r"^[A-Z]{0,3}-?\d+[A-Z]?\s?[,-]\s?[\dA-Z]{2}", upper))


def _ends_address(upper: str, *, postcode_seen: bool) -> bool:
    if _ONLY_BRACKET.match(upper):
        return True
    if postcode_seen:
        return not (_PLACE.search(fold_label(upper)) or re.fullmatch(r"[A-Z]{5,12}[.,]?", upper))
    return not re.search(r"[A-Z]{2}", upper) and not _POSTCODE.search(upper)


_FORM = r"(?:SDN|BHD|LTD|PTE|ENTERPRISE|TRADING)\b"
_OPEN_BRACKET = re.compile(rf"\((\w{{1,3}})\s+(?={_FORM})", re.IGNORECASE)
_MARK_BEFORE_FORM = re.compile(rf"(?<=[A-Z]{{5}})[.:;·-](?=\s+{_FORM})", re.IGNORECASE)
# What is left of a company's number after the form of the company.
_NUMBER_LEFT = re.compile(r"(?<=\bBHD|\bLTD)\.?\s+\S*\d\S*[)\]}]$", re.IGNORECASE)
_TWO_BRACKETS = re.compile(r"\(\s*\((?=[^()]*\)[^()]*$)")
# Between the stops of initials a digit is a letter.
_DIGIT_AMONG_INITIALS = re.compile(r"(?<=[A-Z]\.)[10](?=\.[A-Z]?\b)", re.IGNORECASE)
_STOP_IN_WORD = re.compile(r"\b([A-Z]+)\.([A-Z]+)\b", re.IGNORECASE)
_GLUED_POSTCODE = re.compile(r"(?<!\d)(\d{5})(?=[A-Z]{2})", re.IGNORECASE)
_LETTER_IN_NUMBER = re.compile(r"(?<=\b\d\d)O\b|(?<=\b\d)O(?=\d)")
_GLUED_NUMBER = re.compile(r"\b(\d{1,4})([A-Z]{4,})\b", re.IGNORECASE)
_STOP_FOR_COMMA = re.compile(
    r"(?<=[A-Z]{4})\.(?=[A-Z]{4})|(?<=\d)\.(?= ?[A-Z]{4})|(?<=\d):(?= )|(?<=\b(?:KL|PJ|JB))\.(?= [A-Z])", re.IGNORECASE
)
_COMMA_FOR_STOP = re.compile(r"(?<=\b[A-Z]\.[A-Z]),(?= ?\d)")
_LONG_WORD = re.compile(r"[A-Z]{8,}", re.IGNORECASE)
_GLUED_COMMA = re.compile(r",(?=[^\s,])")
# A nought between letters of a word; the short form of Sendirian Berhad, either letter read as a digit.
_WORD = re.compile(r"(?<![\w.])[A-Z0-9]{4,}(?![\w.])", re.IGNORECASE)
_NOUGHT_IN_WORD = re.compile(r"(?<=[A-Z])0+(?=[A-Z])", re.IGNORECASE)
_SHORT_FORM = re.compile(r"(?<![\w/])(?:[S5]/[B8])(?![\w/])")
_LETTER_OF_DIGIT = str.maketrans("0158", "OISB")
LETTERS_MIN = 4
# So long a word one inner letter from a known one is that one: nothing else is spelt so.
LONG_WORD_MIN = 8
_LONG_KNOWN = sorted(word for word in KNOWN_WORDS if len(word) >= LONG_WORD_MIN)


def normalized_name(name: str) -> str:
    """Return the name with the marks that reading lost or made up put right."""
    name = _TWO_BRACKETS.sub("(", _OPEN_BRACKET.sub(r"(\1) ", name.replace("_", " ")))
    name = _DIGIT_AMONG_INITIALS.sub(lambda match: "I" if match.group() == "1" else "O", name)
    name = _NUMBER_LEFT.sub("", _LONG_WORD.sub(_as_known, _MARK_BEFORE_FORM.sub("", name)))
    return " ".join(name.split())


def with_letters_for_digits(name: str) -> str:
    """Return the name with digits put right that were read for letters.

    A nought between letters is the letter in any word of four letters and more (`F00DICIOUS`); other
    digits are letters only where the word is a known one with them (`5PEED`). `S/8` is `S/B`.
    """
    return _SHORT_FORM.sub("S/B", _WORD.sub(_lettered, name))


def _lettered(match: re.Match[str]) -> str:
    word = match.group()
    letters = sum(character.isalpha() for character in word)
    if letters == len(word) or letters < LETTERS_MIN:
        return word
    lettered = word.translate(_LETTER_OF_DIGIT)
    if lettered.upper() in KNOWN_WORDS:
        return lettered.upper() if word.upper() == word else lettered.title()
    nought = "O" if word.upper() == word else "o"
    return _NOUGHT_IN_WORD.sub(lambda found: nought * len(found.group()), word)


def normalized_address(address: str) -> str:
    """Return the address with swallowed blanks back in place and stops within it turned to what they are."""
    address = _STOP_IN_WORD.sub(_joined_if_known, address.replace("_", " "))
    address = _LONG_WORD.sub(_as_known, address)
    address = _GLUED_POSTCODE.sub(r"\1 ", address)
    address = _GLUED_NUMBER.sub(_parted_if_known, address)
    address = _COMMA_FOR_STOP.sub(".", _LETTER_IN_NUMBER.sub("0", address))
    # Between the parts of an address a comma is meant; the reader often takes a small one for a stop.
    address = " ".join(_STOP_FOR_COMMA.sub(",", address).split())
    glued = len(_GLUED_COMMA.findall(address))
    # A shop sets its commas one way: the few that seem glued are blanks that reading swallowed.
    return _GLUED_COMMA.sub(", ", address) if glued * 2 <= address.count(", ") else address


def _joined_if_known(match: re.Match[str]) -> str:
    joined = match[1] + match[2]
    return joined if joined.upper() in KNOWN_WORDS else match.group()


def _parted_if_known(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]}" if match[2].upper() in KNOWN_WORDS else match.group()


def _as_known(match: re.Match[str]) -> str:
    word = match.group().upper()
    if word in KNOWN_WORDS:
        return match.group()
    # Another last letter is mostly a plural.
    ends = (word[0], word[-1])
    near = [known for known in _LONG_KNOWN if (known[0], known[-1]) == ends and one_letter_apart(word, known)]
    if len(near) != 1:
        return match.group()
    return near[0].title() if match.group()[1].islower() else near[0]
