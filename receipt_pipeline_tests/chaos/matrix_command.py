"""`receipts inject`: the crash matrix, whole or at one boundary, and the list of boundaries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from receipt_pipeline.cli.answers import Exit, answering, people, print_json, print_table, remarks
from receipt_pipeline.cli.opening import settings
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.failure_points import BOUNDARIES
from receipt_pipeline.core.reasons import FIELD_INVALID
from receipt_pipeline_tests.chaos.crash_matrix.cells import (
    MEANINGS,
    Cell,
    Verdict,
    all_cells,
    cells_of,
    dagster_cells,
    points_of,
    why_not,
)

_POINT = typer.Argument(None, metavar="POINT", help="A boundary, such as `commit`, under every fault.")
_ALL = typer.Option(False, "--all", help="Every boundary under every fault.")
_LIST = typer.Option(False, "--list", help="List the boundaries, the faults, and what cannot happen.")
_LEDGER = typer.Option(
    "sqlite", "--ledger", help="sqlite, or postgres on the server of RECEIPTS_POSTGRES_URL."
)
_DAGSTER = typer.Option(
    True, "--dagster/--no-dagster", help="With --all: ten more cells through Dagster runs."
)
_KEEP = typer.Option(None, "--keep", help="Keep the folders of broken cells here.")
_JSON = typer.Option(False, "--json", help="Print one JSON document.")


@answering
def inject(
    point: str | None = _POINT,
    every: bool = _ALL,
    listed: bool = _LIST,
    ledger: str = _LEDGER,
    dagster: bool = _DAGSTER,
    keep: Path | None = _KEEP,
    as_json: bool = _JSON,
) -> Exit:
    """Kill, fail, hang, double, rob and cancel processes at durable boundaries; judge what is left."""
    if sum((point is not None, every, listed)) != 1:
        raise InputRefused(FIELD_INVALID, pointer="POINT", expected="a boundary, --all or --list")
    if listed:
        return _list(as_json=as_json)
    if every:
        cells = (*all_cells(ledger=ledger), *(dagster_cells(ledger=ledger) if dagster else ()))
    else:
        cells = cells_of([_boundary(str(point))], ledger=ledger)
    return _play(cells, ledger=ledger, keep=keep, as_json=as_json)


def _boundary(point: str) -> str:
    """Return the boundary that a person names, `commit` or `commit.before`."""
    name = point.partition(".")[0]
    if name not in BOUNDARIES:
        raise InputRefused(FIELD_INVALID, pointer="POINT", expected=", ".join(BOUNDARIES))
    return name


def _play(cells: tuple[Cell, ...], *, ledger: str, keep: Path | None, as_json: bool) -> Exit:
    from receipt_pipeline_tests.chaos.crash_matrix.dagster import play_through_dagster_here
    from receipt_pipeline_tests.chaos.crash_matrix.homes import LEDGERS, ledgers_of
    from receipt_pipeline_tests.chaos.crash_matrix.matrix import answer, run_cells

    if ledger not in LEDGERS:
        raise InputRefused(FIELD_INVALID, pointer="--ledger", expected=", ".join(LEDGERS))
    started = time.monotonic()
    lines = run_cells(
        cells,
        ledgers_of(ledger, settings()),
        told=_tell,
        through_dagster=play_through_dagster_here,
        keep=keep,
    )
    document = answer(lines, seconds=time.monotonic() - started) | {"ledger": ledger}
    if as_json:
        print_json(document)
    else:
        print_table(document["cells"], ["boundary", "fault", "through", "verdict", "seconds", "detail"])
        counts = ", ".join(f"{count} {verdict}" for verdict, count in document["counts"].items())
        people.print(f"{counts} in {document['seconds']} s")
    return Exit.BAD_NEWS if document["counts"][Verdict.BROKEN.value] else Exit.DONE


def _tell(line: dict[str, Any], done: int, of: int) -> None:
    """Show one cell as it ends."""
    name = f"{line['boundary']} {line['fault']} ({line['ledger']}, {line['through']})"
    remarks.print(f"[{done}/{of}] {name}: {line['verdict']} in {line['seconds']} s, {line['detail']}")


def _list(*, as_json: bool) -> Exit:
    rows = [_described(boundary) for boundary in BOUNDARIES]
    if as_json:
        print_json({"boundaries": rows, "faults": {fault.value: text for fault, text in MEANINGS.items()}})
        return Exit.DONE
    shown = [
        {
            "boundary": row["boundary"],
            "faults": ", ".join(row["faults"]),
            "not applicable": ", ".join(row["not_applicable"]),
        }
        for row in rows
    ]
    print_table(shown, ["boundary", "faults", "not applicable"])
    for fault, text in MEANINGS.items():
        people.print(f"{fault.value}: {text}")
    return Exit.DONE


def _described(boundary: str) -> dict[str, Any]:
    rules = {fault: why_not(boundary, fault) for fault in MEANINGS}
    return {
        "boundary": boundary,
        "points": [f"{boundary}.before", f"{boundary}.after"],
        "faults": {fault.value: list(points_of(boundary, fault)) for fault in MEANINGS if not rules[fault]},
        "not_applicable": {fault.value: rule for fault, rule in rules.items() if rule},
    }


if __name__ == "__main__":
    typer.run(inject)
