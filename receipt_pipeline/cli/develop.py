"""`receipts drill` and `evaluate`: rehearse failures, measure the reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from receipt_pipeline.cli.output import (
    JSON,
    Exit,
    interrupt_on_sigterm,
    print_json,
    print_table,
    reports_errors,
    stderr,
    stdout,
)
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID

FOUR_JOBS = "four-jobs"
LEASE_THEFT = "lease-theft"


@reports_errors
def drill(
    story: str = typer.Option(
        FOUR_JOBS,
        "--story",
        help=f"{FOUR_JOBS}: four jobs and three injected failures; {LEASE_THEFT}: two workers, one job.",
    ),
    as_json: bool = JSON,
) -> Exit:
    """Rehearse failures with real processes in a temporary data directory."""
    if story not in (FOUR_JOBS, LEASE_THEFT):
        raise InputRefused(FIELD_INVALID, pointer="--story", allowed=f"{FOUR_JOBS}, {LEASE_THEFT}")
    interrupt_on_sigterm()
    answer = _play(story, as_json=as_json)
    if as_json:
        print_json(answer)
    else:
        print_table(answer["jobs"], ["name", "state", "terminal_class", "reason", "what", "job_id"])
        print_table(answer["steps"], ["name", "expected", "observed", "ok"])
        stdout.print(f"verdict: {answer['verdict']}")
    return Exit.DONE if answer["verdict"] == "pass" else Exit.BAD_NEWS


def _play(story: str, *, as_json: bool) -> dict[str, Any]:
    if story == LEASE_THEFT:
        from receipt_pipeline.drill.lease_theft import run_lease_theft

        return run_lease_theft(show=stderr.print if as_json else stdout.print)
    from receipt_pipeline.defs.local_runner import run_drill_here

    return run_drill_here()


@reports_errors
def evaluate(
    folder: Path = typer.Option(Path("../shared"), "--labeled", "--labelled", help="Folder of labeled scans."),
    limit: int = typer.Option(0, "--limit", help="Evaluate only this many scans (0 for all)."),
) -> Exit:
    """Measure how well fields and risks are read on labeled scans. Writes evaluate.json.

    To evaluate a release before approving it, use `receipts release evaluate`.
    """
    from receipt_pipeline.evaluation.evaluate import main as evaluate_scans

    arguments = ["--shared", str(folder)] + (["--limit", str(limit)] if limit else [])
    return Exit(evaluate_scans(arguments))
