"""Object keys: how scans and results are named, and which names are keys at all."""

from __future__ import annotations

import re

SCANS_PREFIX = "scans/"
RESULTS_PREFIX = "results/"
SET_ASIDE_PREFIX = "set-aside/"
KEY_LENGTH_MAX = 400

# No part begins with a dot: neither a way up nor a temporary file is ever a key.
_KEY = re.compile(r"[a-z][a-z-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+")
_PREFIX = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)*")


def scan_key(tenant: str, sha256: str) -> str:
    """Return the key of a scan: `scans/<tenant>/<hex>`; the digest with or without `sha256:`."""
    return checked_key(f"{SCANS_PREFIX}{tenant}/{sha256.removeprefix('sha256:')}")


def result_key(job_id: str, lease_epoch: int, digest: str) -> str:
    """Return the key of one attempt's result: `results/<job_id>/<epoch>-<hex>`."""
    return checked_key(f"{RESULTS_PREFIX}{job_id}/{lease_epoch}-{digest.removeprefix('sha256:')}")


def set_aside_key(key: str, digest: str) -> str:
    """Return where bytes go that stood under a key they do not belong to."""
    return f"{SET_ASIDE_PREFIX}{key}/{digest.removeprefix('sha256:')}"


def checked_key(key: str) -> str:
    """Return the key itself. Raises ValueError for a text that is no key: it could lead elsewhere."""
    if len(key) > KEY_LENGTH_MAX or _KEY.fullmatch(key) is None:
        raise ValueError(f"not an object key: {key[:80]!r}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return a folder-like prefix, empty or ending in `/`. Raises ValueError otherwise."""
    if _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"not a prefix of object keys: {prefix[:80]!r}")
    return prefix
