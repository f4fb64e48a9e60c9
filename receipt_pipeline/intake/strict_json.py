"""Reads documents strictly: one encoding, no key twice, no NaN, no number that would lose its value."""

from __future__ import annotations

import codecs
import json
import math
from dataclasses import dataclass
from typing import Any

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import (
    FIELD_INVALID,
    MANIFEST_DUPLICATE_KEY,
    MANIFEST_ENCODING,
    MANIFEST_NOT_JSON,
    MANIFEST_TOO_LARGE,
    Reason,
)

DOCUMENT_SIZE_BYTES_MAX = 64 * 1024 * 1024
NUMBER_DIGITS_MAX = 15
POINTER_PART_MAX = 80
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Stands in a parsed document at the place of a value that no strict document holds."""

    reason: Reason
    name: str | None = None


def decode_text(data: bytes) -> str:
    """Decode a document: UTF-8, or UTF-16 where its mark says so.

    Raises:
        InputRefused: MANIFEST.TOO_LARGE.v1 or MANIFEST.ENCODING.v1.
    """
    if len(data) > DOCUMENT_SIZE_BYTES_MAX:
        raise InputRefused(MANIFEST_TOO_LARGE, size_bytes=len(data), size_bytes_max=DOCUMENT_SIZE_BYTES_MAX)
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputRefused(MANIFEST_ENCODING, tried=encoding, byte=error.start) from error
    if "\0" in text:
        # UTF-16 without its mark reads as UTF-8 full of zeros.
        raise InputRefused(MANIFEST_ENCODING, tried=encoding, byte=text.index("\0"))
    return text


def parse_strict(text: str, *, pointer: str = "", line: int = 1) -> Any:
    """Parse JSON text; nothing is guessed.

    Args:
        pointer: where the text stands in its document, for the error.
        line: the number of the text's first line in its document.
    Raises:
        InputRefused: MANIFEST.NOT_JSON.v1, MANIFEST.DUPLICATE_KEY.v1, MANIFEST.TOO_LARGE.v1 or
            FIELD.INVALID.v1, with the place as line and column or as pointer.
    """
    flaws: list[_Flaw] = []

    def flawed(reason: Reason, name: str | None = None) -> _Flaw:
        flaws.append(_Flaw(reason, name))
        return flaws[-1]

    def pairs(found: list[tuple[str, Any]]) -> Any:
        members = dict(found)
        if len(members) == len(found):
            return members
        seen: set[str] = set()
        twice = next(name for name, _ in found if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        return flawed(MANIFEST_DUPLICATE_KEY, twice)

    def whole(digits: str) -> Any:
        return int(digits) if len(digits) <= NUMBER_DIGITS_MAX else flawed(FIELD_INVALID)

    def real(digits: str) -> Any:
        value = float(digits)
        return value if math.isfinite(value) else flawed(FIELD_INVALID)

    try:
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=whole,
            parse_float=real,
            parse_constant=lambda _: flawed(MANIFEST_NOT_JSON),
        )
    except json.JSONDecodeError as error:
        raise InputRefused(
            MANIFEST_NOT_JSON, pointer=pointer, line=line + error.lineno - 1, column=error.colno
        ) from error
    except RecursionError as error:
        raise InputRefused(MANIFEST_TOO_LARGE, pointer=pointer, limit="depth") from error
    if flaws:
        _refuse_first_flaw(value, pointer)
    return value


def part(name: str | int) -> str:
    """Return one step of a JSON pointer; over-long or unprintable names are cut, they are raw input."""
    text = "".join(character if character.isprintable() else "?" for character in str(name))
    return "/" + text[:POINTER_PART_MAX].replace("~", "~0").replace("/", "~1")


def _refuse_first_flaw(value: Any, pointer: str) -> None:
    """Raise for the first flaw in document order."""
    waiting: list[tuple[str, Any]] = [(pointer, value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, _Flaw):
            raise InputRefused(found.reason, pointer=place + (part(found.name) if found.name else ""))
        if isinstance(found, dict):
            waiting.extend((place + part(name), child) for name, child in reversed(found.items()))
        elif isinstance(found, list):
            waiting.extend((place + part(at), found[at]) for at in reversed(range(len(found))))
    # A flaw inside an object that is itself a flaw has lost its place, and the outer one was raised.
    raise AssertionError("a flaw without a place")
