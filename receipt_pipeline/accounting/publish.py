"""Publishes the report: built aside, put in place by a rename, proven to open, never in a reader's way."""

from __future__ import annotations

import datetime as dt
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from receipt_pipeline.accounting.build import build_file
from receipt_pipeline.accounting.charts import report_markdown
from receipt_pipeline.accounting.export import export_snapshot
from receipt_pipeline.accounting.facts import read_facts
from receipt_pipeline.accounting.publish_lock import publishing, storage_faults
from receipt_pipeline.accounting.report_document import build_document
from receipt_pipeline.accounting.services import Accountant
from receipt_pipeline.core.errors import ReportFault
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.reasons import REPORT_UNREADABLE

SET_ASIDE_MAX = 8
BUILD_PATTERN = "build-*.duckdb"
LINK_PATTERN = ".open-*.duckdb"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """A published report: where it lies, its newest event, and its account.

    `notices` says what was set aside on the way, and what that means for the reader.
    """

    path: Path
    seq: int
    document: Mapping[str, Any]
    notices: tuple[str, ...]

    @property
    def markdown(self) -> str:
        """Return the account as a table and a chart, for a page that shows Markdown."""
        return report_markdown(self.path, self.document)


def publish_report(accountant: Accountant, *, cutoff: dt.datetime | None = None) -> PublishedReport:
    """Read the ledger in one snapshot, build the file aside, and publish it.

    Raises:
        ReportFault: STORAGE.FULL.v1, REPORT.BUSY.v1 or REPORT.UNREADABLE.v1; the report published
            before is still there and readable, unless it was damaged.
        LedgerUnavailable: the ledger cannot be read; nothing was published.
    """
    root = accountant.report_root
    with publishing(root), storage_faults():
        notices = _clear_the_place(accountant)
        with accountant.ledger.reading() as tx:
            facts = read_facts(tx, limits=accountant.limits, cutoff=cutoff)
            document = build_document(tx, facts)
            export_snapshot(tx, facts.snapshot, accountant.export)
        build = root / f"build-{facts.snapshot.seq}.duckdb"
        try:
            build_file(
                build, export=accountant.export, facts=facts, document=document, limits=accountant.limits
            )
            notices += _put_in_place(accountant, build)
        except Exception:
            # A partial file is worth nothing, and on a full disk its space is wanted.
            build.unlink(missing_ok=True)
            _log_of(build).unlink(missing_ok=True)
            raise
    for notice in notices:
        # Whoever asked is handed the notices; as a warning each would be printed twice.
        _log.info("action=publish_report notice=%s", notice)
    return PublishedReport(accountant.published, facts.snapshot.seq, document, tuple(notices))


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")


def _clear_the_place(accountant: Accountant) -> list[str]:
    """Set aside what killed publications and damaged files left, so that no start stumbles over them."""
    root, notices = accountant.report_root, []
    for log in root.glob(f"{BUILD_PATTERN}.wal"):
        notices.append(_set_aside(log, "a publication was killed; nothing of it had been published"))
    for leftover in (*root.glob(BUILD_PATTERN), *root.glob(LINK_PATTERN)):
        leftover.unlink(missing_ok=True)
    notices += _set_log_aside(accountant)
    if accountant.published.exists() and _is_damaged(accountant.published):
        notices.append(_set_aside(accountant.published, "the published file was damaged"))
    return notices


def _is_damaged(path: Path) -> bool:
    """Tell whether the file cannot be read, other than because somebody holds it for writing."""
    fault = _fault_of(path)
    return fault is not None and "lock" not in str(fault).lower()


def _set_log_aside(accountant: Accountant) -> list[str]:
    log = _log_of(accountant.published)
    if not log.exists():
        return []
    return [_set_aside(log, "somebody had opened the report for writing; only changes made there are in it")]


def _set_aside(path: Path, what: str) -> str:
    """Move a file out of the way under a new name; returns the notice for people."""
    folder = path.parent / "set-aside"
    folder.mkdir(exist_ok=True)
    kept = folder / f"{path.name}.{time.time_ns()}"
    path.replace(kept)
    for old in sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime)[:-SET_ASIDE_MAX]:
        old.unlink(missing_ok=True)
    return (
        f"{path.name} was set aside as set-aside/{kept.name}: {what}. "
        "No row is lost: the report is built anew from the ledger."
    )


def _put_in_place(accountant: Accountant, build: Path) -> list[str]:
    """Sync the file, rename it over the published one, and prove that it opens under its name."""
    assert not _log_of(build).exists(), "a closed file has nothing left to replay"
    build.chmod(0o444)
    _sync(build)
    notices = _set_log_aside(accountant)
    point("publish_report.before")
    build.replace(accountant.published)
    _sync(accountant.report_root)
    point("publish_report.after")
    fault = _fault_of(accountant.published)
    # Whoever still writes to the former file makes a new log beside the new one.
    late_notices = _set_log_aside(accountant)
    if late_notices:
        fault = _fault_of(accountant.published)
    if fault is not None:
        raise ReportFault(REPORT_UNREADABLE, cause=type(fault).__name__) from fault
    return notices + late_notices


def _fault_of(path: Path) -> duckdb.Error | None:
    """Open a report by its own name as a reader does; None when it can be read."""
    try:
        connection = duckdb.connect(str(path), read_only=True)
    except duckdb.Error as error:
        return error
    try:
        connection.execute("SELECT seq FROM report_info").fetchall()
    except duckdb.Error as error:
        return error
    finally:
        connection.close()
    return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
