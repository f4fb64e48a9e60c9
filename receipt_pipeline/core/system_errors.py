"""What the operating system says of files, in words that a reason's facts carry."""

from __future__ import annotations

import errno
from pathlib import Path

from receipt_pipeline.core.errors import InputRefused, ObjectFault, PipelineError
from receipt_pipeline.core.reasons import SETTING_INVALID, STORAGE_FULL

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def cause_of(error: OSError) -> str:
    """Return the symbol of an error, such as EACCES; without one its own kind, such as Timeout, else EIO."""
    kind = "EIO" if type(error) is OSError else type(error).__name__
    return errno.errorcode.get(error.errno or 0, kind)


def is_out_of_space(error: BaseException) -> bool:
    """Tell whether an error says that the disk or the quota is full."""
    return getattr(error, "errno", None) in _NO_SPACE


def home_fault(error: OSError, path: Path) -> PipelineError:
    """Return the error for a place of the home that cannot be written.

    Returns:
        ObjectFault STORAGE.FULL.v1 where there is no room, else InputRefused SETTING.INVALID.v1.
    """
    if is_out_of_space(error):
        return ObjectFault(STORAGE_FULL, path=str(path))
    return InputRefused(SETTING_INVALID, variable="RECEIPTS_HOME", path=str(path), cause=cause_of(error))
