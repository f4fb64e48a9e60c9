"""A reading of text that comes without a picture: transcripts, and receipts that were never drawn."""

from __future__ import annotations

from receipt_pipeline.chain.values import DecodedScan, Reading, TextLine

LINE_HEIGHT_PX = 22
ROW_STEP_PX = 32
CHARACTER_PX = 12
# What stands in for the pages of such a text.
NO_PAGES = DecodedScan("text", ())


def bare_reading(texts: tuple[str, ...]) -> Reading:
    """Return a reading of bare text lines: full confidence, one row a line, all starting at the left."""
    lines = tuple(
        TextLine(
            text=text,
            box=(0, ROW_STEP_PX * at, CHARACTER_PX * len(text), ROW_STEP_PX * at + LINE_HEIGHT_PX),
            confidence=1.0,
            page=0,
        )
        for at, text in enumerate(texts)
    )
    width = max((line.box[2] for line in lines), default=1)
    return Reading(lines=lines, page_sizes=((width, ROW_STEP_PX * max(1, len(texts))),))
