"""`receipts drill`: four jobs, three injected failures, one expiry, and a verdict."""

from __future__ import annotations

import typer

from receipt_pipeline.cli.answers import Exit, answering, people, print_json, print_table
from receipt_pipeline.cli.opening import settings


@answering
def drill(as_json: bool = typer.Option(False, "--json", help="Print one JSON document.")) -> Exit:
    """Run the four-job drill in a throw-away home, through real sensors, runs and checks."""
    from receipt_pipeline.defs.drilling import run_drill_here

    answer = run_drill_here(settings())
    if as_json:
        print_json(answer)
    else:
        print_table(answer["jobs"], ["name", "job_id", "state", "terminal_class", "reason", "what"])
        print_table(answer["steps"], ["name", "expected", "observed", "ok"])
        people.print(f"verdict: {answer['verdict']}")
    return Exit.DONE if answer["verdict"] == "pass" else Exit.BAD_NEWS


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("drill")(drill)
