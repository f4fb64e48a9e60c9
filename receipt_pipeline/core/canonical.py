"""Canonical JSON and digests: equal values are equal bytes, everywhere and always."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785


def canonical_json(value: Any) -> bytes:
    """Serialise a JSON value by RFC 8785 (sorted keys, no white space, UTF-8).

    Raises:
        ValueError: when the value holds NaN, infinity or an integer beyond 2**53.
    """
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(str(error)) from error


def digest_of_bytes(data: bytes) -> str:
    """Return the SHA-256 of the bytes as `sha256:` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_of(value: Any) -> str:
    """Return the digest of a JSON value's canonical form."""
    return digest_of_bytes(canonical_json(value))


def is_digest(text: object) -> bool:
    """Return whether the text is a full `sha256:` digest in lower case."""
    if not isinstance(text, str) or len(text) != 71 or not text.startswith("sha256:"):
        return False
    return all(character in "0123456789abcdef" for character in text[7:])
