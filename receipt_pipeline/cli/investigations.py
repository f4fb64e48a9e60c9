"""`receipts investigations`: what needs a person, who owns it, and the decision."""

from __future__ import annotations

import typer

from receipt_pipeline.app import operator
from receipt_pipeline.cli.output import JSON, open_session, print_json, print_table, reports_errors, stdout
from receipt_pipeline.core.receipt_text import counted

app = typer.Typer(
    no_args_is_help=True,
    help="List, assign and resolve investigations: findings that the system cannot repair by itself.",
)
INVESTIGATION = typer.Argument(..., help="Investigation id, as printed by `receipts investigations list`.")


@app.command("list")
@reports_errors
def list_investigations(
    everything: bool = typer.Option(False, "--all", help="Include resolved ones."), as_json: bool = JSON
) -> None:
    """List open investigations, nearest deadline first."""
    rows = operator.list_investigations(*open_session(), only_open=not everything)
    if as_json:
        print_json(rows)
        return
    columns = ["kind", "owner", "deadline_at", "suspected_effect", "last_safe_checkpoint", "allowed_repair"]
    columns += ["state", "resolution", "resolved_by", "resolved_at"] if everything else []
    print_table(rows, [*columns, "job_id", "investigation_id"], title=counted(len(rows), "investigation"))


@app.command()
@reports_errors
def assign(
    investigation: str = INVESTIGATION,
    owner: str = typer.Argument(
        ..., help="Name of the new owner, one of RECEIPTS_PRINCIPALS (default: operations, operations-lead)."
    ),
) -> None:
    """Assign an investigation to someone."""
    operator.assign_investigation(*open_session(), investigation, owner=owner)
    stdout.print(f"{owner} now owns investigation {investigation}.")


@app.command()
@reports_errors
def resolve(
    investigation: str = INVESTIGATION,
    note: str = typer.Option("", "--note", help="What was found and decided."),
    keep: str = typer.Option("", "--keep", help="For divergent outputs: the digest of the output to keep."),
    withdraw: bool = typer.Option(
        False, "--withdraw", help="For divergent outputs or a lost result: withdraw the result."
    ),
) -> None:
    """Record a decision: --keep or --withdraw for divergent outputs, a --note for all others.

    Outputs are divergent when two attempts of one job produced different results.
    """
    operator.resolve_investigation(*open_session(), investigation, note=note, keep=keep or None, withdraw=withdraw)
    stdout.print(f"Investigation {investigation} is resolved.")
