"""What the operating system says, as the facts of a reason."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from filelock import Timeout

from receipt_pipeline.core.errors import InputRefused, ObjectFault, cause_of, data_directory_fault, is_out_of_space

PLACE = Path("/home-of-tests/outbox")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), "EACCES"),
        (PermissionError(errno.EPERM, "no"), "EPERM"),
        (OSError("said without a number"), "EIO"),
        (Timeout("a.lock"), "Timeout"),
    ],
)
def test_an_error_is_named_by_its_symbol_or_its_kind(error: OSError, cause: str) -> None:
    assert cause_of(error) == cause


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_in_the_home_is_a_full_storage(number: int) -> None:
    fault = data_directory_fault(OSError(number, "full"), PLACE)
    assert isinstance(fault, ObjectFault)
    assert (fault.reason.code, fault.facts) == ("STORAGE.FULL.v1", {"path": str(PLACE)})
    assert is_out_of_space(OSError(number, "full"))


def test_another_place_of_the_home_that_cannot_be_written_is_a_setting() -> None:
    fault = data_directory_fault(OSError(errno.EROFS, "read-only"), PLACE)
    assert isinstance(fault, InputRefused)
    assert fault.reason.code == "SETTING.INVALID.v1"
    assert fault.facts == {"variable": "RECEIPTS_HOME", "path": str(PLACE), "cause": "EROFS"}
    assert not is_out_of_space(ValueError("no such thing"))
