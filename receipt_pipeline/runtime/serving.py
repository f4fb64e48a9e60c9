"""The lock of a running instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from receipt_pipeline.core.errors import NotAllowed, data_directory_fault
from receipt_pipeline.core.reasons import HOME_SERVED
from receipt_pipeline.settings import Settings

# Others try the lock for a moment; a running instance keeps it for longer.
LOCK_WAIT_S = 0.15


@contextmanager
def serving(settings: Settings) -> Iterator[None]:
    """Hold the lock of a running instance.

    Raises:
        NotAllowed: HOME.SERVED.v1 when another process holds it.
        InputRefused: SETTING.INVALID.v1 when it cannot be made in this data directory.
        ObjectFault: STORAGE.FULL.v1 when the disk is full.
    """
    path = settings.home / "serving.lock"
    lock = FileLock(str(path))
    try:
        lock.acquire(timeout=LOCK_WAIT_S)
    except Timeout as error:
        raise NotAllowed(HOME_SERVED, home=str(settings.home)) from error
    except OSError as error:
        raise data_directory_fault(error, path) from error
    try:
        yield
    finally:
        lock.release()


def is_served(settings: Settings) -> bool:
    """Return whether the web server and daemon of this data directory run: their lock is held."""
    if not settings.home.is_dir():
        return False
    try:
        with serving(settings):
            return False
    except NotAllowed:
        return True
