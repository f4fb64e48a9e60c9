"""Durable writes: write, fsync, rename, fsync the folder; and where the outbox keeps a tenant's files."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


def tenant_folder(outbox_root: Path, tenant: str) -> Path:
    """Return a tenant's own folder; no tenant name can point outside of the root."""
    name = quote(tenant, safe="")
    return outbox_root / (name.replace(".", "%2E", 1) if name.startswith(".") else name)


def status_path(outbox_root: Path, *, tenant: str, job_id: str) -> Path:
    """Return the path of a job's status document, its status location since acceptance."""
    return tenant_folder(outbox_root, tenant) / f"{job_id}.status.json"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all, also when the machine crashes.

    Readers see the old bytes or the new ones, and concurrent writers of one path do not disturb each other.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Create missing folders so that their names survive a crash of the machine."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_path(path.parent)
