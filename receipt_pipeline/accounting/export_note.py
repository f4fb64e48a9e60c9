"""The note of an export: how far it has seen the ledger, and of which files each table is made."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from receipt_pipeline.accounting.exported import EXPORTED
from receipt_pipeline.accounting.facts import questions_settled_by_rows
from receipt_pipeline.core.errors import ReportFault
from receipt_pipeline.core.reasons import REPORT_REBUILT
from receipt_pipeline.ledger.changes import LedgerMark, mark_from

FORMAT = 1
CHANGED_JOBS = "changed_jobs"
NOTE = "export.json"


@dataclass(frozen=True, slots=True)
class Part:
    """One file of an export.

    Attributes:
        file: its place inside the export's folder.
        refresh_no: 0 for the full export, n for what the n-th refresh after it read again.
    """

    file: str
    refresh_no: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """What one refresh read again.

    Attributes:
        moved: files that list the jobs whose rows take the place of all that they had.
        rows: per table the files of the rows.
    """

    moved: list[str]
    rows: Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class ExportNote:
    """What an export holds.

    Attributes:
        export_id: names the full export on which the refreshes stand.
        shape: names the tables and columns it was written for.
        mark: what of the ledger it has seen.
        refresh_no: its newest refresh; 0 when there was none.
        parts: by table, oldest first; `changed_jobs` lists the jobs that each refresh replaces.
        digests: of the rows last read of tables that are read whole each time.
    """

    export_id: str
    shape: str
    mark: LedgerMark
    as_of: str
    refresh_no: int
    parts: Mapping[str, tuple[Part, ...]]
    digests: Mapping[str, str] = field(default_factory=dict)

    def of_refresh(self, table: str, refresh_no: int) -> tuple[Part, ...]:
        """Return the parts of a table that one refresh wrote; 0 asks for those of the full export."""
        return tuple(part for part in self.parts.get(table, ()) if part.refresh_no == refresh_no)

    def renewed(self, folder: Path, *, after: int) -> list[Renewed]:
        """Return what each refresh after a certain one read again, oldest first."""
        return [
            Renewed(
                moved=self.files(folder, CHANGED_JOBS, no),
                rows={table.name: self.files(folder, table.name, no) for table in EXPORTED},
            )
            for no in range(after + 1, self.refresh_no + 1)
        ]

    def files(self, folder: Path, table: str, refresh_no: int) -> list[str]:
        """Return the files of a table that one refresh wrote; 0 asks for those of the full export."""
        return [str(folder / part.file) for part in self.of_refresh(table, refresh_no)]

    def rows_written(self, table: str, *, since: int) -> int:
        """Return how many rows of a table the export and its refreshes from `since` on wrote."""
        return sum(part.rows for part in self.parts.get(table, ()) if part.refresh_no >= since)


def shape_of_report() -> str:
    """Return a digest of what this version writes: tables, columns, views, descriptions and findings."""
    told = hashlib.sha256(f"{FORMAT} {questions_settled_by_rows()}".encode())
    for table in EXPORTED:
        told.update(f"{table.name} {table.names} {table.kinds}".encode())
    for entry in sorted(
        resources.files("receipt_pipeline.accounting").joinpath("sql").iterdir(), key=lambda one: one.name
    ):
        told.update(entry.read_bytes())
    return told.hexdigest()[:16]


def write_note(note: ExportNote, folder: Path) -> None:
    """Write the note beside its place and rename it in: it is whole, or it is the former one."""
    document = {
        "format": FORMAT,
        "export_id": note.export_id,
        "shape": note.shape,
        "seq": note.mark.seq,
        "mark": note.mark.as_document(),
        "as_of": note.as_of,
        "refresh_no": note.refresh_no,
        "rows": {table: sum(part.rows for part in parts) for table, parts in note.parts.items()},
        "parts": {
            table: [[part.file, part.refresh_no, part.rows, part.size_bytes] for part in parts]
            for table, parts in note.parts.items()
        },
        "digests": dict(note.digests),
    }
    beside = folder / f"{NOTE}.new"
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(folder / NOTE)


def read_note(folder: Path) -> ExportNote | None:
    """Return the note of an export; None when there is none of this version.

    Raises:
        ReportFault: REPORT.REBUILT.v1 when the note, or a file that it names, is not what was written.
    """
    if not folder.is_dir():
        return None
    try:
        document: dict[str, Any] = json.loads((folder / NOTE).read_text())
        if document.get("format") != FORMAT:
            return None  # Another version's.
        note = ExportNote(
            export_id=str(document["export_id"]),
            shape=str(document["shape"]),
            mark=mark_from(document["mark"]),
            as_of=str(document["as_of"]),
            refresh_no=int(document["refresh_no"]),
            parts={
                str(table): tuple(
                    Part(str(file), int(no), int(rows), int(size)) for file, no, rows, size in parts
                )
                for table, parts in document["parts"].items()
            },
            digests={str(table): str(digest) for table, digest in document["digests"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportFault(REPORT_REBUILT, what=NOTE, cause=type(error).__name__) from error
    for part in (part for parts in note.parts.values() for part in parts):
        path = folder / part.file
        if not path.is_file() or path.stat().st_size != part.size_bytes:
            raise ReportFault(REPORT_REBUILT, what=part.file, cause="another size than was written")
    return note
