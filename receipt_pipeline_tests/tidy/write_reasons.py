"""Writes docs/reasons.md from the register: `python -m receipt_pipeline_tests.tidy.write_reasons`."""

from __future__ import annotations

from receipt_pipeline.core.reasons import REASONS, Reason, Remedy
from receipt_pipeline_tests.suite_results import PROJECT

REASONS_TEXT = PROJECT / "docs" / "reasons.md"
REMEDIES = {
    Remedy.RETRY: "the product, or the caller, may repeat it",
    Remedy.LOOK_UP: "find out what happened before anything is repeated",
    Remedy.FIX_INPUT: "correct the input first; repeating it unchanged gives the same answer",
    Remedy.STAND_DOWN: "somebody else owns the work; do nothing",
    Remedy.REVIEW: "a person decides",
    Remedy.NONE: "nothing is to be done",
}


def reasons_text() -> str:
    """Return the page that lists every reason code by its area."""
    lines = [
        "# Reason codes",
        "",
        "Written from `receipt_pipeline/core/reasons` by",
        "`python -m receipt_pipeline_tests.tidy.write_reasons`. Codes are stored with jobs, items and",
        "refusals, so they outlive the code that wrote them: a changed meaning gets the next version, and a",
        "retired code keeps its line.",
        "",
        "| remedy | what it means for you |",
        "|---|---|",
        *(f"| `{remedy.value}` | {meaning} |" for remedy, meaning in REMEDIES.items()),
        "",
        "| code | meaning | remedy | next step |",
        "|---|---|---|---|",
        *(_row(reason) for reason in sorted(REASONS.values(), key=lambda reason: reason.code)),
        "",
    ]
    return "\n".join(lines)


def _row(reason: Reason) -> str:
    meaning, next_step = (text.replace("|", "\\|") for text in (reason.meaning, reason.next_step))
    return f"| `{reason.code}` | {meaning} | `{reason.remedy.value}` | {next_step} |"


if __name__ == "__main__":
    REASONS_TEXT.write_text(reasons_text())
