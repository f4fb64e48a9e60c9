"""The command line: parse, call one service, answer."""

from __future__ import annotations

import sys
from types import TracebackType


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say in a line that Ctrl-C came while the command was still loading: nothing was begun."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("stopped before anything was begun\n")
    else:
        sys.__excepthook__(kind, error, trace)


# Loading takes a second or two; after it, each command answers an interruption itself.
sys.excepthook = _tell
