"""Verify the report and rename it into place under one lock."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from receipt_pipeline.accounting.build import Base, LedgerMoment, build_file
from receipt_pipeline.accounting.charts import report_markdown
from receipt_pipeline.accounting.export import refresh_export
from receipt_pipeline.accounting.export_note import ExportNote
from receipt_pipeline.accounting.publish_lock import is_full, publishing, storage_faults
from receipt_pipeline.accounting.services import Accountant
from receipt_pipeline.accounting.set_aside import set_aside
from receipt_pipeline.core.errors import ReportFault
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.reasons import REPORT_REBUILT, REPORT_UNREADABLE
from receipt_pipeline.durable_files import sync_path
from receipt_pipeline.ledger.effects.alerts import open_alerts
from receipt_pipeline.ledger.effects.retention import keys_being_purged

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


def publish_report(
    accountant: Accountant, *, cutoff: dt.datetime | None = None, whole: bool = False
) -> PublishedReport:
    """Bring the report up to the ledger's present state aside, and publish it.

    What changed since the last publication is read from the ledger in one snapshot, and put into a
    copy of the published file. Where export or report cannot be trusted, all of it is read anew.

    Args:
        whole: read the whole ledger whatever there is.
    Raises:
        ReportFault: STORAGE.FULL.v1, REPORT.BUSY.v1 or REPORT.UNREADABLE.v1; the report published
            before is still there and readable, unless it was damaged.
        LedgerUnavailable: the ledger cannot be read; nothing was published.
    """
    with publishing(accountant.report_root), storage_faults():
        there = accountant.published.exists()
        notices = _clear_the_place(accountant)
        damaged = there and not accountant.published.exists()
        whole = whole or damaged or _is_doubted(accountant, notices)
        try:
            built = _build(accountant, cutoff, whole=whole)
        except (duckdb.Error, ReportFault) as error:
            if whole or is_full(error):
                raise
            notices.append(_keep_aside(accountant, f"it was not to be refreshed ({type(error).__name__})"))
            built = _build(accountant, cutoff, whole=True)
        notices += [*built.notices, *_put_in_place(accountant, built)]
        accountant.doubted.unlink(missing_ok=True)
    for notice in notices:
        # Whoever asked is handed the notices; as a warning each would be printed twice.
        _log.info("action=publish_report notice=%s", notice)
    return PublishedReport(accountant.published, built.seq, built.document, tuple(notices))


@dataclass(frozen=True, slots=True)
class _Built:
    path: Path
    seq: int
    document: Mapping[str, Any]
    notices: tuple[str, ...]
    shows: list[Any]


def _build(accountant: Accountant, cutoff: dt.datetime | None, *, whole: bool) -> _Built:
    """Export what changed and build the file aside; nothing of it is left behind when that fails."""
    with accountant.ledger.reading() as tx:
        exported = refresh_export(tx, accountant.export, whole=whole)
        moment = LedgerMoment(tx.now(), open_alerts(tx), keys_being_purged(tx))
    base = None if whole else _base(accountant, exported.note)
    path = accountant.report_root / f"build-{exported.note.mark.seq}.duckdb"
    try:
        facts, document = build_file(
            path,
            export=accountant.export,
            note=exported.note,
            moment=moment,
            limits=accountant.limits,
            cutoff=cutoff,
            base=base,
        )
        if base is not None and not _is_as_published(accountant):
            raise ReportFault(REPORT_REBUILT, what=base.path.name, cause="it was written to meanwhile")
    except Exception:
        # A partial file is worth nothing, and on a full disk its space is wanted.
        _discard(path)
        raise
    shows = [exported.note.export_id, exported.note.refresh_no, facts.snapshot.as_of.isoformat()]
    return _Built(path, facts.snapshot.seq, document, exported.notices, shows)


def _base(accountant: Accountant, note: ExportNote) -> Base | None:
    """Return the published file where it shows an earlier state of this very export."""
    if not accountant.published.exists():
        return None
    shows = _noted_as(accountant)[2:]
    if not shows or shows[0] != note.export_id or shows[1] > note.refresh_no:
        return None
    return Base(accountant.published, shows[1], dt.datetime.fromisoformat(shows[2]))


def _is_doubted(accountant: Accountant, notices: list[str]) -> bool:
    """Tell whether the report was seen to differ from the ledger, or is not the file that was published."""
    if accountant.doubted.exists():
        notices.append(
            f"{REPORT_REBUILT.code}: the report differed from the ledger and is built anew from it."
        )
        return True
    if accountant.published.exists() and not _is_as_published(accountant):
        notices.append(_keep_aside(accountant, "somebody had changed it"))
        return True
    return False


def _is_as_published(accountant: Accountant) -> bool:
    if not (known := _as_noted(accountant)):
        return not accountant.export.exists()
    return _stamp(accountant.published) in [line[:2] for line in known]


def _as_noted(accountant: Accountant) -> list[list[Any]]:
    """Return size and time of each file that may be the published one, and which refresh it shows."""
    try:
        noted: list[list[Any]] = json.loads(_published_note(accountant).read_text())
    except (OSError, ValueError):
        return []
    return noted


def _stamp(path: Path) -> list[Any]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _noted_as(accountant: Accountant) -> list[Any]:
    """Return the line of the published file; size and time alone where nothing is known of it."""
    stamp = _stamp(accountant.published)
    return next((line for line in _as_noted(accountant) if line[:2] == stamp), stamp)


def _published_note(accountant: Accountant) -> Path:
    return accountant.export / "published.json"


def _discard(path: Path) -> None:
    path.unlink(missing_ok=True)
    _log_of(path).unlink(missing_ok=True)


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")


def _clear_the_place(accountant: Accountant) -> list[str]:
    """Set aside what killed publications and damaged files left, so that no start stumbles over them."""
    root, notices = accountant.report_root, []
    for log in root.glob(f"{BUILD_PATTERN}.wal"):
        notices.append(
            _set_aside(accountant, log, "a publication was killed; nothing of it had been published")
        )
    for leftover in (*root.glob(BUILD_PATTERN), *root.glob(LINK_PATTERN)):
        leftover.unlink(missing_ok=True)
    notices += _set_log_aside(accountant)
    if accountant.published.exists() and _is_damaged(accountant.published):
        notices.append(_set_aside(accountant, accountant.published, "the published file was damaged"))
    return notices


def _is_damaged(path: Path) -> bool:
    """Tell whether the file cannot be read, other than because somebody holds it for writing."""
    fault = _fault_of(path)
    return fault is not None and "lock" not in str(fault).lower()


def _set_log_aside(accountant: Accountant) -> list[str]:
    log = _log_of(accountant.published)
    if not log.exists():
        return []
    return [
        _set_aside(
            accountant, log, "somebody had opened the report for writing; only changes made there are in it"
        )
    ]


def _set_aside(accountant: Accountant, path: Path, what: str) -> str:
    return set_aside(path, what, root=accountant.report_root)


def _keep_aside(accountant: Accountant, what: str) -> str:
    """Keep the published file for a look; readers have it until the new one takes its place."""
    return set_aside(accountant.published, what, root=accountant.report_root, take=os.link)


def _put_in_place(accountant: Accountant, built: _Built) -> list[str]:
    """Sync the file, rename it over the published one, and prove that it opens under its name."""
    build = built.path
    assert not _log_of(build).exists(), "a closed file has nothing left to replay"
    build.chmod(0o444)
    sync_path(build)
    notices = _set_log_aside(accountant)
    # Both files are known while one takes the other's place: a crash leaves either.
    former = [_noted_as(accountant)] if accountant.published.exists() else []
    known = [[*_stamp(build), *built.shows], *former]
    _published_note(accountant).write_text(json.dumps(known))
    try:
        point("publish_report.before")
        build.replace(accountant.published)
    except Exception:
        _discard(build)
        raise
    sync_path(accountant.report_root)
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
