"""Stage extract, header part: the name of the shop and its address."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from receipt_pipeline.chain.extract_labels import fold_label
from receipt_pipeline.chain.extract_rows import Row
from receipt_pipeline.chain.extract_rules import RULES_V1, ExtractRules
from receipt_pipeline.chain.header_mending import (
    mended_address,
    mended_name,
    with_letters_for_digits,
)

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
_NUMBER_BEHIND_NAME = re.compile(
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

    `numbered` tells that the row below holds the number of a company and nothing else.
    """

    text: str
    upper: str
    height: float
    numbered: bool = False


def find_header(rows: Sequence[Row], rules: ExtractRules = RULES_V1) -> tuple[str | None, str | None]:
    """Return the name of the shop and its address as printed, each None where not found."""
    name, address = _found_header(rows, rules)
    if not rules.mends_headers:
        return name, address
    if name and rules.mends_name_digits:
        name = with_letters_for_digits(name)
    return mended_name(name) if name else name, mended_address(address) if address else address


def _found_header(rows: Sequence[Row], rules: ExtractRules) -> tuple[str | None, str | None]:
    head = _head(rows, rules)
    if not head:
        return None, None
    chosen = _choose_name(head)
    if chosen is None:
        return None, _address(head, rules)
    first, last = chosen
    below, above = _address(head[last + 1 :], rules), _address(head[:first], rules)
    name = without_number(" ".join(line.text for line in head[first : last + 1]))
    # Some shops print the place first and the company that runs it below.
    better_above = above is not None and (below is None or len(_POSTCODE.findall(below)) == 0)
    return name, above if better_above else below


def without_number(text: str) -> str:
    """Return the name without the number of a branch before it or of the company behind it."""
    return _NUMBER_BEHIND_NAME.sub("", re.sub(r"^#\d+\s*", "", text)).strip(" ,;:·*")


def _head(rows: Sequence[Row], rules: ExtractRules) -> list[_Line]:
    """Return the rows of words above the first amount; specks that were read as text are left out."""
    head: list[_Line] = []
    for row in rows:
        text = " ".join(unicodedata.normalize("NFKC", row.text).split())
        if rules.names_above_numbers and head and _ONLY_NUMBER.match(text):
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
    # A customer's name stands below the title of the document.
    score -= 1.5 if any("INVOICE" in line.upper for line in head[1:index]) else 0.0
    return score


def _needs_line_above(name: str, above: str) -> bool:
    """Tell whether a name begins on the line above: it is only a form, or closes a bracket opened there."""
    if _NOT_A_NAME.search(above) or _LEGAL_FORM.search(above) or not re.search(r"[A-Z]{3}", above):
        return False
    rest = re.sub(r"\([^)]*\)", "", _TRADE.sub("", _LEGAL_FORM.sub("", without_number(name))))
    if not re.search(r"[A-Z]", rest) or name.startswith("("):
        return True
    opening, closing = name.find("("), name.find(")")
    return (closing >= 0 and (opening < 0 or closing < opening)) or _one_name(above, name)


def _one_name(upper_line: str, lower_line: str) -> bool:
    """Tell whether two lines are one name: both of a trade, sharing a word, neither within the other."""
    if any(
        _NOT_A_NAME.search(line) or re.search(r"\d{3}", without_number(line))
        for line in (upper_line, lower_line)
    ):
        return False
    words = [set(re.findall(r"[A-Z']{3,}", line)) - _ARTICLES for line in (upper_line, lower_line)]
    shared = words[0] & words[1]
    if not shared or shared in words:
        return False
    return all(_TRADE.search(line) for line in (upper_line, lower_line))


def _address(lines: Sequence[_Line], rules: ExtractRules) -> str | None:
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
        elif parts and rules.knows_branches and postcode_seen and _BRANCH.match(line.upper):
            parts.append(line.text)
        elif parts and _ends_address(line.upper, postcode_seen=postcode_seen):
            break
        elif parts or _opens_address(line.upper):
            parts.append(line.text)
            postcode_seen = postcode_seen or bool(_POSTCODE.search(line.upper))
        if len(parts) == ADDRESS_ROWS_MAX:
            break
    if rules.knows_branches and len(parts) > 2 and fold_label(parts[0]) in map(fold_label, parts[1:]):
        # The branch is named after its place, and the place stands in the address as well.
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
