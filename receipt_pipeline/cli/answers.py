"""How commands answer: one JSON document or text for people, stable exit status, errors that help."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from receipt_pipeline.core.errors import (
    InputRefused,
    KeyConflict,
    NotAllowed,
    NotFound,
    PipelineError,
)


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

# A table wider than this is unreadable on a terminal.
WIDE_COLUMNS = 8

people = Console(stderr=False)
remarks = Console(stderr=True)


def exit_status(error: PipelineError) -> Exit:
    """Return the exit status that an error asks for."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return Exit.INFRASTRUCTURE


def plain(value: Any) -> Any:
    """Return a value with times as ISO text, for JSON."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return value


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(plain(document), indent=1, ensure_ascii=False, default=str) + "\n")


def print_table(rows: list[dict[str, Any]], columns: list[str], *, title: str = "") -> None:
    """Print rows as a table for people."""
    if len(columns) > WIDE_COLUMNS:
        _print_records(rows, columns, title=title)
        return
    table = Table(title=title or None, show_lines=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(name) is None else str(plain(row[name])) for name in columns))
    people.print(table)


def _print_records(rows: list[dict[str, Any]], columns: list[str], *, title: str) -> None:
    """Print wide rows one below the other, a line per value."""
    people.print(title, highlight=False)
    for row in rows:
        people.rule()
        for name in columns:
            if row.get(name) is not None:
                people.print(f"{name}: {plain(row[name])}", highlight=False, markup=False)


def print_error(error: PipelineError, *, as_json: bool) -> None:
    """Say what happened, what it means and what to do next."""
    if as_json:
        print_json({"error": error.as_document()})
    remarks.print(f"[bold red]{error.reason.code}[/] {error.reason.meaning}", highlight=False)
    if error.pointer:
        remarks.print(f"  where: {error.pointer}", highlight=False, markup=False)
    for name, value in error.facts.items():
        remarks.print(f"  {name}: {value}", highlight=False, markup=False)
    remarks.print(f"  next: {error.reason.next_step}", highlight=False, markup=False)


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
