"""One publication at a time for a home, and what the file system says translated into reasons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

from receipt_pipeline.core.errors import ReportFault, is_out_of_space
from receipt_pipeline.core.reasons import REPORT_BUSY, STORAGE_FULL

LOCK_WAIT_S = 120.0


@contextmanager
def publishing(report_root: Path) -> Iterator[None]:
    """Hold the one publish lock that schedules, assets and commands share.

    Raises:
        ReportFault: REPORT.BUSY.v1 when another publication does not end within the bound.
    """
    with storage_faults():
        report_root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(report_root / ".publish.lock", timeout=LOCK_WAIT_S)
    try:
        lock.acquire()
    except Timeout as error:
        raise ReportFault(REPORT_BUSY, waited_s=LOCK_WAIT_S) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def storage_faults() -> Iterator[None]:
    """Raise ReportFault STORAGE.FULL.v1 for a full disk, whoever noticed it; let the rest pass."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if is_full(error):
            raise ReportFault(STORAGE_FULL, what="the report") from error
        raise


def is_full(error: Exception) -> bool:
    """Tell whether an error says that the disk is full, whoever noticed it."""
    return is_out_of_space(error) or "No space left" in str(error)
