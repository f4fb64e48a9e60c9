"""Python children that talk by lines, such as readers of a report in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

CHILD_S_MAX = 120


def child(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python child that talks by lines."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def tell(process: subprocess.Popen[str], line: str = "") -> str:
    """Hand the child a line and return its answer."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return hear(process)


def hear(process: subprocess.Popen[str]) -> str:
    """Return the child's next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """End one child by its own id and close its pipes."""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.communicate(timeout=CHILD_S_MAX)
