"""Drops the shipped samples into a tenant's inbox, as a submitter would."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

MANIFEST = "manifest.json"


def drop_samples(samples: Path, inbox: Path) -> str:
    """Copy the sample scans, then their manifest under its final name; returns its idempotency key."""
    inbox.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((samples / MANIFEST).read_bytes())
    for item in manifest["items"]:
        target = inbox / item["uri"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(samples / item["uri"], target)
    # The sensor may look at any moment: the manifest appears whole, and after its scans.
    half = inbox / f".{MANIFEST}.tmp"
    shutil.copyfile(samples / MANIFEST, half)
    half.rename(inbox / f"samples-{MANIFEST}")
    return str(manifest["idempotency_key"])
