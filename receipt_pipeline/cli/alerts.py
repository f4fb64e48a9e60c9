"""`receipts alerts`: what operators are warned of, and where warnings are sent."""

from __future__ import annotations

import typer

from receipt_pipeline.app import maintenance, operator
from receipt_pipeline.cli.output import JSON, Exit, open_session, print_json, print_table, reports_errors, stdout
from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.receipt_text import counted

app = typer.Typer(no_args_is_help=True, help="List alerts, link them to a channel, test the channel.")


@app.command("list")
@reports_errors
def list_alerts(
    everything: bool = typer.Option(False, "--all", help="Include resolved ones."), as_json: bool = JSON
) -> Exit:
    """Check all alert conditions, then list the active alerts. Exit status 1 if there are any."""
    context, principal = open_session()
    maintenance.review_alerts(context)
    rows = operator.list_alerts(context, principal, everything=everything)
    if as_json:
        print_json(rows)
    else:
        columns = ["kind", "subject", "raised_at", "resolved_at", "meaning", "next_step"]
        print_table(rows, columns, title=counted(len(rows), "alert"))
    active = any(row["resolved_at"] is None for row in rows)
    return Exit.BAD_NEWS if active else Exit.DONE


@app.command()
@reports_errors
def link(
    kind: str = typer.Argument(..., help=f"`all`, or one of: {', '.join(AlertKind)}."),
    channel: str = typer.Option(
        "file", "--channel", help="`file` (a file in the outbox), or `command` where one is configured."
    ),
) -> None:
    """Send alerts of a kind through a channel from now on."""
    new = operator.link_alerts(*open_session(), kind, channel=channel)
    what = "All alerts" if kind == "all" else f"Alerts of kind {kind}"
    stdout.print(f"{what} are {'now' if new else 'already'} sent through the {channel} channel.")


@app.command("links")
@reports_errors
def list_links(as_json: bool = JSON) -> None:
    """List which alerts are sent through which channels."""
    rows = operator.list_alert_links(*open_session())
    if as_json:
        print_json(rows)
        return
    print_table(rows, ["kind", "channel", "linked_by", "linked_at"], title=counted(len(rows), "link"))


@app.command("test")
@reports_errors
def send_test(as_json: bool = JSON) -> Exit:
    """Send a test alert through every linked channel. Exit status 1 unless all arrive."""
    sent = operator.test_alerts(*open_session())
    if as_json:
        print_json(sent)
    else:
        stdout.print(f"Test alert {sent['alert_id']}: {sent['delivered']} delivered, {sent['failed']} failed.")
    return Exit.DONE if sent["delivered"] and not sent["failed"] else Exit.BAD_NEWS
