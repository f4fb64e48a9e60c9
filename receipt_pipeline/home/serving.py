"""Whether somebody serves a home, by the lock that web server and daemon keep; and its beginning anew."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.reasons import HOME_SERVED
from receipt_pipeline.settings import Settings
from receipt_pipeline.wiring import begin_home_anew


def serving_lock(settings: Settings) -> FileLock:
    """Return the lock that whoever serves the home holds all the while."""
    return FileLock(str(settings.home / "serving.lock"))


def is_served(settings: Settings) -> bool:
    """Tell whether a web server and daemon serve this home: the lock they keep is held."""
    if not settings.home.is_dir():
        return False
    lock = serving_lock(settings)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def begin_anew(settings: Settings) -> tuple[Path | None, list[str]]:
    """Set aside what stands in an unserved home without its ledger, so that it opens as a new one.

    Returns:
        The folder in which it is now, and what was moved, relative to the home.
    Raises:
        NotAllowed: HOME.SERVED.v1, or LEDGER.IN_USE.v1 where the ledger has records.
    """
    if not settings.home.is_dir():
        return None, []
    try:
        with serving_lock(settings).acquire(timeout=0):
            return begin_home_anew(settings)
    except Timeout as error:
        raise NotAllowed(HOME_SERVED, home=str(settings.home)) from error
