"""Runs each `receipts` command in a process of its own, forked from one that has everything imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline_tests.fork_server import fork_server

COMMAND_S_MAX = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def run_forked(arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], written: Path) -> Answer:
    """Run one command to its end.

    Args:
        folder: where the command runs.
        written: a folder for what the command writes to its two outputs.
    """
    written.mkdir(exist_ok=True)
    outputs = (written / "stdout", written / "stderr")
    order = (list(arguments), folder, dict(environment), outputs)
    process = fork_server.Process(target=_be_the_command, args=order)
    process.start()
    process.join(COMMAND_S_MAX)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return Answer(process.exitcode, *(output.read_text(encoding="utf-8") for output in outputs))


def _be_the_command(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], outputs: tuple[Path, Path]
) -> None:
    """Be the process of the command: its folder, environment, inputs and outputs are a shell's."""
    from receipt_pipeline.cli.main import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, output in enumerate(outputs, 1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.argv = ["receipts", *arguments]
    main()
