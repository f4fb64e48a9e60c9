"""The lock of a running instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from receipt_pipeline.app.context import begin_home_anew
from receipt_pipeline.core.errors import NotAllowed, data_directory_fault
from receipt_pipeline.core.reasons import HOME_SERVED
from receipt_pipeline.settings import Settings

# Others look for a moment whether the home is served; whoever serves it keeps the lock for longer.
LOOK_S = 0.15


@contextmanager
def serving(settings: Settings) -> Iterator[None]:
    """Hold the lock of whoever serves the home.

    Raises:
        NotAllowed: HOME.SERVED.v1 when another process holds it.
        InputRefused: SETTING.INVALID.v1 when it cannot be made in this home.
        ObjectFault: STORAGE.FULL.v1 when there is no room for it.
    """
    path = settings.home / "serving.lock"
    lock = FileLock(str(path))
    try:
        lock.acquire(timeout=LOOK_S)
    except Timeout as error:
        raise NotAllowed(HOME_SERVED, home=str(settings.home)) from error
    except OSError as error:
        raise data_directory_fault(error, path) from error
    try:
        yield
    finally:
        lock.release()


def is_served(settings: Settings) -> bool:
    """Tell whether a web server and daemon serve this home: the lock they keep is held."""
    if not settings.home.is_dir():
        return False
    try:
        with serving(settings):
            return False
    except NotAllowed:
        return True


def begin_anew(settings: Settings) -> tuple[Path | None, list[str]]:
    """Set aside what stands in an unserved home without its ledger, so that it opens as a new one.

    Returns:
        The folder in which it is now, and what was moved, relative to the home.
    Raises:
        NotAllowed: HOME.SERVED.v1, or LEDGER.IN_USE.v1 where the ledger has records.
    """
    if not settings.home.is_dir():
        return None, []
    with serving(settings):
        return begin_home_anew(settings)
