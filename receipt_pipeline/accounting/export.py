"""Exports the ledger to Parquet in one read snapshot: whole once, then what changed since."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import ColumnElement, func, select
from ulid import ULID

from receipt_pipeline.accounting.arrow import column_of
from receipt_pipeline.accounting.export_note import (
    CHANGED_JOBS,
    NOTE,
    ExportNote,
    Part,
    read_note,
    shape_of_report,
    write_note,
)
from receipt_pipeline.accounting.exported import EXPORTED, ExportedTable, Renewal
from receipt_pipeline.accounting.parquet_parts import write_parts
from receipt_pipeline.accounting.publish_lock import publishing, storage_faults
from receipt_pipeline.accounting.services import Accountant
from receipt_pipeline.accounting.set_aside import set_aside
from receipt_pipeline.core.errors import ReportFault
from receipt_pipeline.ledger.changes import changed_jobs, changed_rows, is_mark_of, read_mark, unseen
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.jobs import events

CHUNK_ROWS = 20_000
# Past this share of rows written again, or this many refreshes, reading all anew is the cheaper way on.
RENEWED_SHARE_MAX = 0.5
REFRESHES_MAX = 1_000
Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What there is now, as its note says, and what was found damaged and read anew from the ledger.

    `rows` counts the rows of each table, where that was asked for.
    """

    note: ExportNote
    notices: tuple[str, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)


def export_ledger(accountant: Accountant) -> ExportSummary:
    """Bring `report/export/` up to the ledger's present state.

    Raises:
        ReportFault: STORAGE.FULL.v1; the earlier export is still there.
    """
    with publishing(accountant.report_root), storage_faults(), accountant.ledger.reading() as tx:
        summary = refresh_export(tx, accountant.export)
        there = {table.name: select(func.count()).select_from(table.source) for table in EXPORTED}
        return replace(summary, rows={name: int(tx.scalar(count) or 0) for name, count in there.items()})


def refresh_export(tx: LedgerTransaction, folder: Path, *, whole: bool = False) -> ExportSummary:
    """Read what changed since the export's mark, or everything where there is none to trust.

    Mark and rows come from the one snapshot of the caller's transaction.
    """
    notices: list[str] = []
    note = None
    try:
        note = None if whole else read_note(folder)
    except ReportFault as fault:
        what = f"the export is damaged ({fault.facts['what']}: {fault.facts['cause']})"
        notices.append(set_aside(folder / NOTE, what, root=folder.parent))
    if note is not None and not is_mark_of(tx, note.mark):
        notices.append(
            set_aside(folder / NOTE, "the ledger is another one, or was put back", root=folder.parent)
        )
        note = None
    if note is None or note.shape != shape_of_report() or _is_worn(tx, note):
        return replace(_export_whole(tx, folder), notices=tuple(notices))
    return _export_changes(tx, note, folder)


def _is_worn(tx: LedgerTransaction, note: ExportNote) -> bool:
    """Tell whether so much was written again that a full export costs less than to go on."""
    news = int(tx.scalar(select(func.count()).select_from(events).where(unseen(note.mark))) or 0)
    renewed = note.rows_written(events.name, since=1) + news
    whole = note.rows_written(events.name, since=0) - note.rows_written(events.name, since=1)
    return note.refresh_no >= REFRESHES_MAX or renewed > RENEWED_SHARE_MAX * whole


def _export_whole(tx: LedgerTransaction, folder: Path) -> ExportSummary:
    """Write every table aside and put the new folder in place of the old one."""
    building = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    parts, digests = {}, {}
    try:
        for table in EXPORTED:
            chunks: Iterable[Rows] = _read(tx, table)
            if table.renewal is Renewal.WHOLE:
                chunks = list(chunks)
                digests[table.name] = _digest(chunks)
            parts[table.name] = _write(table, chunks, building, refresh_no=0)
        note = ExportNote(
            export_id=str(ULID()),
            shape=shape_of_report(),
            mark=read_mark(tx),
            as_of=tx.now().isoformat(),
            refresh_no=0,
            parts=parts,
            digests=digests,
        )
        write_note(note, building)
    except Exception:
        # On a full disk the space of a part of an export is wanted back.
        shutil.rmtree(building, ignore_errors=True)
        raise
    former = folder.with_name(f"{folder.name}.former")
    shutil.rmtree(former, ignore_errors=True)
    if folder.exists():
        folder.rename(former)
    building.rename(folder)
    shutil.rmtree(former, ignore_errors=True)
    return ExportSummary(note)


def _export_changes(tx: LedgerTransaction, note: ExportNote, folder: Path) -> ExportSummary:
    """Add the rows that may differ from the export, as parts of one more refresh.

    A refresh that a crash cut off left files that no note names; they are written over.
    """
    refresh_no = note.refresh_no + 1
    try:
        parts, digests = _write_changes(tx, note, folder, refresh_no)
        fresh = replace(
            note,
            mark=read_mark(tx),
            as_of=tx.now().isoformat(),
            refresh_no=refresh_no if parts != note.parts else note.refresh_no,
            parts=parts,
            digests=digests,
        )
        write_note(fresh, folder)
    except Exception:
        # On a full disk the space of a part of a refresh is wanted back.
        for left in folder.glob(f"*/{_name(refresh_no)}-*"):
            left.unlink()
        raise
    return ExportSummary(fresh)


def _write_changes(
    tx: LedgerTransaction, note: ExportNote, folder: Path, refresh_no: int
) -> tuple[dict[str, tuple[Part, ...]], dict[str, str]]:
    moved = set(tx.execute(changed_jobs(note.mark)).scalars()) - {None}
    parts, digests = dict(note.parts), dict(note.digests)
    for table in EXPORTED:
        chunks, digest = _changed_chunks(tx, table, note, moved=bool(moved))
        if digest is not None and digest != digests.get(table.name, ""):
            digests[table.name] = digest
        elif not chunks:
            continue
        written = _write(table, chunks, folder, refresh_no=refresh_no)
        parts[table.name] = (*parts[table.name], *written)
    if moved:
        parts[CHANGED_JOBS] = (*parts.get(CHANGED_JOBS, ()), _write_moved(moved, folder, refresh_no))
    return parts, digests


def _name(refresh_no: int) -> str:
    return f"refresh-{refresh_no:05d}" if refresh_no else "part"


def _changed_chunks(
    tx: LedgerTransaction, table: ExportedTable, note: ExportNote, *, moved: bool
) -> tuple[Iterable[Rows], str | None]:
    """Return the rows to read again, in chunks, and a digest where they are read whatever happened.

    Nothing is to be written again when those are the very rows that were written last.
    """
    chunks = list(_read(tx, table, changed_rows(table.source, note.mark)))
    if table.renewal is Renewal.APPENDED or (table.renewal is Renewal.BY_JOB and moved):
        return chunks, None
    digest = _digest(chunks)
    return ([] if digest == note.digests.get(table.name, "") else chunks), digest


def _digest(chunks: Iterable[Rows]) -> str:
    """Return a digest of rows, empty for none."""
    rows = [row for chunk in chunks for row in chunk]
    return hashlib.sha256(repr(rows).encode()).hexdigest() if rows else ""


def _read(tx: LedgerTransaction, table: ExportedTable, *conditions: ColumnElement[bool]) -> Iterator[Rows]:
    query = select(*table.columns).where(*conditions).order_by(*table.order)
    for chunk in tx.execute(query.execution_options(yield_per=CHUNK_ROWS)).partitions(CHUNK_ROWS):
        yield [tuple(row) for row in chunk]


def _write(
    table: ExportedTable, chunks: Iterable[Rows], folder: Path, *, refresh_no: int
) -> tuple[Part, ...]:
    written = write_parts(table, chunks, folder / table.name, name=_name(refresh_no))
    return tuple(
        Part(f"{table.name}/{path.name}", refresh_no, rows, path.stat().st_size) for path, rows in written
    )


def _write_moved(moved: Collection[str], folder: Path, refresh_no: int) -> Part:
    path = folder / CHANGED_JOBS / f"{_name(refresh_no)}-00000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"job_id": column_of(sorted(moved), "text")}), path, compression="zstd")
    return Part(f"{CHANGED_JOBS}/{path.name}", refresh_no, len(moved), path.stat().st_size)
