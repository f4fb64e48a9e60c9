"""Confines the paths of a submission to its folder, and checks again while opening them."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import PATH_OUTSIDE, SCAN_MISSING, SCAN_UNREADABLE
from receipt_pipeline.core.system_errors import cause_of

DEPTH_MAX = 20
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a pipe that somebody put there would hold the door open for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def confined_parts(uri: str, *, pointer: str) -> tuple[str, ...]:
    """Return the steps of a relative path, judged by its text alone.

    Raises:
        InputRefused: PATH.OUTSIDE.v1 for `..`, absolute paths, drive letters, schemes, backslashes:
            the same answer whether or not anything stands there.
    """
    parts = [step for step in uri.split("/") if step != "."]
    suspicious = (
        not parts
        or len(parts) > DEPTH_MAX
        or "\\" in uri
        or _SCHEME.match(uri) is not None
        or any(step in ("", "..") or "\0" in step for step in parts)
    )
    if suspicious:
        raise outside(pointer)
    return tuple(parts)


def open_confined(folder: Path, uri: str, *, pointer: str) -> int:
    """Open a file below the folder for reading and return its descriptor.

    Each step is opened from the one before without following links, so that a folder exchanged
    for a link after the check leads nowhere.

    Raises:
        InputRefused: PATH.OUTSIDE.v1 for any symbolic link on the way, SCAN.MISSING.v1, or
            SCAN.UNREADABLE.v1 for what is no plain file or may not be read.
    """
    parts = confined_parts(uri, pointer=pointer)
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(error, pointer) from error
    try:
        for step in parts[:-1]:
            deeper = _open_step(at, step, _FOLDER, pointer)
            os.close(at)
            at = deeper
        return _plain_file(_open_step(at, parts[-1], _FILE, pointer), pointer)
    finally:
        os.close(at)


def outside(pointer: str) -> InputRefused:
    """Return the one refusal for every path that leads out; it says nothing of the target."""
    return InputRefused(PATH_OUTSIDE, pointer=pointer)


def _open_step(at: int, step: str, flags: int, pointer: str) -> int:
    try:
        return os.open(step, flags, dir_fd=at)
    except OSError as error:
        # A link opened as a folder answers ENOTDIR on some systems and ELOOP on others.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(at, step):
            raise outside(pointer) from None
        raise _refusal(error, pointer) from error


def _is_link(at: int, step: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(step, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _plain_file(handle: int, pointer: str) -> int:
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise InputRefused(SCAN_UNREADABLE, pointer=pointer, cause="no plain file")


def _refusal(error: OSError, pointer: str) -> InputRefused:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return InputRefused(SCAN_MISSING, pointer=pointer)
    return InputRefused(SCAN_UNREADABLE, pointer=pointer, cause=cause_of(error))
