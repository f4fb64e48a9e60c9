"""What an invariant is, and the outcome of a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What one check found.

    Attributes:
        passed: whether what the check guards holds.
        description: one sentence for people, with the counts.
        offenders: one row per offending thing, ids first; empty when the check passed.
        query_text: the SQL that finds the offenders, as text to run.
    """

    passed: bool
    description: str
    offenders: tuple[Mapping[str, Any], ...]
    query_text: str
