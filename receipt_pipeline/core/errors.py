"""Expected failures, each with a reason."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from receipt_pipeline.core.reasons import SETTING_INVALID, STORAGE_FULL, Reason


def fact_text(value: object) -> str:
    """Return a fact of an error as text for people: lists with commas, never a Python literal."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {fact_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(fact_text(entry) for entry in value)
    return "none" if value is None else str(value)


class PipelineError(Exception):
    """An expected failure: callers act on `reason.remedy`, people read text and facts.

    Args:
        reason: what went wrong, by stable code.
        pointer: JSON pointer into the submitted document, where there is one.
        facts: named facts; never raw input, file contents or secrets.
    """

    def __init__(self, reason: Reason, *, pointer: str = "", **facts: Any) -> None:
        self.reason = reason
        self.pointer = pointer
        self.facts: Mapping[str, Any] = facts
        super().__init__(self.explain())

    def explain(self) -> str:
        """Return code, place, meaning and facts on one line."""
        place = f" at {self.pointer}" if self.pointer else ""
        facts = "; ".join(f"{name}: {fact_text(value)}" for name, value in self.facts.items())
        return f"{self.reason.code}{place}: {self.reason.meaning}" + (f" ({facts})" if facts else "")

    def as_document(self) -> dict[str, Any]:
        """Return the error as a JSON document: code, meaning, next step, pointer, facts."""
        return {
            "code": self.reason.code,
            "meaning": self.reason.meaning,
            "next_step": self.reason.next_step,
            "remedy": self.reason.remedy.value,
            "pointer": self.pointer,
            "facts": dict(self.facts),
        }


class InputRefused(PipelineError):
    """A request, manifest or row that acceptance refuses; nothing was accepted."""


class KeyConflict(PipelineError):
    """The idempotency key already names a different request."""


class NotFound(PipelineError):
    """Not found for this principal: unknown and foreign ids get the same answer."""


class NotAllowed(PipelineError):
    """The state or the principal's role does not permit what was asked."""


class LeaseLost(PipelineError):
    """A later lease epoch owns the job; the worker must stop."""


class StageFailed(PipelineError):
    """A stage of the chain gave no answer although the input is acceptable."""


class ScanRejected(PipelineError):
    """The scan itself cannot be processed; its item is `rejected` and the job continues."""


class IdentityMismatch(PipelineError):
    """A pinned artifact is missing or does not match its digest."""


class ObjectFault(PipelineError):
    """An object is missing, altered, or its upload cannot be confirmed."""


class LedgerUnavailable(PipelineError):
    """The ledger could not be reached or stayed locked beyond the bound.

    Nothing was written, unless the reason says that a commit's answer was lost.
    """


class ReportFault(PipelineError):
    """The report could not be built or published; the previous one is still readable."""


_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


def cause_of(error: OSError) -> str:
    """Return the symbol of an error, such as EACCES; without one its own kind, such as Timeout, else EIO."""
    kind = "EIO" if type(error) is OSError else type(error).__name__
    return errno.errorcode.get(error.errno or 0, kind)


def is_out_of_space(error: BaseException) -> bool:
    """Return whether an error means that the disk or the quota is full."""
    return getattr(error, "errno", None) in _NO_SPACE


def data_directory_fault(error: OSError, path: Path) -> PipelineError:
    """Return the error for a path of the data directory that cannot be written.

    Returns:
        ObjectFault STORAGE.FULL.v1 when the disk is full, else InputRefused SETTING.INVALID.v1.
    """
    if is_out_of_space(error):
        return ObjectFault(STORAGE_FULL, path=str(path))
    return InputRefused(SETTING_INVALID, variable="RECEIPTS_HOME", path=str(path), cause=cause_of(error))
