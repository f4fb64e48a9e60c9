"""Process groups and ports."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

HOST = "127.0.0.1"
STOP_GRACE_S = 20.0
PR_SET_PDEATHSIG = 1


def free_port(preferred: int | None = None) -> int:
    """Return a TCP port of the loopback address that is free now: the preferred one if it is."""
    for port in (0,) if preferred is None else (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError(f"no free port on {HOST}")


def is_listening(port: int) -> bool:
    """Return whether something accepts connections on a port of the loopback address."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _reset_signals() -> None:
    """Run in the child before exec: default signals, and SIGTERM when the parent is killed."""
    # A shell's '&' leaves SIGINT ignored, and Dagster copies that handler to SIGTERM.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def start_group(command: Sequence[str], *, folder: Path, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a console script of this environment as the leader of a group; output goes to `log`."""
    program = Path(sys.executable).parent / command[0]
    with log.open("ab") as output:
        return subprocess.Popen(
            [str(program), *command[1:]],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_reset_signals,
        )


def stop_group(process: subprocess.Popen[bytes]) -> None:
    """Stop a process and its whole group; returns when the group is empty."""
    _signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
    _wait_until_empty(process.pid)


def record_groups(path: Path, leaders: Iterable[subprocess.Popen[bytes]]) -> None:
    """Write which groups run, so that the next start can stop what a killed parent left."""
    running = []
    for process in leaders:
        try:
            running.append({"pid": process.pid, "started": psutil.Process(process.pid).create_time()})
        except psutil.NoSuchProcess:
            continue
    path.write_text(json.dumps(running))


def stop_recorded_groups(path: Path) -> int:
    """Stop the groups of `record_groups` that still run; returns how many. An unreadable file names none."""
    try:
        recorded = [(int(entry["pid"]), float(entry["started"])) for entry in json.loads(path.read_text())]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return 0
    stopped = 0
    for pid, started in recorded:
        try:
            same = pid > 1 and abs(psutil.Process(pid).create_time() - started) < 1
        except psutil.NoSuchProcess:
            continue
        if same:  # The number may belong to another process by now.
            _signal_group(pid, signal.SIGTERM)
            _wait_until_empty(pid)
            stopped += 1
    path.unlink(missing_ok=True)
    return stopped


def _wait_until_empty(group: int) -> None:
    end = time.monotonic() + STOP_GRACE_S
    while time.monotonic() < end:
        if not _signal_group(group, 0):
            return
        time.sleep(0.1)
    _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
