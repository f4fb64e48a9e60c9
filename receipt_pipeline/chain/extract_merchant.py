"""Stage extract, header part: the name of the shop and its address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from receipt_pipeline.chain.extract_labels import fold_label
from receipt_pipeline.chain.extract_rows import Row

HEADER_ROWS_MAX = 14
ADDRESS_ROWS_MAX = 7
_LEGAL_FORM = re.compile(
    r"\b(?:S\.?D\.?N\.?\s?\.?B\.?H\.?D|SDN|BHD|S/B|SB|PLT|PTE|LTD|LIMITED|INC|LLC|PLC|CORP|GMBH|KG"
    r"|OHG|UG|AG|SARL|SAS"
    r"|SRL|SPA|BV|NV|OY|AB|APS|PTY|PT|CV)\b\.?"
)
_TRADE = re.compile(
    r"\b(?:RESTAURANT|RESTORAN|KEDAI|ENTERPRISE|TRADING|STORES?|SHOP|MART|MARKET|MARKETING|CAFE"
    r"|CAFFE|COFFEE|HOTEL|BAKERY"
    r"|BAKERIES|PHARMACY|SUPERMARKET|HARDWARE|STATIONERY|STATIONER|BOOKSTORES?|BOOKS?|COMPANY|CO"
    r"|SYARIKAT|SERVICES?"
    r"|STATION|CONFECTIONERY|HOUSE|KITCHEN|FOOD|FOODS|SUPPLY|SUPPLIES|ELECTRICAL|MOTOR|MINI|PASAR"
    r"|CLINIC|KLINIK"
    r"|DINER|GRILL|BAR|PIZZA|BAECKEREI|BACKEREI|MARKT|HANDEL|APOTHEKE|NIAGA|VENTURE|RESOURCES|CASH & CARRY)\b"
)
_NOT_A_NAME = re.compile(
    r"\bINVOICE|\bRECEIPT\b|\bCASH (?:BILL|SALES?)\b|\bWELCOME\b|\bTHANK|\b(?:GST|SST|VAT|TAX|CO"
    r"|COMPANY|ROC|REG)\b[ .]*"
    r"(?:ID|NO|REG|:)|\bTEL\b|\bFAX\b|\bPHONE\b|\bDATE\b|\bDATUM\b|WWW|@.*\.|\.COM\b|\bTABLE\b"
    r"|\bCASHIER\b|\bORDER\b"
    r"|\bCUSTOMER\b|\bCOPY\b|\bREPRINT\b|\bDUPLICATE\b|\bTIME\b|\bBILL\b"
)
_STREET = re.compile(
    r"\b(?:JALAN|JLN|JIN|LORONG|LRG|TAMAN|TMN|KAMPUNG|KG|BANDAR|SEKSYEN|SECTION|LEBUH|LEBUHRAYA"
    r"|PERSIARAN|KAWASAN|BATU"
    r"|PLAZA|KOMPLEKS|COMPLEX|COMPLEKS|WISMA|MENARA|BANGUNAN|MALL|LOT|LEVEL|FLOOR|FLR|GROUND|UNIT"
    r"|BLOCK|BLOK|NO|STREET|ST"
    r"|ROAD|RD|AVENUE|AVE|LANE|DRIVE|BLVD|BOULEVARD|SQUARE|HIGHWAY|\w*STRASSE|\w*STR|\w*WEG"
    r"|\w*ALLEE|\w*PLATZ|RUE|VIA"
    r"|CALLE|SELANGOR|JOHOR|KUALA LUMPUR|MALAYSIA|PENANG|PERAK|KEDAH|MELAKA|SARAWAK|SABAH|SINGAPORE"
    r"|OFF|MUKIM|CENTRE)\b"
)
_POSTCODE = re.compile(r"\b\d{5}\b")
_ADDRESS_END = re.compile(
    r"\bT[E3]L(?:EPHONE|P|EFON|NO)?\b|\bFAX\b|\bPHONE\b|\bH/P\b|\bHP\b|\bMOBILE\b|\bE-?MAIL\b"
    r"|WWW\.?|\b(?:GST|SST|VAT)\b"
    r"|\b(?:CO|COMPANY|BUSINESS)\.? ?(?:REG|NO)|\bREG(?:ISTRATION)?\b|\bROC\b|\bINVOICE\b|\bINV\b"
    r"|\bRECEIPT\b|\bBILL\b|\bDATE\b"
    r"|\bCASH(?:IER)?\b|\bSHOPPING HOURS\b|\bBUSINESS HOURS?\b|\bOUTLET\b|\bTABLE\b|\bORDER\b"
    r"|\bUID\b|\bWELCOME\b|\bSTORE\b"
    r"|\bCAREL?INE\b|\bHOTLINE\b|\bTAX\b|\bDOC\b|\bPOS\b|\bATTN\b|\bCUSTOMER\b|\bDATUM\b|\bTRANSACTION\b"
)
_REGISTRATION = re.compile(
    r"\s*[(\[{]\s*(?:(?:CO|COMPANY|ROC|REG|NO|GST"
    r"|ID)[ .:]*)*[A-Z]{0,3}\d{3,}[\d\s-]*-?\s*[A-Z0-9]?\s*[)\]}]?\s*$"
    r"|\s+\d{5,}\s?-\s?[A-Z0-9]$",
    re.IGNORECASE,
)
_CONTINUES_NAME = re.compile(
    r"^(?:\(.*\)\s*)?(?:S\.?D\.?N\.?|BHD|S/B|ENTERPRISE|TRADING|CO\b|COMPANY|LTD|GMBH|INC)\b"
)
_PHONE = re.compile(r"\+?\(?\d{2,4}\)?[- ]{1,2}\d{3,4}[- ]?\d{3,4}")
_ONLY_BRACKET = re.compile(r"^[(\[].*[)\]]$")
_DAY = re.compile(r"\b\d{1,4}[-/.]\d{1,2}[-/.]\d{2,4}\b")


def find_header(rows: Sequence[Row]) -> tuple[str | None, str | None]:
    """Return the name of the shop and its address as printed, each None where not found."""
    head = _header_rows(rows)
    if not head:
        return None, None
    name_index, name = _name(head)
    return name, _address(head[name_index + 1 :] if name_index is not None else head)


def _header_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the first rows that hold words; the reader's specks above the head are left out."""
    return [row for row in rows if re.search(r"[^\W\d_]{2}", row.text) or _PHONE.search(row.text)][
        :HEADER_ROWS_MAX
    ]


def _name(head: Sequence[Row]) -> tuple[int | None, str | None]:
    height = median(row.height for row in head)
    scored = [(_name_score(row, index, height, head), -index) for index, row in enumerate(head)]
    best_score, minus_index = max(scored)
    if best_score <= 0:
        return None, None
    index = -minus_index
    name = without_registration(head[index].text)
    if (
        index > 0
        and _CONTINUES_NAME.match(name.upper())
        and not _NOT_A_NAME.search(head[index - 1].text.upper())
    ):
        name = f"{head[index - 1].text} {name}"
    return index, name


def _name_score(row: Row, index: int, height: float, head: Sequence[Row]) -> float:
    text = row.text.upper()
    letters = len(re.findall(r"[^\W\d_]", text))
    if _NOT_A_NAME.search(text) or letters < 3 or _DAY.search(text) or _PHONE.search(text):
        return -1.0
    bare = without_registration(text)
    address_like = bool(_STREET.search(bare) and re.search(r"\d", bare)) or bool(_POSTCODE.search(bare))
    score = 2.0 - 0.35 * index
    score += 3.0 if _LEGAL_FORM.search(bare) else 0.0
    score += 1.5 if _TRADE.search(bare) else 0.0
    score += min(1.0, max(0.0, row.height / height - 1.0) * 2)
    score += 1.0 if bare != text else 0.0
    score -= 3.0 if address_like else 0.0
    # A customer's name and address come after the shop's own.
    score -= (
        3.0
        if any(re.search(r"\bBILL TO\b|\bINVOICE\b", other.text.upper()) for other in head[1:index])
        else 0.0
    )
    return score


def without_registration(text: str) -> str:
    """Return the name without the company number printed behind it."""
    return _REGISTRATION.sub("", text).strip(" ,;:")


def _address(rows: Sequence[Row]) -> str | None:
    parts: list[str] = []
    for row in rows:
        text = row.text.strip()
        upper = text.upper()
        end = _ADDRESS_END.search(upper)
        if end or _DAY.search(upper) or _PHONE.fullmatch(upper.strip(" :")):
            before = _cut_before(text, end)
            if before and _like_address(before.upper()):
                parts.append(before)
            if parts:
                break
            continue
        if not parts and not _like_address(upper):
            continue
        if parts and _ends_address(upper):
            break
        parts.append(text)
        if len(parts) == ADDRESS_ROWS_MAX:
            break
    return " ".join(parts) if parts else None


def _cut_before(text: str, end: re.Match[str] | None) -> str:
    return text[: end.start()].strip(" (:,-") if end and end.start() > 8 else ""


def _like_address(upper: str) -> bool:
    if _ONLY_BRACKET.match(upper) or _LEGAL_FORM.search(upper):
        return False
    words = fold_label(upper)
    return bool(_STREET.search(words) and len(words) > 6) or bool(
        _POSTCODE.search(words) and re.search("[A-Z]{3}", words)
    )


def _ends_address(upper: str) -> bool:
    return (
        bool(_ONLY_BRACKET.match(upper))
        or not re.search(r"[A-Z]{2}", upper)
        or bool(re.search(r"\d\.\d{2}\b", upper))
    )
