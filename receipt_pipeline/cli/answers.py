"""How commands answer: one JSON document or text for people, stable exit status, errors that help."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from receipt_pipeline.core.errors import InputRefused, KeyConflict, NotAllowed, NotFound, PipelineError


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

# A table of more columns than this is unreadable on a terminal.
WIDE_COLUMNS = 8
# Files and pipes have no width of their own; ids and addresses must not be broken there.
PIPE_WIDTH = 240
RULE_WIDTH = 60


def _console(*, stderr: bool) -> Console:
    """Return a console that takes text as it is: what a caller wrote is never read as markup."""
    stream = sys.stderr if stderr else sys.stdout
    fixed = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, markup=False, highlight=False, soft_wrap=True, width=fixed)


people = _console(stderr=False)
remarks = _console(stderr=True)


def exit_status(error: PipelineError) -> Exit:
    """Return the exit status that an error asks for."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return Exit.INFRASTRUCTURE


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


def print_table(rows: list[dict[str, Any]], columns: list[str], *, title: str = "") -> None:
    """Print rows as a table for people; one below the other where a table would break its values."""
    table = Table(title=title or None, show_lines=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(name) is None else str(plain(row[name])) for name in columns))
    if not columns:
        people.print(title)
    elif len(columns) > WIDE_COLUMNS or (rows and _natural_width(table) > people.width):
        _print_records(rows, columns, title=title)
    else:
        people.print(table, soft_wrap=False)


def _natural_width(table: Table) -> int:
    """Return how many cells a table takes when no value is broken."""
    return Measurement.get(people, people.options.update(max_width=sys.maxsize), table).maximum


def _print_records(rows: list[dict[str, Any]], columns: list[str], *, title: str) -> None:
    """Print wide rows one below the other, a line per value."""
    people.print(title)
    for row in rows:
        people.print("─" * RULE_WIDTH)
        for name in columns:
            if row.get(name) is not None:
                people.print(f"{name}: {plain(row[name])}")


def print_error(error: PipelineError, *, as_json: bool) -> None:
    """Say what happened, what it means and what to do next."""
    if as_json:
        print_json({"error": error.as_document()})
    remarks.print(Text.assemble((error.reason.code, "bold red"), f" {error.reason.meaning}"))
    if error.pointer:
        remarks.print(f"  where: {error.pointer}")
    for name, value in error.facts.items():
        remarks.print(f"  {name}: {_listed(value)}")
    remarks.print(f"  next: {error.reason.next_step}")


def _listed(value: Any) -> Any:
    """Return a list as its entries, for people; anything else as it is written."""
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(str(plain(entry)) for entry in value)
    return plain(value)


def answering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command's expected failures become an answer and an exit status."""

    @wraps(command)
    def answered(*args: Any, **kwargs: Any) -> None:
        try:
            status = command(*args, **kwargs)
        except PipelineError as error:
            print_error(error, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(exit_status(error)) from error
        raise typer.Exit(Exit.DONE if status is None else status)

    return answered
