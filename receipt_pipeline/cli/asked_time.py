"""A time as people type it behind `--cutoff`, read into aware UTC."""

from __future__ import annotations

import datetime as dt

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID


def asked_time(text: str) -> dt.datetime | None:
    """Return the time, None for an empty text. Raises InputRefused FIELD.INVALID.v1."""
    if not text:
        return None
    try:
        value = dt.datetime.fromisoformat(text)
        if value.tzinfo is None:
            raise InputRefused(FIELD_INVALID, pointer="--cutoff", wanted="a time with its zone")
        return value.astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise InputRefused(FIELD_INVALID, pointer="--cutoff", wanted="an ISO time with its zone") from error
