"""Measures an attempt: processor, threads, versions, seconds per item. Evidence, never part of a result."""

from __future__ import annotations

import datetime as dt
import functools
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

LIBRARIES = ("numpy", "onnxruntime", "rapidocr", "pillow", "pypdfium2", "pillow-heif", "opencv-python")
CPU_INFO = Path("/proc/cpuinfo")


@dataclass(slots=True)
class AttemptMeter:
    """Runs from the claim to the attempt's last write.

    Args:
        monotonic: seconds that never go back.
        clock_skew_s: this host's clock less the ledger's, at the claim.
    """

    monotonic: Callable[[], float]
    clock_skew_s: float
    item_seconds: dict[int, float] = field(default_factory=dict)
    _started: float = 0.0
    _cpu_started: float = 0.0

    def __post_init__(self) -> None:
        self._started = self.monotonic()
        self._cpu_started = time.process_time()

    def item_took(self, ordinal: int, seconds: float) -> None:
        """Note how long one item took in this attempt."""
        self.item_seconds[ordinal] = round(seconds, 3)

    @property
    def seconds(self) -> float:
        """Return the seconds since the claim."""
        return round(self.monotonic() - self._started, 3)

    def document(self) -> dict[str, Any]:
        """Return the facts as plain JSON; seconds and counts."""
        return {
            "seconds": self.seconds,
            "cpu_s": round(time.process_time() - self._cpu_started, 3),
            "threads": psutil.Process().num_threads(),
            "clock_skew_s": round(self.clock_skew_s, 3),
            "item_seconds": {str(ordinal): took for ordinal, took in self.item_seconds.items()},
            **installation_facts(),
        }


def host_skew_s(ledger_now: dt.datetime) -> float:
    """Return this host's clock less the ledger's, in seconds."""
    return (dt.datetime.now(dt.UTC) - ledger_now).total_seconds()


@functools.cache
def installation_facts() -> dict[str, Any]:
    """Return what shapes speed on this machine: processor, Python and library versions."""
    return {"cpu_model": _cpu_model(), "python": platform.python_version(), "libraries": _versions()}


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # Not every installation carries every decoder.
    return found


def _cpu_model() -> str:
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
