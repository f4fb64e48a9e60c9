"""Builds the report, verifies it and renames it into place, all under one lock."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import sqlalchemy as sa
from filelock import FileLock, Timeout
from ulid import ULID

from receipt_pipeline.accounting.charts import report_markdown
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.query import open_published
from receipt_pipeline.accounting.refresh import TABLES, Base, LedgerMoment, ReportVersion, ReportWriter, report_shape
from receipt_pipeline.core.errors import ReportFault, is_out_of_space
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.reasons import REPORT_BUSY, REPORT_REBUILT, REPORT_UNREADABLE, STORAGE_FULL
from receipt_pipeline.durable_files import sync_path, write_whole
from receipt_pipeline.ledger.arrow import open_snapshot
from receipt_pipeline.ledger.changes import is_mark_of, mark_from, read_mark, unseen
from receipt_pipeline.ledger.effects.alerts import open_alerts
from receipt_pipeline.ledger.effects.retention import keys_being_purged
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.jobs import events

LOCK_WAIT_S = 120.0
SET_ASIDE_MAX = 8
# Above this share of new events, or after this number of refreshes, a full build is the cheaper way.
NEW_EVENTS_SHARE_MAX = 0.5
REFRESHES_MAX = 1_000
BUILD_PATTERN = "build-*.duckdb"
LINK_PATTERN = ".open-*.duckdb"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """A published report: its file, its newest event, and its account.

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
    """Bring the report up to the ledger's present state and publish it.

    What changed since the last publication is read from the ledger in one snapshot, and put into a
    copy of the published file. Where that file cannot be trusted, the whole ledger is read again.

    Args:
        whole: read the whole ledger in any case.
    Raises:
        ReportFault: STORAGE.FULL.v1, REPORT.BUSY.v1 or REPORT.UNREADABLE.v1; the report published
            before is still there and readable, unless it was damaged.
        LedgerUnavailable: the ledger cannot be read; nothing was published.
    """
    with publishing(accountant.report_root), storage_faults():
        notices = _clean_up(accountant)
        shown = None if whole else _trusted_version(accountant, notices)
        try:
            built = _build(accountant, cutoff, shown, notices)
        except (duckdb.Error, ReportFault) as error:
            if shown is None or is_full(error):
                raise
            notices.append(_keep_copy(accountant, f"it could not be refreshed ({type(error).__name__})"))
            built = _build(accountant, cutoff, None, notices)
        notices += _put_in_place(accountant, built)
        accountant.doubted.unlink(missing_ok=True)
    for notice in notices:
        # The caller passes the notices on; as a warning each would be printed twice.
        _log.info("action=publish_report notice=%s", notice)
    return PublishedReport(accountant.published, int(built.document["seq"]), built.document, tuple(notices))


def export_ledger(accountant: Accountant) -> dict[str, int]:
    """Publish the report, then write each of its tables as Parquet below `report/export/`.

    Returns:
        Rows per table.
    Raises:
        ReportFault: as `publish_report`; an earlier export is still there.
    """
    published = publish_report(accountant)
    building = accountant.export.with_name(f"{accountant.export.name}.building")
    former = accountant.export.with_name(f"{accountant.export.name}.former")
    with publishing(accountant.report_root), storage_faults():
        shutil.rmtree(building, ignore_errors=True)
        try:
            names = [table.name for table in TABLES]
            rows = {name: _write_parquet(accountant.published, name, building) for name in names}
            note = {"seq": published.seq, "as_of": published.document["as_of"], "rows": rows}
            write_whole(building / "export.json", json.dumps(note, indent=1).encode())
        except Exception:
            # A part of an export is worth nothing, and on a full disk its space is wanted.
            shutil.rmtree(building, ignore_errors=True)
            raise
        shutil.rmtree(former, ignore_errors=True)
        with suppress(FileNotFoundError):
            accountant.export.rename(former)
        building.rename(accountant.export)
        shutil.rmtree(former, ignore_errors=True)
    return rows


def _write_parquet(published: Path, table: str, folder: Path) -> int:
    """Write one table of the report as one file; returns its rows."""
    (folder / table).mkdir(parents=True)
    with open_published(published) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        target = str(folder / table / "part-00000.parquet").replace("'", "''")
        query = f"COPY {table} TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
        [(rows,)] = connection.execute(query).fetchall()
    return int(rows)


@dataclass(frozen=True, slots=True)
class _Built:
    path: Path
    document: Mapping[str, Any]
    version: ReportVersion


def _build(
    accountant: Accountant, cutoff: dt.datetime | None, shown: ReportVersion | None, notices: list[str]
) -> _Built:
    """Build the file next to the published one; nothing of it is left behind when that fails.

    Args:
        shown: what the published file shows, where it may be refreshed.
    """
    with open_snapshot(accountant.ledger) as tx:
        moment = LedgerMoment(tx.now(), read_mark(tx), open_alerts(tx), keys_being_purged(tx))
        if shown is not None and not _is_worth_refreshing(tx, shown, accountant, notices):
            shown = None
        version = _next_version(shown, moment)
        base = None if shown is None else Base(accountant.published, shown.mark, shown.as_of)
        stamp = _stamp(accountant.published) if base else None
        path = accountant.report_root / f"build-{moment.mark.seq}.duckdb"
        try:
            document = ReportWriter(tx, moment, version, accountant.limits, base).write(path, cutoff)
            if base is not None and _stamp(accountant.published) != stamp:
                raise ReportFault(REPORT_REBUILT, what=base.path.name, cause="it was changed meanwhile")
        except Exception:
            _discard(path)
            raise
    return _Built(path, document, version)


def _next_version(shown: ReportVersion | None, moment: LedgerMoment) -> ReportVersion:
    export_id, refresh_no = (shown.export_id, shown.refresh_no + 1) if shown else (str(ULID()), 0)
    return ReportVersion(export_id, refresh_no, report_shape(), moment.now, moment.mark)


def _is_worth_refreshing(
    tx: LedgerTransaction, shown: ReportVersion, accountant: Accountant, notices: list[str]
) -> bool:
    """Check that the ledger continues what the report shows, and that a full build costs more."""
    if shown.mark.seq and not is_mark_of(tx, shown.mark):
        notices.append(_keep_copy(accountant, "the ledger is another one, or was restored from a copy"))
        return False
    fresh = int(tx.scalar(sa.select(sa.func.count()).select_from(events).where(unseen(shown.mark))) or 0)
    return shown.refresh_no < REFRESHES_MAX and fresh <= NEW_EVENTS_SHARE_MAX * shown.mark.seq


def _trusted_version(accountant: Accountant, notices: list[str]) -> ReportVersion | None:
    """Return what the published file shows; None where it must not be refreshed."""
    if not accountant.published.exists():
        return None
    if accountant.doubted.exists():
        notices.append(f"{REPORT_REBUILT.code}: the report differed from the ledger and is built again from it.")
        return None
    try:
        versions = _read_note(accountant)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        cause = f"{_note(accountant).name} is missing or damaged ({type(error).__name__})"
        notices.append(_keep_copy(accountant, cause))
        return None
    shown = versions.get(_stamp(accountant.published))
    if shown is None:
        fault = _fault_of(accountant.published)
        # A file that someone has open for writing is locked, and not damaged.
        is_sound = fault is None or "lock" in str(fault).lower()
        cause = "someone had changed it" if is_sound else "the published file was damaged"
        notices.append(_keep_copy(accountant, cause))
        return None
    return shown if shown.shape == report_shape() else None


Stamp = tuple[int, int]


def _stamp(path: Path) -> Stamp:
    """Return size and time of a file, by which it is recognized."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _note(accountant: Accountant) -> Path:
    return accountant.report_root / "published.json"


def _read_note(accountant: Accountant) -> dict[Stamp, ReportVersion]:
    """Return which version each file shows that may be the published one."""
    versions = {}
    for entry in json.loads(_note(accountant).read_text()):
        shown = dict(entry["shows"])
        shown |= {"mark": mark_from(shown["mark"]), "as_of": dt.datetime.fromisoformat(shown["as_of"])}
        versions[int(entry["size_bytes"]), int(entry["mtime_ns"])] = ReportVersion(**shown)
    return versions


def _write_note(accountant: Accountant, built: _Built) -> None:
    """Note both files while one takes the place of the other: a crash leaves either of them."""
    versions = {}
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        stamp = _stamp(accountant.published)
        versions[stamp] = _read_note(accountant)[stamp]
    versions[_stamp(built.path)] = built.version
    entries = [
        {"size_bytes": size, "mtime_ns": mtime, "shows": asdict(version) | {"as_of": version.as_of.isoformat()}}
        for (size, mtime), version in versions.items()
    ]
    write_whole(_note(accountant), json.dumps(entries, indent=1).encode())


def _clean_up(accountant: Accountant) -> list[str]:
    """Set aside what killed publications and damaged files left, so that no start stumbles over them."""
    root, notices = accountant.report_root, []
    for log in root.glob(f"{BUILD_PATTERN}.wal"):
        notices.append(set_aside(log, "a publication was killed; nothing of it had been published", root=root))
    for leftover in (*root.glob(BUILD_PATTERN), *root.glob(LINK_PATTERN)):
        leftover.unlink(missing_ok=True)
    return notices + _set_log_aside(accountant)


def _set_log_aside(accountant: Accountant) -> list[str]:
    log = _log_of(accountant.published)
    if not log.exists():
        return []
    cause = "someone had opened the report for writing; only changes made there are in it"
    return [set_aside(log, cause, root=accountant.report_root)]


def _keep_copy(accountant: Accountant, what: str) -> str:
    """Keep the published file for a look; readers have it until the new one takes its place."""
    return set_aside(accountant.published, what, root=accountant.report_root, move=os.link)


def set_aside(path: Path, what: str, *, root: Path, move: Callable[[Path, Path], object] = os.replace) -> str:
    """Move a file into `set-aside/` under a new name, or link it there; returns the notice for people."""
    folder = root / "set-aside"
    folder.mkdir(exist_ok=True)
    kept = folder / f"{path.name}.{time.time_ns()}"
    move(path, kept)
    for old in sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime)[:-SET_ASIDE_MAX]:
        old.unlink(missing_ok=True)
    _log.warning("action=set_aside reason=%s file=%s kept=%s", REPORT_REBUILT.code, path.name, kept.name)
    return (
        f"{REPORT_REBUILT.code}: {path.name} was set aside as set-aside/{kept.name}: {what}. "
        "No row is lost: the report is built again from the ledger."
    )


def _put_in_place(accountant: Accountant, built: _Built) -> list[str]:
    """Sync the file, rename it over the published one, and prove that it opens under its name."""
    build = built.path
    assert not _log_of(build).exists(), "a closed file has nothing left to replay"
    build.chmod(0o444)
    sync_path(build)
    notices = _set_log_aside(accountant)
    _write_note(accountant, built)
    try:
        point("publish_report.before")
        build.replace(accountant.published)
    except Exception:
        _discard(build)
        raise
    sync_path(accountant.report_root)
    point("publish_report.after")
    fault = _fault_of(accountant.published)
    # A session that still writes to the former file makes a new log next to the new one.
    late_notices = _set_log_aside(accountant)
    if late_notices:
        fault = _fault_of(accountant.published)
    if fault is not None:
        raise ReportFault(REPORT_UNREADABLE, cause=type(fault).__name__) from fault
    return notices + late_notices


def _fault_of(path: Path) -> duckdb.Error | None:
    """Open a report by its own name as a reader does; None when it can be read."""
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            connection.execute("SELECT seq FROM report_info").fetchall()
    except duckdb.Error as error:
        return error
    return None


def _discard(path: Path) -> None:
    path.unlink(missing_ok=True)
    _log_of(path).unlink(missing_ok=True)


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")


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
    """Raise ReportFault STORAGE.FULL.v1 for a full disk, whichever library noticed it; let the rest pass."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if is_full(error):
            raise ReportFault(STORAGE_FULL, what="the report") from error
        raise


def is_full(error: Exception) -> bool:
    """Check whether an error says that the disk is full, whichever library noticed it."""
    return is_out_of_space(error) or "No space left" in str(error)
