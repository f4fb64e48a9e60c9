"""The command line: parse, call one function of the application, answer."""

from __future__ import annotations

import sys
from types import TracebackType


def _report_interruption(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Answer Ctrl-C during loading with one line; any other error as Python does."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("Stopped before anything was started.\n")
    else:
        sys.__excepthook__(kind, error, trace)


# Loading takes a second or two; after it, each command answers an interruption itself.
sys.excepthook = _report_interruption
