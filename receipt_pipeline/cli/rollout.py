"""`receipts import`, `rollback`: take over what an older system ran; go back to an earlier version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from receipt_pipeline.app import admin
from receipt_pipeline.cli.answers import Exit, answering, people, print_json, print_table
from receipt_pipeline.cli.opening import services
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.effects.results import rejections_csv
from receipt_pipeline.intake.legacy_import import OUTCOMES, RowRefusal


@answering
def import_jobs(
    path: Path = typer.Argument(..., help="CSV or Parquet file of the older system's jobs."),
    origin: str = typer.Option(..., "--origin", help="A name for the older system."),
    state: list[str] = typer.Option([], "--state", help="What a word of it means: WORD=CLASS, or WORD=open."),
    rejections: Path | None = typer.Option(
        None, "--rejections", help="Write the rows that were not taken over to this CSV file."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> Exit:
    """Import an older system's jobs: each gets a terminal class or an owned investigation, once."""
    if rejections is not None:
        _check_writable(rejections)
    answer = admin.import_legacy_jobs(services(), services().principal(), path, origin=origin, states=state)
    document = answer.as_document()
    if rejections is not None:
        _write(rejections, document["rejected"])
    if as_json:
        print_json(document)
    else:
        told = ", ".join(f"{answer.counts[name]} {name}" for name in OUTCOMES)
        people.print(f"{answer.rows} rows of {origin}: {told}")
        for name, count in answer.classes.items():
            people.print(f"  {name}: {count}")
        if answer.rejected:
            columns = ["row", "external_id", "code", "pointer", "next_step"]
            print_table(
                document["rejected"], columns, title=f"{len(answer.rejected)} rows were not taken over"
            )
    if answer.counts["refused"]:
        return Exit.USAGE
    return Exit.CONFLICT if answer.counts["conflict"] else Exit.DONE


def _write(target: Path, lines: list[dict[str, str]]) -> None:
    texts = [{name: str(value) for name, value in line.items()} for line in lines]
    with _written_to():
        target.write_text(rejections_csv(texts, RowRefusal.__slots__), encoding="utf-8")


def _check_writable(target: Path) -> None:
    """Refuse before anything is imported what could not be written afterwards."""
    with _written_to():
        there = target.exists()
        target.open("a").close()
        if not there:
            target.unlink()


@contextmanager
def _written_to() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputRefused(
            FIELD_INVALID, pointer="--rejections", wanted="a file that can be written"
        ) from error


@answering
def rollback(
    revision: str = typer.Argument(..., help="Revision of the schema that the earlier version knows."),
    yes: bool = typer.Option(False, "--yes", help="Do it: what that version does not know is dropped."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> Exit:
    """Take the ledger back to an earlier version's schema; the next start of this one takes it forward."""
    if not yes:
        raise InputRefused(
            FIELD_INVALID, pointer="--yes", wanted="--yes, after a copy of the ledger was kept"
        )
    dropped = admin.roll_back_ledger(services(), services().principal(), revision)
    if as_json:
        print_json({"revision": revision, "dropped": dropped})
    else:
        people.print(f"the ledger is at revision {revision}; dropped: {', '.join(dropped) or 'nothing'}")
        people.print(
            "  the next command of this version takes it forward again: install the earlier one first"
        )
    return Exit.DONE


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("import")(import_jobs)
    app.command("rollback")(rollback)
