"""Finds the Chromium that browser tests drive, and installs Debian's where that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock

NO_CHROMIUM = "no Chromium here, and only root on Debian can install it (or set CHROMIUM)"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium(named: str | None) -> Path | str:
    """Return an executable, or the reason why there is none.

    Taken in this order: the named one, that of CHROMIUM, one on the path, Debian's after installing it.
    """
    for candidate in (named, os.environ.get("CHROMIUM"), *NAMES):
        found = shutil.which(candidate) if candidate else None
        if found:
            return Path(found)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return NO_CHROMIUM
    complaint = _install()
    found = shutil.which("chromium")
    return Path(found) if found else f"Chromium could not be installed: {complaint}"


def _install() -> str:
    """Install Debian's package once, though several workers ask at the same time; return apt's last words."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with FileLock(Path(tempfile.gettempdir()) / "receipts-chromium-install.lock"):
        if shutil.which("chromium"):
            return ""
        answer = subprocess.CompletedProcess([], 0, stderr="")
        for arguments in (("update", "-q"), ("install", "-q", "-y", "--no-install-recommends", "chromium")):
            answer = subprocess.run(
                ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        return answer.stderr.strip().rpartition("\n")[2]
