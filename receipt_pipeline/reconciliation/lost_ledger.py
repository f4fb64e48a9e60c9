"""Distinguish a lost ledger from a new one by the files that earlier jobs left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.reasons import LEDGER_LOST
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.migrate import is_unused
from receipt_pipeline.objects.store import RESULTS_PREFIX, SCANS_PREFIX, SET_ASIDE_PREFIX

HANDLED = ("accepted", "refused")
ANSWER_SUFFIXES = (".status.json", ".ack.json")


@dataclass(frozen=True, slots=True)
class DataFolders:
    """Where one data directory keeps what jobs leave behind."""

    home: Path
    objects: Path
    inbox: Path
    outbox: Path


def refuse_lost_ledger(ledger: Ledger, folders: DataFolders) -> None:
    """Refuse to start an empty ledger next to what an earlier one accounted for; creates nothing.

    What is stored or answered was recorded before. So the folders are looked at first: what another
    process leaves between the two looks has its record by the second.

    Raises:
        LedgerUnavailable: LEDGER.LOST.v1, naming the first thing found; or the ledger cannot be read.
    """
    found = next(remains(folders), None)
    if found is not None and is_unused(ledger):
        raise LedgerUnavailable(LEDGER_LOST, home=str(folders.home), found=str(found))


def remains(folders: DataFolders) -> Iterator[Path]:
    """Yield files that only a recorded delivery can have left, relative to the data directory."""
    for prefix in (RESULTS_PREFIX, SCANS_PREFIX, SET_ASIDE_PREFIX):
        yield from _files(folders.objects / prefix, folders.home)
    for tenant in _entries(folders.outbox):
        for path in _files(Path(tenant), folders.home):
            if path.name.endswith(ANSWER_SUFFIXES):
                yield path
    for tenant in _entries(folders.inbox):
        for handled in HANDLED:
            yield from _files(Path(tenant, handled), folders.home)


def _files(folder: Path, home: Path) -> Iterator[Path]:
    """Yield the files below a folder, temporary ones left out, in no order: the first is enough."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry), home)
        elif not entry.name.startswith("."):
            yield Path(entry).relative_to(home)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder; none when it is missing or cannot be read."""
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return
