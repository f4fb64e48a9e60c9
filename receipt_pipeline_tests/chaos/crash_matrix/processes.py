"""Starts the processes of the crash matrix: forks of one warm template, watched from here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from receipt_pipeline_tests.chaos.crash_matrix.steps import StepOrder

# One thread in the template: a fork copies only the thread that forks.
_SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
START_S_MAX = 180.0


@dataclass(slots=True)
class Running:
    """A process of a cell; `status` is None while it runs, negative for a signal."""

    order: StepOrder
    pid: int = 0
    status: int | None = None
    started: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def wait(self, within_s: float) -> int | None:
        """Return how the process ended, None when it still runs after the bound."""
        self.ended.wait(within_s)
        return self.status

    def kill(self) -> None:
        """End the process, unless it has ended already."""
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.ended.wait(START_S_MAX)


class Processes:
    """The template and its forks; leaving the context ends them all."""

    def __init__(self) -> None:
        self._template = subprocess.Popen(
            [sys.executable, "-m", "receipt_pipeline_tests.chaos.crash_matrix.template"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_SINGLE_THREADED},
        )
        self._lock = threading.Lock()
        self._running: dict[int, Running] = {}
        self._reader = threading.Thread(target=self._read, name="matrix-processes", daemon=True)

    def __enter__(self) -> Processes:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self._reader.join()

    def end(self) -> None:
        """End the template, and with it every process that still runs."""
        assert self._template.stdin is not None
        with self._lock:
            self._template.stdin.close()
        self._template.wait()

    def start(self, order: StepOrder) -> Running:
        """Fork a process for the order; returns when it has its process id."""
        running = Running(order)
        assert self._template.stdin is not None
        with self._lock:
            number = len(self._running)
            self._running[number] = running
            line = json.dumps({"number": number, "order": order.as_document()})
            self._template.stdin.write(line.encode() + b"\n")
            self._template.stdin.flush()
        assert running.started.wait(START_S_MAX), "the template process does not answer"
        return running

    def _read(self) -> None:
        assert self._template.stdout is not None
        for line in self._template.stdout:
            self._receive(json.loads(line))
        for running in self._running.values():  # The template is gone, and everything with it.
            running.ended.set()

    def _receive(self, message: dict[str, Any]) -> None:
        running = self._running[message["number"]]
        if "pid" in message:
            running.pid = message["pid"]
            running.started.set()
        else:
            running.status = message["status"]
            running.ended.set()
