"""Stage extract, labels part: what the words beside an amount say it is."""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from functools import lru_cache

from receipt_pipeline.chain.extract_rules import RULES_V1, ExtractRules


class LabelKind(StrEnum):
    """What a labelled amount is."""

    GRAND_TOTAL = "grand_total"
    TOTAL = "total"
    TOTAL_BY_PART = "total_by_part"
    SUBTOTAL = "subtotal"
    CARRY = "carry"
    TAX = "tax"
    ROUNDING = "rounding"
    CASH = "cash"
    CHANGE = "change"
    TIP = "tip"
    DISCOUNT = "discount"
    SERVICE = "service"
    COUNT = "count"
    OTHER = "other"


_TAX_WORDS = r"GST|SST|VAT|MWST|M W ST|UST|TAX\d?|TAXES|TVA|IVA|BTW|MOMS|STEUER|PPN|KDV|PTU|CUKAI"
_TOTAL_WORDS = (
    r"TOTAL|TOTALS|TTL|SUMME|GESAMT|GESAMTSUMME|SUMA|SUMMA|KOKKU|JUMLAH|TOTALE|TOTAAL|RAZEM"
    r"|YHTEENSA|CELKEM|TOPLAM"
    r"|IALT|SAMTALS|OSSZESEN|SUM|BETRAG|GESAMTBETRAG"
)
# The first line that fits names the kind, so the order matters: "total excl. tax" is no total.
_KINDS: tuple[tuple[LabelKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            LabelKind.CARRY,
            r"\bCARR(?:Y|IED) ?(?:OVER|FORWARD)\b|\bBROUGHT ?(?:OVER|FORWARD)\b|\b[BC] F\b"
            r"|\bUBERTRAG\b|\bUEBERTRAG\b"
            r"|\bA REPORTER\b|\bBALANCE (?:B|C) F\b",
        ),
        (
            LabelKind.COUNT,
            r"\b(?:[QO]TY|QUANTITY|ITEMS|ITEM S|PCS|COUNT|ARTIKEL|POINTS?|PUNKTE)(?: S)?(?: \d+)?$",
        ),
        (
            LabelKind.COUNT,
            r"\bTOTAL (?:NO OF )?(?:[QO]TY|QUANTITY|ITEMS?|PCS|UNITS?)(?! DISC)\b|\bNO OF ITEMS?\b",
        ),
        (
            LabelKind.ROUNDING,
            r"^(?!.*\bTOTAL\b).*\b(?:ROUND\w*|RND|BUNDARAN|PEMBUNDARAN|PEMBULATAN|RUNDUNG|ARRONDI)\b",
        ),
        (LabelKind.ROUNDING, r"\b(?:ROUNDING|ROUND|RND) ADJ\w*\b|\bTOTAL ROUNDING\b|\bROUNDING TOTAL\b"),
        (
            LabelKind.SUBTOTAL,
            r"\bSUB ?TOTALE?\b|\bSUBTTL\b|\bZWISCHENSUMME\b|\bSOUS TOTAL\b|\bNETTO\b|\bSUPPLIES\b"
            rf"|\b(?:{_TOTAL_WORDS})\b.*\b(?:EXCL\w*|EXCLUDING|EXCLUSIVE|EX|BEFORE|WITHOUT|HT|ZZGL)\b",
        ),
        (LabelKind.DISCOUNT, r"\b(?:TOTAL|CARD)\b.*\b(?:DISCOUNTS?|SAVINGS?|SAVED|DISC)$"),
        (
            LabelKind.GRAND_TOTAL,
            r"^(?:NETT? )?DUE$|\bGRAND TOTAL\b|\bG TOTAL\b|\bNETT? (?:TOTAL|AMOUNT|AMT)\b"
            r"|\bFINAL TOTAL\b|\bROUNDED TOTAL\b"
            r"|\bTOTAL (?:ROUNDED|ROUNDUP|AFTER \w+|DUE|PAYABLE|NETT?|TO PAY)\b"
            r"|\b(?:AMOUNT|AMT|BALANCE|BAL|TOTAL)(?: \w+)? (?:DUE|PAYABLE|TO PAY|TO BE PAID)\b"
            r"|\bZU ZAHLEN\b|\bZAHLBETRAG\b|\bENDBETRAG\b|\bENDSUMME\b|\bA PAYER\b|\bA PAGAR\b|\bDO ZAPLATY\b"
            r"|\bTE BETALEN\b|\bDA PAGARE\b|\bJUMLAH BESAR\b|\bTOTAL TTC\b",
        ),
        (LabelKind.TOTAL_BY_PART, r"\b(?:AMOUNT|AMT) PAID INC\w*\b"),
        (LabelKind.TIP, r"\bTIPS?\b|\bGRATUIT\w+\b|\bTRINKGELD\b|\bPOURBOIRE\b|\bPROPINA\b"),
        (
            LabelKind.CHANGE,
            r"\bCHANGE\b|\bRUCKGELD\b|\bRUECKGELD\b|\bWECHSELGELD\b|\bBAKI\b|\bKEMBALI\w*\b"
            r"|\bRENDU\b|\bCAMBIO\b"
            r"|\bWISSELGELD\b|\bVAXEL\b|\bRESTO\b|\bVUELTO\b",
        ),
        (
            LabelKind.CASH,
            r"^PAY$|\bCASH\b|\bTUNAI\b|\bTENDER\w*\b|\bPAID\b|\bPAYMENTS?\b|\bVISA\b"
            r"|\bMASTER ?(?:CARD)?\b|\bAMEX\b|\bDEBIT\b"
            r"|\bCREDIT\b|\bCARD\b|\bBAR\b|\bGEG\b|\bGEGEBEN\b|\bGIROCARD\b|\bBAYAR\w*\b"
            r"|\bESPECES\b|\bEFECTIVO\b"
            r"|\bCONTANTI\b|\bKARTE\w*\b|\bCHEQUE\b|\bRUCKZAHLUNG\b|\bRUECKZAHLUNG\b|\bRINGGIT\b|\bRECEIVED\b"
            r"|\bEWALLET\b|\bVOUCHER\b",
        ),
        (
            LabelKind.TAX,
            rf"\b(?:{_TOTAL_WORDS})\b.*\bINCLUDE[SD]\b.*\b(?:{_TAX_WORDS})\b"
            rf"|\bINCLUDE[SD] (?:{_TAX_WORDS})\b",
        ),
        (
            LabelKind.TAX,
            rf"\b(?:{_TOTAL_WORDS}) (?:{_TAX_WORDS})\b|\b(?:{_TAX_WORDS}) (?:{_TOTAL_WORDS}|PAYABLE)\b",
        ),
        (
            LabelKind.TOTAL,
            rf"^(?:THE )?(?:{_TOTAL_WORDS})(?: AMOUNT| AMT)?(?: S)?(?: (?:R[MHNP]|KR|[A-Z]{{3}}))?(?: \d+)?$",
        ),
        (LabelKind.TOTAL_BY_PART, rf"\b(?:{_TOTAL_WORDS})\b"),
        (
            LabelKind.DISCOUNT,
            r"\bDISCOUNTS?\b|\bDISC\b|\bRABATT\b|\bSAVINGS?\b|\bREMISE\b|\bCOUPON\b|\bCPN\b|\bDISKAUN\b",
        ),
        (LabelKind.SERVICE, r"\bSERVICE\b|\bSVC\b|\bSERV CHARGE\b|\bDELIVERY\b|\bSHIPPING\b"),
        (LabelKind.TAX, rf"\b(?:{_TAX_WORDS})\b"),
    )
)
_LONG_WORDS = (
    "SUBTOTAL",
    "ROUNDING",
    "TOTAL",
    "CHANGE",
    "SUMME",
    "GESAMTBETRAG",
    "TENDERED",
    "AMOUNT",
    "ADJUSTMENT",
)
# Real words that stand one letter from a long word.
_NEIGHBOURS = frozenset({"CHARGE", "SUMMER", "TOTALS", "TENDERER", "CHANCE", "MOUNT", "AMOUNTS"})
_LETTER_FOR_DIGIT = str.maketrans("0158", "OISB")
_SUMMARY_HEAD = re.compile(
    rf"\b(?:{_TAX_WORDS})\b.*\b(?:SUMMARY|ANALYSIS|ANALYSE|DETAILS?|CODE|RATE)\b"
    rf"|\b(?:{_TAX_WORDS})\b.*\b(?:NETTO|BRUTTO|NET|GROSS|GOODS)\b|\b(?:AMOUNT|AMT|NETTO"
    rf"|GOODS)\b.*\b(?:{_TAX_WORDS})\b"
    r"|\bSUMMARY\b"
)

# The head of the goods, whose last column may be the tax of each.
_ITEM_HEAD = re.compile(r"\b(?:DESC\w*|ITEMS?|QTY|OTY|QUANTITY|U PRICE|UNIT PRICE|PRICE)\b")


def fold_label(text: str, *, keep_marks: bool = False) -> str:
    """Return the text in upper case without accents; punctuation becomes single spaces unless kept."""
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss")).upper()
    plain = "".join(character for character in plain if not unicodedata.combining(character))
    return plain if keep_marks else re.sub(r"[^0-9A-Z]+", " ", plain).strip()


@lru_cache(maxsize=4096)
def kind_of_label(text: str) -> LabelKind:
    """Return what the words of a label say; OTHER when they say nothing known."""
    label = " ".join(_mended(word) for word in fold_label(text).split())
    for kind, pattern in _KINDS:
        if pattern.search(label):
            return kind
    return LabelKind.OTHER


def opens_tax_summary(text: str, rules: ExtractRules = RULES_V1) -> bool:
    """Tell whether a row without amounts is the head of a table of taxes."""
    label = fold_label(text)
    if rules.knows_item_heads and _ITEM_HEAD.search(label) and "SUMMARY" not in label:
        return False
    return _SUMMARY_HEAD.search(label) is not None


def _mended(word: str) -> str:
    """Undo what a reader does to words: digits for letters, one wrong letter in a long word."""
    if any(character.isalpha() for character in word) and sum(c.isalpha() for c in word) * 2 > len(word):
        word = word.translate(_LETTER_FOR_DIGIT)
    if len(word) < 5 or word in _NEIGHBOURS or word in _LONG_WORDS:
        return word
    return next((right for right in _LONG_WORDS if one_letter_apart(word, right)), word)


def one_letter_apart(word: str, right: str) -> bool:
    """Tell whether one letter changed, added or lost makes one word the other."""
    if len(word) == len(right):
        return sum(a != b for a, b in zip(word, right, strict=True)) == 1
    shorter, longer = sorted((word, right), key=len)
    if len(longer) - len(shorter) != 1:
        return False
    return any(longer[:cut] + longer[cut + 1 :] == shorter for cut in range(len(longer)))
