"""Writes docs/next_actions.md from the table: `python -m receipt_pipeline_tests.tidy.write_next_actions`."""

from __future__ import annotations

from collections.abc import Mapping

from receipt_pipeline.core.next_actions import ACTION_TEXTS, NEXT_ACTIONS, Key, NextAction
from receipt_pipeline.core.reasons import REASONS
from receipt_pipeline_tests.suite_results import PROJECT

NEXT_ACTIONS_TEXT = PROJECT / "docs" / "next_actions.md"


def next_actions_text() -> str:
    """Return the page that names the one safe next action of every standing of a job."""
    lines = [
        "# What is safe now",
        "",
        "Written from `receipt_pipeline/core/next_actions.py` by",
        "`python -m receipt_pipeline_tests.tidy.write_next_actions`. State, standing and governing reason",
        "of a job name one action, the same in `receipts status`, in its JSON document and on this page.",
        "None of them is to run everything again.",
        "",
        "The governing reason is the gravest of what holds: divergent outputs, then a result that was",
        "given up, purged, or is not there as recorded, then a child job that goes on with what was left,",
        "then what the items of a partial result lack, and otherwise the reason of the terminal record.",
        "",
        "| action | what it means | command |",
        "|---|---|---|",
        *(f"| `{name.value}` | {text.meaning} | `{text.command}` |" for name, text in ACTION_TEXTS.items()),
        "",
        "| state | standing | governing reason | action |",
        "|---|---|---|---|",
        *(_row(key, action) for key, action in _ordered(NEXT_ACTIONS)),
        "",
    ]
    return "\n".join(lines)


def _ordered(table: Mapping[Key, NextAction]) -> list[tuple[Key, NextAction]]:
    states = list(dict.fromkeys(key[0] for key in table))
    return sorted(table.items(), key=lambda entry: (states.index(entry[0][0]), entry[0][1], entry[0][2]))


def _row(key: Key, action: NextAction) -> str:
    state, standing, code = key
    reason = f"`{code}` {REASONS[code].meaning}" if code else ""
    return f"| {state.value} | {standing.value} | {reason} | `{action.value}` |"


if __name__ == "__main__":
    NEXT_ACTIONS_TEXT.write_text(next_actions_text())
