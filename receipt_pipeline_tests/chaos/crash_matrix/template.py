"""The warm process of the crash matrix: everything is imported once, and each order gets a fork of it.

It reads orders as JSON lines on standard input and answers on standard output with the process id of
each fork and, when that has ended, its status. It ends, and its forks with it, when its input closes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from receipt_pipeline_tests.chaos.crash_matrix.scenarios import MATRIX_LIMITS
from receipt_pipeline_tests.chaos.crash_matrix.steps import BROKE, Order, work_order

READ_BYTES = 65_536
REHEARSED = ("submit", "rounds", "publish", "judge")


class Template:
    """Forks a process per order and reports each end, in one thread."""

    def __init__(self) -> None:
        self._children: dict[int, int] = {}
        self._half = b""
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def serve(self) -> None:
        """Fork and report until the input is closed; then end what still runs."""
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        selector.register(self._woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if self._woken in ready:
                os.read(self._woken, READ_BYTES)
                self._report_ended()
            if 0 in ready and not self._take_orders():
                break
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _take_orders(self) -> bool:
        """Fork for every whole line; False when the input is closed."""
        data = os.read(0, READ_BYTES)
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            document = json.loads(line)
            pid = os.fork()
            if pid == 0:
                self._become(document["order"])
            self._children[pid] = document["number"]
            _tell({"number": document["number"], "pid": pid})
        return bool(data)

    def _report_ended(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _tell({"number": self._children.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _become(self, order: dict[str, Any]) -> None:
        """Be the process of an order, from its first line to its end; never returns."""
        status = BROKE
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._woken)
            os.close(self._wake)
            _talk_to(Path(order["folder"]) / "processes.log")
            status = work_order(Order(**order))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)


def _talk_to(log: Path) -> None:
    """Let the process write to the cell's log, and read nothing."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)


def _tell(document: dict[str, Any]) -> None:
    os.write(1, json.dumps(document).encode() + b"\n")


def rehearse() -> None:
    """Play a story without a fault, so that nothing is left to be imported by a fork."""
    with tempfile.TemporaryDirectory(prefix="receipts-rehearsal-") as folder:
        for step in REHEARSED:
            work_order(Order(step, folder, {**MATRIX_LIMITS, "RECEIPTS_HOME": str(Path(folder) / "home")}))


def main() -> None:
    """Serve until the input closes."""
    rehearse()
    gc.collect()
    gc.freeze()
    Template().serve()


if __name__ == "__main__":
    main()
