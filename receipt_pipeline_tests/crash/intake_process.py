"""A real process that hands something in and may be killed at a named place, for the crash tests."""

from __future__ import annotations

import datetime as dt
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from receipt_pipeline.core.failure_points import install_plan
from receipt_pipeline.intake.inbox.sweep import sweep_inbox
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fork_server import fork_server
from receipt_pipeline_tests.intake_home import accept_manifest, an_intake

WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class IntakeOrder:
    """What the process does: accept the document of a folder, or sweep the inbox of a home.

    `place` is a failure point at whose so-manieth passage it kills itself; `commits` counts its
    transactions and kills it inside the so-manieth, before the commit. "" and 0 mean never.
    """

    ledger_url: str
    home: Path
    now: dt.datetime
    document: Path | None = None
    place: str = ""
    passage: int = 1
    commits: int = 0


def run_until_killed(order: IntakeOrder) -> int:
    """Run a process that ends itself; returns its exit code, negative for a signal."""
    process, _ = _start(order)
    process.join(WITHIN_S)
    assert process.exitcode is not None
    return process.exitcode


def accept_in_process(order: IntakeOrder) -> dict[str, Any]:
    """Accept a manifest in a process that is killed right after its answer was read."""
    process, answers = _start(order)
    assert answers.poll(WITHIN_S)
    answer: dict[str, Any] = answers.recv()
    process.kill()
    process.join(WITHIN_S)
    assert process.exitcode == -signal.SIGKILL
    return answer


def _start(order: IntakeOrder) -> tuple[BaseProcess, Connection]:
    here, there = fork_server.Pipe(duplex=False)
    process = fork_server.Process(target=_work, args=(order, there), daemon=True)
    process.start()
    there.close()
    return process, here


class _KillAt:
    """The failure plan: SIGKILL at one passage of one place."""

    def __init__(self, place: str, passage: int) -> None:
        self._place, self._left = place, passage

    def reached(self, point_name: str) -> None:
        self._left -= point_name == self._place
        if point_name == self._place and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def altered(self, alteration: str, value: Any) -> Any:
        return value


def _kill_in_commit(ledger: Ledger, number: int) -> None:
    """Let the process die inside its so-manieth writing transaction, when all is said but the commit."""
    transaction, done = ledger.transaction, []

    @contextmanager
    def dying() -> Iterator[Any]:
        with transaction() as tx:
            yield tx
            done.append(1)
            if len(done) == number:
                os.kill(os.getpid(), signal.SIGKILL)

    ledger.transaction = dying  # type: ignore[method-assign]


def _work(order: IntakeOrder, answers: Connection) -> None:
    ledger = open_ledger(order.ledger_url, clock=FakeClock(order.now))
    intake = an_intake(ledger, order.home)
    install_plan(_KillAt(order.place, order.passage))
    if order.commits:
        _kill_in_commit(ledger, order.commits)
    if order.document is not None:
        folder, document = order.document.parent, order.document.read_bytes()
        acceptance = accept_manifest(intake, document, folder)
        answers.send(acceptance.as_document())
    else:
        answers.send(dict(sweep_inbox(intake, time_bound_s=WITHIN_S).counts))
    time.sleep(WITHIN_S)
