"""`receipts release`, `grants`, `submitter`, `import` and `rollback`: run the installation."""

from __future__ import annotations

from pathlib import Path

import typer

from receipt_pipeline.app import admin
from receipt_pipeline.cli.output import (
    JSON,
    Exit,
    check_writable,
    format_value,
    label,
    open_session,
    print_json,
    print_table,
    reports_errors,
    short,
    stdout,
)
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.principals import Role
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.core.receipt_text import counted
from receipt_pipeline.effects.results import rejections_csv
from receipt_pipeline.evaluation.records import evaluation_page
from receipt_pipeline.intake.legacy_import import OUTCOMES, RowRefusal

SHOWN_FIGURES = (
    "strict_micro_f1",
    "normalised_micro_f1",
    "risk_auc_pictures",
    "cleared_share",
    "cleared_wrong_share",
    "cleared_wrong_upper95",
    "cleared_forged_share",
    "cleared_forged_upper95",
)

release_app = typer.Typer(
    no_args_is_help=True,
    help="List, evaluate, approve, promote and retire releases: the versions of models and policy.",
)
grants_app = typer.Typer(no_args_is_help=True, help="List, give and revoke roles of callers.")
submitter_app = typer.Typer(no_args_is_help=True, help="Name submitters and set how much each may submit.")

SHIPPED = typer.Argument(..., help="Name of a shipped release, as printed by `receipts release list`.")
RELEASE = typer.Argument(..., help="Name or id of a release.")
DESPITE = typer.Option("", "--despite", help="Reason to use a worse release anyway; recorded with your name.")
CALLER = typer.Argument(..., help="Name of the caller (the value of RECEIPTS_CALLER).")


@release_app.command("list")
@reports_errors
def list_releases(as_json: bool = JSON) -> None:
    """List the releases and the aliases that point at them."""
    context, _ = open_session()
    rows = admin.list_releases(context)
    if as_json:
        print_json(rows)
        return
    shown = [row | {"review_rate": _percent(row["review_rate_ppm"])} for row in rows]
    columns = ["name", "aliases", "review_rate", "retired_at", "risk_model_digest", "policy_revision"]
    print_table(shown, [*columns, "release_id"], title=counted(len(rows), "release"))


def _percent(ppm: int | None) -> str | None:
    return None if ppm is None else f"{ppm / 10_000:.1f} %"


@release_app.command("approve")
@reports_errors
def approve_release(name: str = SHIPPED, despite: str = DESPITE) -> None:
    """Approve a shipped release. Refused when its evaluation shows that it is worse."""
    release_id = admin.approve_release(*open_session(), name, despite=despite or None)
    stdout.print(f"Release {name} ({short(release_id)}) is approved.")


@release_app.command("evaluate")
@reports_errors
def evaluate_release(name: str = SHIPPED) -> None:
    """Evaluate a release on the labeled scans in RECEIPTS_EVALUATION_SET and write an HTML page."""
    context, principal = open_session()
    figures = admin.evaluate_release(context, principal, name)["figures"]
    for measure in SHOWN_FIGURES:
        stdout.print(f"{measure:24} {figures[measure]}")
    stdout.print(str(evaluation_page(context.evaluations, name)))


@release_app.command("promote")
@reports_errors
def promote_release(
    release: str = RELEASE,
    alias: str = typer.Option("production", "--alias", help="The alias to move."),
    despite: str = DESPITE,
) -> None:
    """Point an alias at a release. Accepted jobs are not affected."""
    release_id = admin.promote_release(*open_session(), release, alias=alias, despite=despite or None)
    stdout.print(f"Alias {alias} now points at release {short(release_id)}.")


@release_app.command("retire")
@reports_errors
def retire_release(
    release: str = RELEASE,
    force: bool = typer.Option(False, "--force", help="Retire even the last release; then no scans can be submitted."),
) -> None:
    """Retire a release: it accepts no new jobs, and its waiting jobs fail."""
    release_id = admin.retire_release(*open_session(), release, even_the_last=force)
    stdout.print(f"Release {short(release_id)} is retired.")


@grants_app.command("list")
@reports_errors
def list_grants(as_json: bool = JSON) -> None:
    """List the grants, oldest first. Callers without a grant have the roles in RECEIPTS_ROLES."""
    rows = admin.list_grants(*open_session())
    if as_json:
        print_json(rows)
        return
    columns = ["caller", "roles", "given_by", "given_at", "expires_at", "revoked_by", "revoked_at"]
    print_table(rows, [*columns, "grant_no"], title=counted(len(rows), "grant"))


@grants_app.command("give")
@reports_errors
def give_grant(
    caller: str = CALLER,
    roles: str = typer.Option("submitter", "--roles", help=f"Roles, separated by commas: {', '.join(Role)}."),
    days: float | None = typer.Option(None, "--days", help="Days until the grant expires. Default: never."),
) -> None:
    """Grant roles to a caller, or renew an expired grant."""
    named = [name.strip() for name in roles.split(",") if name.strip()]
    number = admin.give_grant(*open_session(), caller, roles=named, days=days)
    stdout.print(f"{caller} now has the roles {', '.join(sorted(named))} (grant {number}).")


@grants_app.command("revoke")
@reports_errors
def revoke_grant(caller: str = CALLER) -> None:
    """Revoke a caller's grant. Accepted jobs continue; a reviewer gets their decisions."""
    left = admin.revoke_grant(*open_session(), caller)
    stdout.print(f"The grant of {caller} is revoked. {counted(left, 'open job')} will finish and go to a reviewer.")


@submitter_app.command("list")
@reports_errors
def list_submitters(as_json: bool = JSON) -> None:
    """List the named submitters, their quotas and how many of their items are open."""
    rows = admin.list_submitters(*open_session())
    if as_json:
        print_json(rows)
        return
    columns = ["caller", "quota_items", "open_items", "changed_by", "changed_at"]
    print_table(rows, columns, title=counted(len(rows), "submitter"))


@submitter_app.command("add")
@reports_errors
def add_submitter(caller: str = CALLER, as_json: bool = JSON) -> None:
    """Name a submitter, who starts with a small quota."""
    row = admin.add_submitter(*open_session(), caller)
    _show_quota(row, as_json=as_json)


@submitter_app.command("quota")
@reports_errors
def change_quota(
    caller: str = CALLER,
    items: int = typer.Argument(..., min=1, help="How many items may be open at the same time."),
    as_json: bool = JSON,
) -> None:
    """Change a quota. Raising it needs linked and tested alerts for capacity and queue age."""
    row = admin.change_quota(*open_session(), caller, quota_items=items)
    _show_quota(row, as_json=as_json)


def _show_quota(row: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        stdout.print(f"{row['caller']} may have {row['quota_items']} open items at the same time.")


@reports_errors
def import_jobs(
    path: Path = typer.Argument(..., help="CSV or Parquet file with the jobs of the legacy system."),
    origin: str = typer.Option(..., "--origin", help="A name for the legacy system."),
    state: list[str] = typer.Option(
        [], "--state", help="Map a legacy state to a class: STATE=CLASS, or STATE=open. Can be repeated."
    ),
    rejections: Path | None = typer.Option(
        None, "--rejections", help="Write the rows that were not imported to this CSV file."
    ),
    as_json: bool = JSON,
) -> Exit:
    """Import the job history of a legacy system. Importing the same file again changes nothing.

    Columns: external_id, state, submitted_at; optional: ended_at, items, caller, idempotency_key, decision.
    """
    if rejections is not None:
        check_writable(rejections, option="--rejections")
    answer = admin.import_legacy_jobs(*open_session(), path, origin=origin, states=state)
    document = answer.as_document()
    if rejections is not None:
        texts = [{name: str(value) for name, value in line.items()} for line in document["rejected"]]
        rejections.write_text(rejections_csv(texts, RowRefusal.__slots__), encoding="utf-8")
    if as_json:
        print_json(document)
    else:
        counts = ", ".join(f"{answer.counts[name]} {label(name)}" for name in OUTCOMES)
        stdout.print(f"{counted(answer.rows, 'row')} of {origin}: {counts}")
        for name, number in answer.classes.items():
            stdout.print(f"  {label(name)}: {number}")
        if answer.rejected:
            columns = ["row", "external_id", "code", "pointer", "next_step"]
            title = f"{counted(len(answer.rejected), 'row')} not imported"
            print_table(document["rejected"], columns, title=title)
    if answer.counts["refused"]:
        return Exit.USAGE
    return Exit.CONFLICT if answer.counts["conflict"] else Exit.DONE


@reports_errors
def rollback(
    revision: str = typer.Argument(..., help="Schema revision of the earlier version, such as 0001."),
    yes: bool = typer.Option(
        False, "--yes", help="Confirm: tables and columns that the earlier version does not know are dropped."
    ),
    as_json: bool = JSON,
) -> Exit:
    """Downgrade the ledger schema. Starting this version upgrades it again."""
    if not yes:
        raise InputRefused(FIELD_INVALID, pointer="--yes", wanted="--yes, once you have a copy of the ledger")
    dropped = admin.roll_back_ledger(*open_session(), revision)
    if as_json:
        print_json({"revision": revision, "dropped": dropped})
    else:
        stdout.print(f"The ledger is at revision {revision}. Dropped: {format_value(dropped)}.")
        stdout.print("  Install the earlier version now: any command of this one upgrades the ledger again.")
    return Exit.DONE
