"""Every generated page by its name in `docs/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.generate.case_study import case_study_text
from docs.generate.contracts import completion_text, effects_text, failures_text
from docs.generate.invariants import invariants_text
from docs.generate.next_actions import next_actions_text
from docs.generate.reasons import reasons_text

PAGES: Mapping[str, Callable[[], str]] = {
    "case_study.md": case_study_text,
    "completion.md": completion_text,
    "effects.md": effects_text,
    "failures.md": failures_text,
    "invariants.md": invariants_text,
    "next_actions.md": next_actions_text,
    "reasons.md": reasons_text,
}
