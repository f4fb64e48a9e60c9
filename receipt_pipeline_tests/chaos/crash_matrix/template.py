"""The warm process of the crash matrix: everything is imported once, and each order gets a fork of it.

It reads orders as JSON lines on standard input and writes the process id of each fork to standard
output and, when the fork has ended, its status. It and its forks end when its input closes.
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
from receipt_pipeline_tests.chaos.crash_matrix.steps import BROKE, StepOrder, run_step_order
from receipt_pipeline_tests.speed import share_compiled_statements

READ_BYTES = 65_536
REHEARSED = ("submit", "passes", "publish", "verify")


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
            if 0 in ready and not self._read_orders():
                break
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _read_orders(self) -> bool:
        """Fork for every whole line; False when the input is closed."""
        data = os.read(0, READ_BYTES)
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            document = json.loads(line)
            pid = os.fork()
            if pid == 0:
                self._run_in_fork(document["order"])
            self._children[pid] = document["number"]
            _send({"number": document["number"], "pid": pid})
        return bool(data)

    def _report_ended(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _send({"number": self._children.pop(pid), "status": os.waitstatus_to_exitcode(status)})

    def _run_in_fork(self, order: dict[str, Any]) -> None:
        """Run an order in this fork and exit; never returns."""
        status = BROKE
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._woken)
            os.close(self._wake)
            _redirect_output(Path(order["folder"]) / "processes.log")
            status = run_step_order(StepOrder(**order))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)


def _redirect_output(log: Path) -> None:
    """Send the process's output to the cell's log and give it an empty input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)


def _send(document: dict[str, Any]) -> None:
    os.write(1, json.dumps(document).encode() + b"\n")


def rehearse() -> None:
    """Play a scenario without a fault, so that a fork has little left to import and to compile."""
    with tempfile.TemporaryDirectory(prefix="receipts-rehearsal-") as folder:
        for step in REHEARSED:
            run_step_order(StepOrder(step, folder, {**MATRIX_LIMITS, "RECEIPTS_HOME": str(Path(folder) / "home")}))


def main() -> None:
    """Serve until the input closes."""
    share_compiled_statements()
    rehearse()
    gc.collect()
    gc.freeze()
    Template().serve()


if __name__ == "__main__":
    main()
