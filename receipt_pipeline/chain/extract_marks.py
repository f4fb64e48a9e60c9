"""Stage extract since `chain-v4`, marks part: a letter that the reader put for the mark of a currency."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from receipt_pipeline.chain.values import TextLine

# So many amounts must carry the mark itself before a letter in its place is taken for it.
MARKED_MIN = 2
_CENTS = r"\d{1,3}(?:,\d{3})*\.\d{2}(?!\d)"
_MARKED = re.compile(rf"(?<![\w$])\${_CENTS}")
_LETTER_FOR_MARK = re.compile(rf"(?<![\w$])(?:\$?[Ss])(?={_CENTS})")


def with_dollar_marks(lines: Sequence[TextLine]) -> tuple[TextLine, ...]:
    """Return the lines with `S8.20` and `$S8.20` read as `$8.20`, where the receipt prints `$`.

    It does so where at least two amounts carry `$` and no fewer do than carry the letter; otherwise
    the lines come back as they are.
    """
    marked, lettered = (
        sum(len(form.findall(line.text)) for line in lines) for form in (_MARKED, _LETTER_FOR_MARK)
    )
    if not lettered or marked < max(MARKED_MIN, lettered):
        return tuple(lines)
    return tuple(replace(line, text=_LETTER_FOR_MARK.sub("$", line.text)) for line in lines)
