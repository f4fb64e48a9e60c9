"""Plays the whole crash matrix on SQLite and on a real PostgreSQL server, and writes its last result down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from receipt_pipeline.core.failure_points import BOUNDARIES
from receipt_pipeline_tests.chaos.crash_matrix.cells import SERVICES, CellFault, Verdict
from receipt_pipeline_tests.postgres_server import driver_address, named_server, private_server
from receipt_pipeline_tests.suite_results import PROJECT

NAMED = "RECEIPTS_TEST_POSTGRES_URL"
PAGE = PROJECT / "docs" / "invariants.md"
BEGINS, ENDS = "<!-- the matrix's last result begins -->", "<!-- the matrix's last result ends -->"
SIGNS = {
    Verdict.CONVERGED.value: "c",
    Verdict.OWNED.value: "o",
    Verdict.NOT_APPLICABLE.value: "–",
    Verdict.BROKEN.value: "BROKEN",
}


def play(ledger: str, *arguments: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Play every cell on one ledger; returns the command's document."""
    command = [
        sys.executable,
        "-m",
        "receipt_pipeline_tests.chaos.matrix_command",
        "--all",
        "--json",
        "--ledger",
        ledger,
    ]
    env = {**os.environ, **environment}
    done = subprocess.run([*command, *arguments], env=env, stdout=subprocess.PIPE, check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@contextmanager
def a_server() -> Iterator[str]:
    """Yield the address of the named server, or of one of our own."""
    if NAMED in os.environ:
        yield driver_address(named_server(os.environ[NAMED]).address)
        return
    with private_server() as server:
        yield driver_address(server.address)


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


def main() -> int:
    """Play both and write the result down; 1 when a cell is broken. Arguments go to `receipts inject`."""
    arguments = sys.argv[1:]
    documents = [play("sqlite", *arguments, environment={})]
    with a_server() as url:
        documents.append(play("postgres", *arguments, environment={"RECEIPTS_POSTGRES_URL": url}))
    text = result_text(documents)
    print(text)
    write_result(text)
    return int(any(document["counts"][Verdict.BROKEN.value] for document in documents))


if __name__ == "__main__":
    raise SystemExit(main())
