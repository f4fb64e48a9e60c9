"""A text reader that answers page after page from a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from receipt_pipeline.chain.values import Page, TextLine
from receipt_pipeline.core.errors import StageFailed
from receipt_pipeline.core.reasons import ENGINE_OCR_UNAVAILABLE

LINE_HEIGHT_PX = 20


@dataclass(slots=True)
class ScriptedOcr:
    """Reads the texts given per page, one line under the other; pages beyond the script are blank.

    Attributes:
        pages: per page its lines of text, or ready TextLines.
        fails: how many of the next pages get no answer at all.
        read: indexes of the pages that were asked for.
    """

    pages: Sequence[Sequence[str | TextLine]] = ()
    confidence: float = 0.99
    fails: int = 0
    read: list[int] = field(default_factory=list)

    def read_page(self, page: Page) -> tuple[TextLine, ...]:
        self.read.append(page.index)
        if self.fails > 0:
            self.fails -= 1
            raise StageFailed(ENGINE_OCR_UNAVAILABLE, page=page.index)
        texts = self.pages[page.index] if page.index < len(self.pages) else ()
        return tuple(self._line(text, place, page.index) for place, text in enumerate(texts))

    def _line(self, text: str | TextLine, place: int, page: int) -> TextLine:
        if isinstance(text, TextLine):
            return text
        top = 10 + place * 2 * LINE_HEIGHT_PX
        box = (10, top, 10 + 10 * len(text), top + LINE_HEIGHT_PX)
        return TextLine(text=text, box=box, confidence=self.confidence, page=page)
