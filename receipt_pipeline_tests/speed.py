"""What makes the suite fast without changing what it tests: files in memory, statements compiled once."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import psutil

MEMORY_FOLDER = Path("/dev/shm")
PREFIX = "receipts-tests-"
FREE_BYTES_MIN = 4 * 2**30
STATEMENTS_MAX = 4_000


def folder_in_memory() -> Path | None:
    """Make a folder for temporary files that no disk has to sync; None where memory is short.

    Tests kill processes, never the machine, so they see no difference. It is removed when this process
    ends, after everything that multiprocessing removes.
    """
    if not _has_room():
        return None
    for left in MEMORY_FOLDER.glob(f"{PREFIX}*"):  # By a run that was killed.
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY_FOLDER))
    folder.chmod(0o711)  # The PostgreSQL server may run as another user.
    Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=-200)
    return folder


def _has_room() -> bool:
    if not os.access(MEMORY_FOLDER, os.W_OK):
        return False
    free = min(shutil.disk_usage(MEMORY_FOLDER).free, psutil.virtual_memory().available)
    return free >= FREE_BYTES_MIN


@functools.cache
def share_compiled_statements() -> None:
    """Let every engine of this process reuse the statements that an earlier one compiled.

    Each test opens its own ledger, and SQLAlchemy caches compiled statements per engine and dialect.
    """
    import sqlalchemy as sa
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
    from sqlalchemy.util import LRUCache

    caches: dict[str, LRUCache[Any, Any]] = {}
    init = sa.Engine.__init__

    @functools.wraps(init)
    def init_with_shared_cache(engine: sa.Engine, *arguments: Any, **options: Any) -> None:
        init(engine, *arguments, **options)
        engine._compiled_cache = caches.setdefault(engine.dialect.name, LRUCache(STATEMENTS_MAX))

    sa.Engine.__init__ = init_with_shared_cache  # type: ignore[method-assign]
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        dialect.__eq__ = lambda self, other: type(self) is type(other)  # type: ignore[method-assign]
        dialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
