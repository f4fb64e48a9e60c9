"""Runs the `receipts` command of this installation in a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

BIN = Path(sys.executable).parent
COMMAND_S_MAX = 600


def run_receipts(
    home: Path, *arguments: str, environment: Mapping[str, str] | None = None, timeout_s: float = COMMAND_S_MAX
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "receipts"), *arguments],
        env={**os.environ, "RECEIPTS_HOME": str(home), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def answer_of(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def processes_of(home: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get("RECEIPTS_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
