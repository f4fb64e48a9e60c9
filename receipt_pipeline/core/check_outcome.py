"""What one accounting check found: passed or not, the offenders, and the query that finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The answer of one check.

    Attributes:
        passed: true when nothing offends.
        description: one sentence for people, with the count.
        offenders: one plain row per offender, `job_id` first where there is one.
        query_text: SQL that finds the offenders, runnable as it stands.
    """

    passed: bool
    description: str
    offenders: tuple[Mapping[str, Any], ...]
    query_text: str
