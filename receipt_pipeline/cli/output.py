"""What commands share: JSON or text for people, exit status, errors, times, and the opened application."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from receipt_pipeline.app.context import AppContext, open_app
from receipt_pipeline.core.errors import InputRefused, KeyConflict, NotAllowed, NotFound, PipelineError
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline.settings import read_settings

JSON = typer.Option(False, "--json", help="Print one JSON document instead of text.")
JOB = typer.Argument(..., help="Job id, as printed by `receipts submit` and `receipts jobs`.")

# A table of more columns than this is unreadable on a terminal.
WIDE_COLUMNS = 8
# Files and pipes have no width of their own; ids and addresses must not be broken there.
PIPE_WIDTH = 240
RULE_WIDTH = 60
DIGEST_DIGITS = 12
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
# What people read instead of a key whose spelling is stored.
_LABELS = {
    "asked": "requested",
    "stands": "outcome",
    "denominator": "accepted items",
    "settlement": "finished effects",
    "settled_at": "finished at",
    "trail": "events",
    "losses": "lost attempts",
    "secondary": "details",
    "divergent": "divergent outputs",
}


class Exit(IntEnum):
    """Exit status of every command."""

    DONE = 0
    BAD_NEWS = 1
    USAGE = 2
    CONFLICT = 3
    NOT_FOUND = 4
    INFRASTRUCTURE = 5


_STATUS: tuple[tuple[type[PipelineError], Exit], ...] = (
    (KeyConflict, Exit.CONFLICT),
    (NotFound, Exit.NOT_FOUND),
    (NotAllowed, Exit.NOT_FOUND),
    (InputRefused, Exit.USAGE),
)


def open_session() -> tuple[AppContext, Principal]:
    """Open the instance that the settings name, and return it with the principal they name."""
    context = open_app(read_settings())
    return context, context.principal()


def interrupt_on_sigterm() -> None:
    """Make SIGTERM end this command as Ctrl-C does: its processes stop, its temporary directory is removed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _console(*, stderr: bool) -> Console:
    """Return a console that takes text as it is: what a caller wrote is never read as markup."""
    stream = sys.stderr if stderr else sys.stdout
    fixed = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, markup=False, highlight=False, soft_wrap=True, width=fixed)


stdout = _console(stderr=False)
stderr = _console(stderr=True)


# Values for people.


def format_value(value: Any) -> str:
    """Return a value as people read it: times in words, digests shortened, lists with commas."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return format_time(value)
    if isinstance(value, float):
        return f"{value:,.1f}".removesuffix(".0")
    if isinstance(value, Mapping):
        return _format_mapping(value)
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return ", ".join(map(format_value, value)) or "none"
    text = str(value)
    if _TIME.fullmatch(text):
        return format_time(dt.datetime.fromisoformat(text))
    return _DIGEST.sub(lambda digest: short(digest[0]), text)


def _format_mapping(value: Mapping[str, Any]) -> str:
    """Return counts as `2 accepted, 1 failed`, zeros left out; anything else as `name: value`."""
    if all(type(entry) is int for entry in value.values()):
        counted = [f"{entry:,} {label(name)}" for name, entry in value.items() if entry]
        return ", ".join(counted) or "none"
    return ", ".join(_pairs(value)) or "none"


def format_time(time: dt.datetime) -> str:
    """Return a time as `30 Nov 2026, 18:00 UTC`."""
    utc = time.astimezone(dt.UTC)
    return f"{utc.day} {utc:%b %Y, %H:%M} UTC"


def short(digest: str) -> str:
    """Return the first digits of a digest."""
    return digest.removeprefix("sha256:")[:DIGEST_DIGITS]


def label(name: str) -> str:
    """Return the key of a document as words."""
    return _LABELS.get(name, str(name).replace("_", " "))


# Printing.


def plain(value: Any) -> Any:
    """Return a value with times as ISO text, for JSON, which knows no infinite numbers."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return value


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(plain(document), indent=1, ensure_ascii=False, default=str) + "\n")


def print_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    title: str = "",
    formatted: Callable[[Any], str] = format_value,
    wraps_words: bool = False,
) -> None:
    """Print rows as a table for people; one below the other where a table would break its values.

    Args:
        wraps_words: no value is an id or a path, so that a narrow table may wrap them.
    """
    table = Table(title=title or None)
    for column in columns:
        table.add_column(label(column), overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(name) is None else formatted(row[name]) for name in columns))
    if not columns or not rows:
        stdout.print(title)
    elif not wraps_words and (len(columns) > WIDE_COLUMNS or _natural_width(table) > stdout.width):
        _print_records(rows, columns, title=title, formatted=formatted)
    else:
        table.show_lines = _natural_width(table) > stdout.width
        stdout.print(table, soft_wrap=False)


def _natural_width(table: Table) -> int:
    """Return how many cells a table takes when no value is broken."""
    return Measurement.get(stdout, stdout.options.update(max_width=sys.maxsize), table).maximum


def _print_records(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, title: str, formatted: Callable[[Any], str]
) -> None:
    """Print wide rows one below the other, a line per value."""
    stdout.print(title)
    for row in rows:
        stdout.print("─" * RULE_WIDTH)
        for name in columns:
            if row.get(name) is not None:
                stdout.print(f"{label(name)}: {formatted(row[name])}")


def print_document(document: Mapping[str, Any], *, indent: str = "") -> None:
    """Print a nested document, a line per value and a line per entry of a list."""
    for name, value in document.items():
        heading = Text.assemble(indent, (label(name).capitalize(), "bold"), ": ")
        if isinstance(value, Mapping) and not all(type(entry) is int for entry in value.values()):
            stdout.print(heading)
            print_document(value, indent=f"{indent}  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            stdout.print(heading)
            for entry in value:
                stdout.print(f"{indent}  - " + ", ".join(_pairs(entry)))
        else:
            stdout.print(heading + Text(format_value(value)))


def _pairs(entry: Mapping[str, Any]) -> list[str]:
    """Return the entries of a record that say something; a nested record is in parentheses."""
    return [
        f"{label(name)} ({_format_mapping(value)})"
        if isinstance(value, Mapping)
        else f"{label(name)}: {format_value(value)}"
        for name, value in entry.items()
        if value is not None and value not in ("", [], {})
    ]


# Errors.


def print_error(error: PipelineError, *, as_json: bool) -> None:
    """Print what happened, what it means and what to do next."""
    if as_json:
        print_json({"error": error.as_document()})
    stderr.print(Text.assemble((error.reason.code, "bold red"), f" {error.reason.meaning}"))
    if error.pointer:
        stderr.print(f"  where: {error.pointer}")
    for name, value in error.facts.items():
        stderr.print(f"  {label(name)}: {format_value(value)}")
    stderr.print(f"  next: {error.reason.next_step}")


def exit_status(error: PipelineError) -> Exit:
    """Return the exit status that an error asks for."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return Exit.INFRASTRUCTURE


def reports_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a command's expected failures into an answer and an exit status."""

    @wraps(command)
    def reported(*args: Any, **kwargs: Any) -> None:
        try:
            status = command(*args, **kwargs)
        except PipelineError as error:
            print_error(error, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(exit_status(error)) from error
        raise typer.Exit(Exit.DONE if status is None else status)

    return reported


# Options.


def parse_cutoff(text: str) -> dt.datetime | None:
    """Return the time of `--cutoff` as aware UTC, None for an empty text. Raises InputRefused."""
    if not text:
        return None
    try:
        value = dt.datetime.fromisoformat(text)
        if value.tzinfo is None:
            raise InputRefused(FIELD_INVALID, pointer="--cutoff", wanted="a time with its zone")
        return value.astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise InputRefused(FIELD_INVALID, pointer="--cutoff", wanted="an ISO time with its zone") from error


def check_writable(target: Path, *, option: str) -> None:
    """Refuse a file that could not be written later, before anything else is done. Raises InputRefused."""
    try:
        existed = target.exists()
        target.open("a").close()
        if not existed:
            target.unlink()
    except OSError as error:
        raise InputRefused(FIELD_INVALID, pointer=option, wanted="a file that can be written") from error
