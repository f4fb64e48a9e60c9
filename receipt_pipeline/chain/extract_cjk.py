"""Stage extract of `chain-v3`, labels part for Chinese, Japanese and Korean: what stands beside an amount."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from receipt_pipeline.chain.extract_labels import LabelKind, kind_of_label
from receipt_pipeline.chain.extract_rules import RULES_V1, ExtractRules

_SIGN = r"[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
_HAS_SIGN = re.compile(_SIGN)
# The signs of money stay where they touch a number; every other one is parted from it.
_TOUCHING = re.compile(rf"(?<={_SIGN})(?=[\d¥￥$₩])|(?<=\d)(?![元円원圓])(?={_SIGN})")
# What only Japan prints, and what shows that the sign of yen and yuan stands for yuan: yen have no cents.
_JAPANESE = re.compile(r"[\u3040-\u30ff円]")
_YUAN = re.compile(r"[¥￥]\s?\d[\d,]*\.\d{2}\b|元")
_TAX_INSIDE = re.compile(r"\(?(?:税込み?|稅込|含[税稅]|[税稅]内|부가세포함)\)?")
# The first line that fits names the kind: a sum before tax, or of pieces, is no total.
_KINDS: tuple[tuple[LabelKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (LabelKind.COUNT, r"[件点點]数|[数數]量|件數|[点點]$|총수량|수량"),
        (LabelKind.SUBTOTAL, r"小[计計]|税抜|未[税稅]|소계|과세물품|공급가"),
        (LabelKind.CHANGE, r"找[零赎贖回续續换換]|釣|お?つり|거스름"),
        (
            LabelKind.CASH,
            r"[现現]金|[实實现現]收|[预預]り?|信用卡|クレジット|カード|현금|받은|카드",
        ),
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
    """Tell whether ¥ is the sign of the yuan here: it stands before cents, and nothing is Japanese."""
    whole = "\n".join(texts)
    return _YUAN.search(whole) is not None and not _JAPANESE.search(whole)


def kind_of(text: str, rules: ExtractRules = RULES_V1) -> LabelKind:
    """Return what a label says, in any of the scripts that the rules know; OTHER when nothing known."""
    kind = kind_of_label(text)
    if kind != LabelKind.OTHER or not rules.knows_cjk_labels or not _HAS_SIGN.search(text):
        return kind
    signs = re.sub(r"\s+", "", unicodedata.normalize("NFKC", text))
    signs = _TAX_INSIDE.sub("", signs)
    return next((named for named, pattern in _KINDS if pattern.search(signs)), LabelKind.OTHER)
