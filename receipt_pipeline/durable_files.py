"""Durable writes: write, fsync, rename, fsync the folder."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


def tenant_folder(outbox_root: Path, tenant: str) -> Path:
    """Return a tenant's own folder; no tenant name can lead out of the root."""
    name = quote(tenant, safe="")
    return outbox_root / (name.replace(".", "%2E", 1) if name.startswith(".") else name)


def status_path(outbox_root: Path, *, tenant: str, job_id: str) -> Path:
    """Return where a job's status document lies: the status location of its acceptance."""
    return tenant_folder(outbox_root, tenant) / f"{job_id}.status.json"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there in full or not at all, also after a crash of the machine.

    Readers see the old bytes or the new ones. Two writers of one path do not disturb each other.
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
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
