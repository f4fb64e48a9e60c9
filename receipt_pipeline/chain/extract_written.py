"""Stage extract, handwriting part: a tip line left for the pen puts the printed total in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from receipt_pipeline.chain.extract_labels import LabelKind, kind_of_label
from receipt_pipeline.chain.extract_rows import Row
from receipt_pipeline.chain.extract_totals import LabelledAmount, as_read_amount
from receipt_pipeline.chain.values import ReadAmount


def settle_written_tip(
    rows: Sequence[Row],
    labelled: Sequence[LabelledAmount],
    total: LabelledAmount | None,
    tip: ReadAmount | None,
) -> tuple[ReadAmount | None, ReadAmount | None]:
    """Return total and tip after what stands, or may stand, on a tip line below the total.

    Where two amounts below fit as tip and new sum, they are taken; they came from a pen, so the total
    stays ambiguous. An open tip line alone also makes the printed total ambiguous.
    """
    if total is None:
        return None, tip
    read = as_read_amount(total)
    open_line = next(
        (
            index
            for index, row in enumerate(rows)
            if index > total.row
            and kind_of_label(row.text) == LabelKind.TIP
            and not any(item.row == index for item in labelled)
        ),
        None,
    )
    if open_line is None:
        return read, tip
    below = [item for item in labelled if item.row > total.row and item.kind == LabelKind.OTHER]
    for extra in below:
        for closing in below:
            if extra is not closing and total.found.minor + extra.found.minor == closing.found.minor:
                return replace(as_read_amount(closing), ambiguous=True), as_read_amount(extra)
    return replace(read, ambiguous=True), tip
