"""Whether somebody serves a home: the lock that web server and daemon keep."""

from __future__ import annotations

from filelock import FileLock, Timeout

from receipt_pipeline.settings import Settings


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
