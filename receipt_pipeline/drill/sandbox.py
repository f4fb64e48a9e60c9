"""A temporary data directory and a scripted reader."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.chain.values import Page, TextLine

DRILL_LIMITS: Mapping[str, str] = {
    # A heartbeat may be late by seconds on a busy machine; a lease must not be lost by that.
    "RECEIPTS_LIMIT_LEASE_TTL_S": "10",
    "RECEIPTS_LIMIT_HEARTBEAT_S": "1",
    "RECEIPTS_LIMIT_ITEM_TIMEOUT_S": "300",
    "RECEIPTS_LIMIT_RETRY_BASE_S": "0.5",
    "RECEIPTS_LIMIT_RETRY_CAP_S": "1",
    # A run may take minutes to start on a busy machine; one that fails has its wave closed immediately.
    "RECEIPTS_LIMIT_WAVE_TTL_S": "900",
    "RECEIPTS_LIMIT_DELIVERY_RETRY_S": "0.2",
    "RECEIPTS_LIMIT_OVERRUN_GRACE_S": "1",
    "RECEIPTS_LIMIT_WORKER_TTL_S": "600",
    "RECEIPTS_LIMIT_WAVE_SLOTS": "2",
}
# Empty values, because a child process adds its environment to that of the command.
_CLEARED = ("RECEIPTS_POSTGRES_URL", "RECEIPTS_DRILL_PLAN", "RECEIPTS_DRILLS")


def detached(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the data directory, database and failure plan of the caller."""
    kept = {name: value for name, value in environ.items() if name != "DAGSTER_HOME"}
    return kept | dict.fromkeys(_CLEARED, "")


@contextmanager
def sandbox(environ: Mapping[str, str], limits: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """Yield the environment of an empty data directory that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="receipts-", ignore_cleanup_errors=True) as folder:
        yield {**detached(environ), **(limits or {}), "RECEIPTS_HOME": str(Path(folder) / "home")}


_TEXTS = ("CORNER SHOP", "2026-11-02 10:15", "BREAD 2.00", "MILK 1.50")
_LINE_STEP_PX = 4


@dataclass(frozen=True, slots=True)
class ScriptedReader:
    """Answers after `page_s` seconds a page; the total follows from the page's width."""

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
