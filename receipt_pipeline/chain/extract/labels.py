"""What the words next to an amount say it is, in several languages and scripts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache


class LabelKind(StrEnum):
    """What a labeled amount is."""

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
        (LabelKind.COUNT, r"\b(?:[QO]TY|QUANTITY|ITEMS|ITEM S|PCS|COUNT|ARTIKEL|POINTS?|PUNKTE)(?: S)?(?: \d+)?$"),
        (LabelKind.COUNT, r"\bTOTAL (?:NO OF )?(?:[QO]TY|QUANTITY|ITEMS?|PCS|UNITS?)(?! DISC)\b|\bNO OF ITEMS?\b"),
        (LabelKind.ROUNDING, r"^(?!.*\bTOTAL\b).*\b(?:ROUND\w*|RND|BUNDARAN|PEMBUNDARAN|PEMBULATAN|RUNDUNG|ARRONDI)\b"),
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
        (LabelKind.TAX, rf"\b(?:{_TOTAL_WORDS}) (?:{_TAX_WORDS})\b|\b(?:{_TAX_WORDS}) (?:{_TOTAL_WORDS}|PAYABLE)\b"),
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
_LONG_WORDS = ("SUBTOTAL", "ROUNDING", "TOTAL", "CHANGE", "SUMME", "GESAMTBETRAG", "TENDERED", "AMOUNT", "ADJUSTMENT")
# Real words that are one letter from a long word.
_NEIGHBORS = frozenset({"CHARGE", "SUMMER", "TOTALS", "TENDERER", "CHANCE", "MOUNT", "AMOUNTS"})
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
    label = " ".join(_repaired(word) for word in fold_label(text).split())
    for kind, pattern in _KINDS:
        if pattern.search(label):
            return kind
    return LabelKind.OTHER


def opens_tax_summary(text: str) -> bool:
    """Report whether a row without amounts is the head of a table of taxes, and not that of the goods."""
    label = fold_label(text)
    return names_tax_column(text) and ("SUMMARY" in label or not _ITEM_HEAD.search(label))


def names_tax_column(text: str) -> bool:
    """Report whether a row without amounts is the head of a table with a column of taxes."""
    return _SUMMARY_HEAD.search(fold_label(text)) is not None


def _repaired(word: str) -> str:
    """Undo what a reader does to words: digits for letters, one wrong letter in a long word."""
    if any(character.isalpha() for character in word) and sum(c.isalpha() for c in word) * 2 > len(word):
        word = word.translate(_LETTER_FOR_DIGIT)
    if len(word) < 5 or word in _NEIGHBORS or word in _LONG_WORDS:
        return word
    return next((right for right in _LONG_WORDS if one_letter_apart(word, right)), word)


def one_letter_apart(word: str, right: str) -> bool:
    """Report whether one letter changed, added or lost makes one word the other."""
    if len(word) == len(right):
        return sum(a != b for a, b in zip(word, right, strict=True)) == 1
    shorter, longer = sorted((word, right), key=len)
    if len(longer) - len(shorter) != 1:
        return False
    return any(longer[:cut] + longer[cut + 1 :] == shorter for cut in range(len(longer)))


_CJK_SIGN = r"[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
_HAS_CJK_SIGN = re.compile(_CJK_SIGN)
# The signs of money stay where they touch a number; every other one is parted from it.
_TOUCHING = re.compile(rf"(?<={_CJK_SIGN})(?=[\d¥￥$₩])|(?<=\d)(?![元円원圓])(?={_CJK_SIGN})")
# What only Japan prints, and what shows that the sign of yen and yuan means yuan: yen have no cents.
_JAPANESE = re.compile(r"[\u3040-\u30ff円]")
_YUAN = re.compile(r"[¥￥]\s?\d[\d,]*\.\d{2}\b|元")
_TAX_INSIDE = re.compile(r"\(?(?:税込み?|稅込|含[税稅]|[税稅]内|부가세포함)\)?")
# The first line that fits names the kind: a sum before tax, or of pieces, is no total.
_CJK_KINDS: tuple[tuple[LabelKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (LabelKind.COUNT, r"[件点點]数|[数數]量|件數|[点點]$|총수량|수량"),
        (LabelKind.SUBTOTAL, r"小[计計]|税抜|未[税稅]|소계|과세물품|공급가"),
        (LabelKind.CHANGE, r"找[零赎贖回续續换換]|釣|お?つり|거스름"),
        (LabelKind.CASH, r"[现現]金|[实實现現]收|[预預]り?|信用卡|クレジット|カード|현금|받은|카드"),
        (LabelKind.DISCOUNT, r"折扣|[优優]惠|割引|値引|할인"),
        (LabelKind.ROUNDING, r"抹零|四[舍捨]五入|端数"),
        (LabelKind.TAX, r"[税稅]|세액|부가세"),
        (LabelKind.GRAND_TOTAL, r"[应應实實][付]|請求|받을금액|결제금액"),
        (LabelKind.TOTAL, r"[总總合共][计計额額]|お?買上計|합계|총액|총계"),
    )
)


def parted(text: str) -> str:
    """Return the text with a blank between signs and the numbers that touch them, so that both are found."""
    return _TOUCHING.sub(" ", text.replace("￥", "¥"))


def prints_yuan(texts: Iterable[str]) -> bool:
    """Report whether ¥ is the sign of the yuan here: it is printed before cents, and nothing is Japanese."""
    whole = "\n".join(texts)
    return _YUAN.search(whole) is not None and not _JAPANESE.search(whole)


def kind_of(text: str) -> LabelKind:
    """Return what a label says in Latin, Chinese, Japanese or Korean; OTHER when nothing known."""
    kind = kind_of_label(text)
    if kind != LabelKind.OTHER or not _HAS_CJK_SIGN.search(text):
        return kind
    signs = re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))
    signs = _TAX_INSIDE.sub("", signs)
    return next((named for named, pattern in _CJK_KINDS if pattern.search(signs)), LabelKind.OTHER)
