"""`receipts drill`: four jobs, three injected failures, one expiry; or one story of two workers."""

from __future__ import annotations

from typing import Any

import typer

from receipt_pipeline.cli.answers import Exit, answering, people, print_json, print_table, remarks
from receipt_pipeline.cli.opening import settings
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID

FOUR_JOBS = "four-jobs"
LEASE_THEFT = "lease-theft"


@answering
def drill(
    story: str = typer.Option(FOUR_JOBS, "--story", help=f"{FOUR_JOBS} or {LEASE_THEFT}."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> Exit:
    """Run a drill in a throw-away home, with real processes, and print what happened and a verdict."""
    if story not in (FOUR_JOBS, LEASE_THEFT):
        raise InputRefused(FIELD_INVALID, pointer="--story", allowed=f"{FOUR_JOBS}, {LEASE_THEFT}")
    answer = _play(story, as_json=as_json)
    if as_json:
        print_json(answer)
    else:
        print_table(answer["jobs"], ["name", "job_id", "state", "terminal_class", "reason", "what"])
        print_table(answer["steps"], ["name", "expected", "observed", "ok"])
        people.print(f"verdict: {answer['verdict']}")
    return Exit.DONE if answer["verdict"] == "pass" else Exit.BAD_NEWS


def _play(story: str, *, as_json: bool) -> dict[str, Any]:
    if story == LEASE_THEFT:
        from receipt_pipeline.drill.lease_theft import run_lease_theft

        return run_lease_theft(settings(), tell=remarks.print if as_json else people.print)
    from receipt_pipeline.defs.local_runner import run_drill_here

    return run_drill_here(settings())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("drill")(drill)
