"""Tells a lost ledger from a new one by what earlier jobs left in the home, and sets that aside on demand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.core.errors import LedgerUnavailable, NotAllowed, data_directory_fault
from receipt_pipeline.core.reasons import LEDGER_IN_USE, LEDGER_LOST
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.migrate import is_unused
from receipt_pipeline.objects.store import RESULTS_PREFIX, SCANS_PREFIX, SET_ASIDE_PREFIX

SET_ASIDE = "set-aside"
HANDLED = ("accepted", "refused")
ANSWER_SUFFIXES = (".status.json", ".ack.json")
LEDGER_FILES = ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal")
# What is made again from the ledger, and would tell of another one.
_MADE_FROM_IT = ("report", "evaluations", "metrics")


@dataclass(frozen=True, slots=True)
class HomeFolders:
    """Where one home keeps what jobs leave behind."""

    home: Path
    objects: Path
    inbox: Path
    outbox: Path


def refuse_lost_ledger(ledger: Ledger, folders: HomeFolders) -> None:
    """Refuse to begin a ledger anew beside what an earlier one accounted for; creates nothing.

    What is stored or answered was recorded before. So the folders are looked at first: what another
    process leaves between the two looks has its record by the second.

    Raises:
        LedgerUnavailable: LEDGER.LOST.v1, naming the first thing found; or the ledger cannot be read.
    """
    found = next(remains(folders), None)
    if found is not None and is_unused(ledger):
        raise LedgerUnavailable(LEDGER_LOST, home=str(folders.home), found=str(found))


def remains(folders: HomeFolders) -> Iterator[Path]:
    """Yield files that only a recorded delivery can have left, relative to the home."""
    for prefix in (RESULTS_PREFIX, SCANS_PREFIX, SET_ASIDE_PREFIX):
        yield from _files(folders.objects / prefix, folders.home)
    for tenant in _entries(folders.outbox):
        for path in _files(Path(tenant), folders.home):
            if path.name.endswith(ANSWER_SUFFIXES):
                yield path
    for tenant in _entries(folders.inbox):
        for handled in HANDLED:
            yield from _files(Path(tenant, handled), folders.home)


def begin_anew(ledger: Ledger, folders: HomeFolders) -> tuple[Path | None, list[str]]:
    """Set aside what stands without its ledger; returns the folder it is in now, and what was moved.

    Broken off half-way it is repeated: what is left still keeps the home from opening.

    Raises:
        NotAllowed: LEDGER.IN_USE.v1; nothing was moved.
        InputRefused: SETTING.INVALID.v1 when something cannot be moved.
        ObjectFault: STORAGE.FULL.v1 when there is no room for the folder it is moved to.
    """
    unused = is_unused(ledger)
    ledger.close()
    if not unused:
        raise NotAllowed(LEDGER_IN_USE, home=str(folders.home))
    if next(remains(folders), None) is None:
        return None, []
    moving = [path for path in _belongings(folders) if path.exists()]
    target = _free_folder(folders.home / SET_ASIDE)
    for path in moving:
        inside = path.relative_to(folders.home)
        try:
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target / inside)
        except OSError as error:
            raise data_directory_fault(error, path) from error
    return target, [str(path.relative_to(folders.home)) for path in moving]


def _belongings(folders: HomeFolders) -> Iterator[Path]:
    for name in (*LEDGER_FILES, *_MADE_FROM_IT):
        yield folders.home / name
    yield folders.outbox
    for tenant in _entries(folders.inbox):
        yield from (Path(tenant, handled) for handled in HANDLED)
    # Last, because a crash half-way must leave something that keeps the home from opening.
    yield folders.objects


def _free_folder(root: Path) -> Path:
    return next(root / str(number) for number in itertools.count(1) if not (root / str(number)).exists())


def _files(folder: Path, home: Path) -> Iterator[Path]:
    """Yield the files below a folder, temporary ones left out, in no order: the first is enough."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry), home)
        elif not entry.name.startswith("."):
            yield Path(entry).relative_to(home)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what stands in a folder; one that is not there, or that cannot be read, holds nothing."""
    try:
        with os.scandir(folder) as found:
            yield from found
    except OSError:
        return
