"""Moves a file that cannot be trusted out of the way, kept for a look, and says so."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from receipt_pipeline.core.reasons import REPORT_REBUILT

SET_ASIDE_MAX = 8
_log = logging.getLogger(__name__)


def set_aside(path: Path, what: str, *, root: Path, take: Callable[[Path, Path], object] = os.replace) -> str:
    """Move a file into `set-aside/` under a new name, or link it there; returns the notice for people."""
    folder = root / "set-aside"
    folder.mkdir(exist_ok=True)
    kept = folder / f"{path.name}.{time.time_ns()}"
    if path.exists():
        take(path, kept)
    for old in sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime)[:-SET_ASIDE_MAX]:
        old.unlink(missing_ok=True)
    _log.warning("action=set_aside reason=%s file=%s kept=%s", REPORT_REBUILT.code, path.name, kept.name)
    return (
        f"{REPORT_REBUILT.code}: {path.name} was set aside as set-aside/{kept.name}: {what}. "
        "No row is lost: the report is built anew from the ledger."
    )
