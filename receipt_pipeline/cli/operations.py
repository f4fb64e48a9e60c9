"""`receipts alerts`, `receipts submitter`: what operators are warned of, and who may hand in how much."""

from __future__ import annotations

import typer

from receipt_pipeline.app import admin, maintenance, operator
from receipt_pipeline.cli.answers import Exit, answering, people, print_json, print_table
from receipt_pipeline.cli.opening import services

JSON = typer.Option(False, "--json", help="Print one JSON document.")
alert_room = typer.Typer(no_args_is_help=True, help="List alerts, link them to a channel, try the channel.")
submitter_room = typer.Typer(no_args_is_help=True, help="Name submitters and change their quotas.")


@alert_room.command("list")
@answering
def list_alerts(
    everything: bool = typer.Option(False, "--all", help="Resolved ones too."), as_json: bool = JSON
) -> Exit:
    """Look once, then list the alerts that stand. Exit status 1 when one does."""
    opened = services()
    maintenance.review_alerts(opened)
    rows = operator.list_alerts(opened, opened.principal(), everything=everything)
    if as_json:
        print_json(rows)
    else:
        columns = ["kind", "subject", "raised_at", "resolved_at", "meaning", "next_step"]
        print_table(rows, columns, title=f"{len(rows)} alerts")
    standing = [row for row in rows if row["resolved_at"] is None]
    return Exit.BAD_NEWS if standing else Exit.DONE


@alert_room.command("link")
@answering
def link(
    kind: str = typer.Argument(..., help="Kind of alert, or `all`."),
    channel: str = typer.Option("file", "--channel", help="Channel over which it leaves."),
) -> None:
    """Send alerts of a kind over a channel from now on."""
    new = operator.link_alerts(services(), services().principal(), kind, channel=channel)
    people.print(f"alerts of kind {kind} {'now leave' if new else 'leave already'} over {channel}")


@alert_room.command("links")
@answering
def list_links(as_json: bool = JSON) -> None:
    """List which alerts leave over which channels."""
    rows = operator.list_alert_links(services(), services().principal())
    if as_json:
        print_json(rows)
        return
    print_table(rows, ["kind", "channel", "linked_by", "linked_at"], title=f"{len(rows)} links")


@alert_room.command("test")
@answering
def try_channels(as_json: bool = JSON) -> Exit:
    """Send a test alert over every linked channel. Exit status 1 when it arrived nowhere."""
    sent = operator.test_alerts(services(), services().principal())
    if as_json:
        print_json(sent)
    else:
        people.print(f"{sent['alert_id']}: {sent['delivered']} delivered, {sent['failed']} failed")
    return Exit.DONE if sent["delivered"] and not sent["failed"] else Exit.BAD_NEWS


@submitter_room.command("list")
@answering
def list_submitters(as_json: bool = JSON) -> None:
    """List named submitters, their quotas and the items they have open."""
    rows = admin.list_submitters(services(), services().principal())
    if as_json:
        print_json(rows)
        return
    columns = ["caller", "quota_items", "open_items", "changed_by", "changed_at"]
    print_table(rows, columns, title=f"{len(rows)} submitters")


@submitter_room.command("add")
@answering
def add(caller: str = typer.Argument(..., help="Name of the submitter."), as_json: bool = JSON) -> None:
    """Name a submitter; it starts with a small quota."""
    row = admin.add_submitter(services(), services().principal(), caller)
    if as_json:
        print_json(row)
        return
    people.print(f"{caller} may have {row['quota_items']} items open at once")


@submitter_room.command("quota")
@answering
def quota(
    caller: str = typer.Argument(..., help="Name of the submitter."),
    items: int = typer.Argument(..., min=1, help="Items that it may have open at once."),
    as_json: bool = JSON,
) -> None:
    """Change a quota; a larger one needs capacity and queue age watched over a channel that works."""
    row = admin.change_quota(services(), services().principal(), caller, quota_items=items)
    if as_json:
        print_json(row)
        return
    people.print(f"{caller} may have {row['quota_items']} items open at once")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(alert_room, name="alerts")
    app.add_typer(submitter_room, name="submitter")
