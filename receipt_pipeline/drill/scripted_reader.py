"""A reader for drills that reads no picture: each page gets the text of a small shop receipt."""

from __future__ import annotations

import time
from dataclasses import dataclass

from receipt_pipeline.chain.values import Page, TextLine

_TEXTS = ("CORNER SHOP", "2026-11-02 10:15", "BREAD 2.00", "MILK 1.50")
_LINE_STEP_PX = 4


@dataclass(frozen=True, slots=True)
class ScriptedReader:
    """Answers at once, or after `page_s` seconds a page; the total follows from the page's width."""

    page_s: float = 0.0

    def read_page(self, page: Page) -> tuple[TextLine, ...]:
        """Return the scripted lines of the page."""
        time.sleep(self.page_s)
        width_px = page.pixels.shape[1]
        texts = (*_TEXTS, f"TOTAL EUR {width_px // 10}.{width_px % 10}0")
        return tuple(
            TextLine(
                text=text,
                box=(1, 1 + _LINE_STEP_PX * at, width_px - 1, _LINE_STEP_PX * (at + 1)),
                confidence=0.99,
                page=page.index,
            )
            for at, text in enumerate(texts)
        )
