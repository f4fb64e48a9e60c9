"""Pinned artefacts: bytes that are used only when they hash to the digest they are asked by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from receipt_pipeline.core.canonical import digest_of_bytes, is_digest
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.reasons import IDENTITY_MISMATCH, IDENTITY_MISSING


def artefact_path(directory: Path, digest: str) -> Path:
    """Return where an artefact of that digest lies: `<64 hex digits>.json`.

    Raises:
        IdentityMismatch: IDENTITY.MISMATCH.v1 when the text is no digest, so that it never forms a path.
    """
    if not is_digest(digest):
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact=directory.name, detail="the pin is no digest")
    return directory / f"{digest.removeprefix('sha256:')}.json"


def read_artefact(source: Path | bytes, *, expected_digest: str, artefact: str) -> dict[str, Any]:
    """Read a JSON artefact whose bytes must hash to `expected_digest`.

    Args:
        source: the file, or its bytes.
        artefact: what it is (`risk_model`, `policy`), named in the error.
    Raises:
        IdentityMismatch: IDENTITY.MISSING.v1 when the file is not there, IDENTITY.MISMATCH.v1 when
            its bytes hash to something else or hold no JSON object.
    """
    if isinstance(source, Path):
        try:
            data = source.read_bytes()
        except OSError as error:
            raise IdentityMismatch(IDENTITY_MISSING, artefact=artefact, expected=expected_digest) from error
    else:
        data = source
    found = digest_of_bytes(data)
    if found != expected_digest:
        raise IdentityMismatch(IDENTITY_MISMATCH, artefact=artefact, expected=expected_digest, found=found)
    document = json.loads(data)
    assert isinstance(document, dict), artefact
    return document
