"""The crash matrix: `python -m receipt_pipeline_tests.chaos.matrix` plays boundaries under faults."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import BOUNDARIES
from receipt_pipeline.settings import read_settings
from receipt_pipeline_tests.chaos.crash_matrix.cells import (
    DAGSTER,
    MEANINGS,
    SERVICES,
    Cell,
    CellFault,
    Verdict,
    all_cells,
    cells_of,
    dagster_cells,
    points_of,
    why_not,
)
from receipt_pipeline_tests.chaos.crash_matrix.instances import (
    LEDGERS,
    POSTGRES,
    SQLITE,
    CellLedgers,
    Instances,
    PostgresLedgers,
    SqliteLedgers,
)
from receipt_pipeline_tests.chaos.crash_matrix.processes import Processes
from receipt_pipeline_tests.chaos.crash_matrix.runner import play_cell
from receipt_pipeline_tests.chaos.crash_matrix.scenarios import SCENARIOS, WATCHED_LIMITS
from receipt_pipeline_tests.chaos.crash_matrix.steps import StepOrder
from receipt_pipeline_tests.postgres_server import named_server, private_server
from receipt_pipeline_tests.suite_results import PROJECT

SERVER_VARIABLE = "RECEIPTS_TEST_POSTGRES_URL"
PAGE = PROJECT / "docs" / "invariants.md"
BEGINS, ENDS = "<!-- the matrix's last result begins -->", "<!-- the matrix's last result ends -->"
SIGNS = {
    Verdict.CONVERGED.value: "c",
    Verdict.OWNED.value: "o",
    Verdict.NOT_APPLICABLE.value: "–",
    Verdict.BROKEN.value: "BROKEN",
}
# A cell mostly waits for leases to end, so more cells than cores run at a time.
CELLS_PER_CORE = 2

Player = Callable[[Cell, Processes, Path, Mapping[str, str]], dict[str, Any]]
Progress = Callable[[dict[str, Any], int, int], None]


# Play cells.


def run_cells(
    cells: Sequence[Cell], ledgers: CellLedgers, *, progress: Progress, keep: Path | None = None
) -> list[dict[str, Any]]:
    """Play the cells, several at a time, and return one line each, in order.

    Args:
        progress: called after each cell with its line, how many are done, and how many there are.
        keep: where folders of broken cells are kept for a closer look.
    """
    lines: dict[Cell, dict[str, Any]] = {}
    with (
        _stage(ledgers) as (instances, processes),
        ThreadPoolExecutor(CELLS_PER_CORE * max(1, os.cpu_count() or 1)) as lanes,
        ThreadPoolExecutor(1) as dagster_lane,
    ):
        playing = {}
        for cell in cells:
            lane = dagster_lane if cell.through == DAGSTER else lanes
            playing[lane.submit(_play, cell, instances, processes, keep)] = cell
        try:
            for done in as_completed(playing):
                lines[playing[done]] = done.result()
                progress(done.result(), len(lines), len(cells))
        except BaseException:  # Ctrl-C ends everything immediately.
            for waiting in playing:
                waiting.cancel()
            processes.end()
            raise
    return [lines[cell] for cell in cells]


@contextmanager
def _stage(ledgers: CellLedgers) -> Iterator[tuple[Instances, Processes]]:
    """Set one data directory up, to be copied for every cell, and warm one process up, to be forked."""
    root = Path(tempfile.mkdtemp(prefix="receipts-matrix-"))
    try:
        instances = Instances(root, ledgers)
        with Processes() as processes:
            folder, environment = instances.template_environment()
            try:
                status = processes.start(StepOrder("set_up", str(folder), environment)).wait(120)
                assert status == 0, (folder / "processes.log").read_text()
                yield instances, processes
            finally:
                instances.remove_template(environment)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _play(cell: Cell, instances: Instances, processes: Processes, keep: Path | None) -> dict[str, Any]:
    """Return the line of one cell; a cell that cannot happen has its rule as detail."""
    started = time.monotonic()
    line = {"boundary": cell.boundary, "fault": cell.fault.value, "ledger": cell.ledger, "through": cell.through}
    if rule := why_not(cell.boundary, cell.fault):
        return line | {"verdict": Verdict.NOT_APPLICABLE.value, "detail": rule, "seconds": 0.0}
    limits = {**SCENARIOS[cell.boundary].limits, **(WATCHED_LIMITS if cell.fault is CellFault.STALL else {})}
    with instances.fresh(cell.name, limits) as (folder, environment):
        ended = _player(cell)(cell, processes, folder, environment)
        if keep is not None and ended["verdict"] == Verdict.BROKEN:
            shutil.copytree(folder, keep / f"{cell.ledger}-{cell.name}", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return line | ended | {"seconds": round(time.monotonic() - started, 1)}


def _player(cell: Cell) -> Player:
    if cell.through == SERVICES:
        return play_cell
    from receipt_pipeline_tests.chaos.crash_matrix.dagster import play_through_dagster

    return play_through_dagster


# Documents.


def result_document(lines: Sequence[dict[str, Any]], *, seconds: float, ledger: str) -> dict[str, Any]:
    """Return the matrix's document: a line a cell, counts per verdict, seconds, the ledger."""
    counted = Counter(line["verdict"] for line in lines)
    counts = {verdict.value: counted[verdict.value] for verdict in Verdict}
    return {"cells": list(lines), "counts": counts, "seconds": round(seconds, 1), "ledger": ledger}


def list_document() -> dict[str, Any]:
    """Return every boundary with its points and the faults that can and cannot happen at it."""
    return {
        "boundaries": [_described(boundary) for boundary in BOUNDARIES],
        "faults": {fault.value: text for fault, text in MEANINGS.items()},
    }


def _described(boundary: str) -> dict[str, Any]:
    rules = {fault: why_not(boundary, fault) for fault in MEANINGS}
    return {
        "boundary": boundary,
        "points": [f"{boundary}.before", f"{boundary}.after"],
        "faults": {fault.value: list(points_of(boundary, fault)) for fault in MEANINGS if not rules[fault]},
        "not_applicable": {fault.value: rule for fault, rule in rules.items() if rule},
    }


def result_text(documents: Sequence[dict[str, Any]]) -> str:
    """Return the counts per ledger, and a table with the verdict of every cell, as Markdown."""
    names = [document["ledger"] for document in documents]
    lines = [f"| ledger | {' | '.join(documents[0]['counts'])} | seconds |", "|---" * 6 + "|"]
    for document in documents:
        counted = " | ".join(str(count) for count in document["counts"].values())
        lines.append(f"| {document['ledger']} | {counted} | {document['seconds']:.0f} |")
    lines += ["", f"Each cell below shows {' / '.join(names)}: c converged, o owned, – not applicable.", ""]
    lines += [f"| boundary | {' | '.join(fault.value for fault in CellFault)} |", "|---" * 9 + "|"]
    for boundary in BOUNDARIES:
        cells = (" / ".join(_signs(documents, boundary, fault)) for fault in CellFault)
        lines.append(f"| {boundary} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _signs(documents: Sequence[dict[str, Any]], boundary: str, fault: CellFault) -> Iterator[str]:
    wanted = (boundary, fault.value, SERVICES)
    for document in documents:
        for cell in document["cells"]:
            if (cell["boundary"], cell["fault"], cell["through"]) == wanted:
                yield SIGNS[cell["verdict"]]


def write_result(text: str) -> None:
    """Put the result in its place on the page of invariants."""
    before, _, rest = PAGE.read_text().partition(BEGINS)
    after = rest.partition(ENDS)[2]
    PAGE.write_text(f"{before}{BEGINS}\n\n{text}\n\n{ENDS}{after}")


# The command.


def parser() -> argparse.ArgumentParser:
    """Return the options of the command; without any, both ledgers are played and the page is updated."""
    made = argparse.ArgumentParser(
        prog="matrix",
        description="Kill, fail, hang and cancel processes at durable boundaries and check what remains."
        " Without options: play SQLite and PostgreSQL and update docs/invariants.md."
        " Exit status 1 when a cell is broken.",
    )
    made.add_argument("point", nargs="?", metavar="POINT", help="one boundary, such as `commit`")
    made.add_argument("--all", action="store_true", help="every boundary under every fault")
    made.add_argument("--list", action="store_true", help="list boundaries, faults, and what cannot happen")
    made.add_argument(
        "--ledger",
        default=SQLITE,
        choices=LEDGERS,
        help="sqlite (the default), or postgres on the server of RECEIPTS_POSTGRES_URL",
    )
    made.add_argument(
        "--dagster",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with --all: ten more cells through Dagster runs (the default)",
    )
    made.add_argument("--keep", type=Path, help="keep the folders of broken cells here")
    made.add_argument("--json", action="store_true", help="print one JSON document on standard output")
    return made


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0, or 1 when a cell is broken."""
    if not arguments:
        return play_both()
    command = parser()
    options = command.parse_args(arguments)
    if sum((options.point is not None, options.all, options.list)) != 1:
        command.error("give one boundary, --all or --list")
    if options.list:
        _print_list(as_json=options.json)
        return 0
    cells = _chosen(command, options)
    document = _play_document(cells, _ledgers(command, options.ledger), keep=options.keep)
    if options.json:
        _print_json(document)
    else:
        for line in document["cells"]:
            print(_line_text(line))
        counts = ", ".join(f"{count} {verdict}" for verdict, count in document["counts"].items())
        print(f"{counts} in {document['seconds']} s")
    return int(document["counts"][Verdict.BROKEN.value] > 0)


def play_both() -> int:
    """Play every cell on SQLite and on PostgreSQL and write the result to the page; 1 when one is broken."""
    documents = []
    with _postgres_url() as url:
        for ledgers in (SqliteLedgers(), PostgresLedgers(url)):
            cells = (*all_cells(ledger=ledgers.name), *dagster_cells(ledger=ledgers.name))
            documents.append(_play_document(cells, ledgers, keep=None))
    text = result_text(documents)
    print(text)
    write_result(text)
    return int(any(document["counts"][Verdict.BROKEN.value] for document in documents))


@contextmanager
def _postgres_url() -> Iterator[sa.URL]:
    """Yield the address of the named server, or of a private one."""
    if SERVER_VARIABLE in os.environ:
        yield sa.make_url(named_server(os.environ[SERVER_VARIABLE]).address)
        return
    with private_server() as server:
        yield sa.make_url(server.address)


def _chosen(command: argparse.ArgumentParser, options: argparse.Namespace) -> tuple[Cell, ...]:
    if options.all:
        through_dagster = dagster_cells(ledger=options.ledger) if options.dagster else ()
        return (*all_cells(ledger=options.ledger), *through_dagster)
    boundary = options.point.partition(".")[0]
    if boundary not in BOUNDARIES:
        command.error(f"no such boundary: {boundary}; choose from {', '.join(BOUNDARIES)}")
    return cells_of([boundary], ledger=options.ledger)


def _ledgers(command: argparse.ArgumentParser, name: str) -> CellLedgers:
    if name != POSTGRES:
        return SqliteLedgers()
    try:
        url = read_settings().ledger_url
    except PipelineError as error:
        command.error(f"{error.reason.code} {error.facts}")
    if not url.startswith("postgresql"):
        command.error("--ledger postgres needs RECEIPTS_POSTGRES_URL, a server where this user may create databases")
    return PostgresLedgers(sa.make_url(url))


def _play_document(cells: Sequence[Cell], ledgers: CellLedgers, *, keep: Path | None) -> dict[str, Any]:
    started = time.monotonic()
    lines = run_cells(cells, ledgers, progress=_show_progress, keep=keep)
    return result_document(lines, seconds=time.monotonic() - started, ledger=ledgers.name)


def _show_progress(line: dict[str, Any], done: int, total: int) -> None:
    print(f"[{done}/{total}] {_line_text(line)}", file=sys.stderr)


def _line_text(line: dict[str, Any]) -> str:
    name = f"{line['boundary']} {line['fault']} ({line['ledger']}, {line['through']})"
    return f"{name}: {line['verdict']} in {line['seconds']} s, {line['detail']}"


def _print_list(*, as_json: bool) -> None:
    document = list_document()
    if as_json:
        _print_json(document)
        return
    for row in document["boundaries"]:
        print(f"{row['boundary']}: {', '.join(row['faults'])}")
        for fault, rule in row["not_applicable"].items():
            print(f"  not {fault}: {rule}")
    for fault, text in document["faults"].items():
        print(f"{fault}: {text}")


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=1, ensure_ascii=False, default=str))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
